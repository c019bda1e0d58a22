#include "cephalo/attention/layer/layer_backward.h"

#include <optional>
#include <utility>
#include <vector>

#include "cephalo/attention/engine/backward_problem.h"
#include "cephalo/attention/layer/fused_layer.h"
#include "cephalo/attention/layer/row_rotation.h"
#include "cephalo/attention/ring/attend_spread.h"
#include "cephalo/core/random.h"
#include "cephalo/linear/ops.h"
#include "cephalo/linear/project_backward.h"
#include "cephalo/linear/workspace.h"

namespace cephalo {
namespace {

// Gradients of q, k and v as the projections made them, and as heads: the same memory.
struct ProjectedGradients {
  MutableTensorView drows;     // those of q, k and v of a token beside each other; or of q alone
  MutableTensorView dkv_rows;  // those of k and v of a second input
  MutableTensorView dq, dk, dv;
};

class LayerBackward {
 public:
  LayerBackward(const Parameters& parameters, const PackedParameters* packed, const LayerPass& pass,
                const std::optional<Rotary>& rotary, const LayerGradients& gradients)
      : parameters_(parameters),
        packed_(packed),
        sizes_(parameters.sizes()),
        pass_(pass),
        rotary_(rotary),
        gradients_(gradients),
        project_backward_(pass.textbook ? project_backward_reference : ops::linear_backward),
        steps_(gradients.dy.dtype()) {
    if (pass.generator != nullptr) generator_.emplace(*pass.generator);
  }

  void run() {
    // 6  PROJECT    y = context W_outᵀ + b_out   ←  dcontext, dW_out, db_out
    const TensorView dcontext = project_output();
    // 5  CONCAT     heads beside each other      ←  strides alone
    // 4  ATTEND     softmax(q kᵀ) v              ←  dq, dk, dv
    // 3  TRANSPOSE, 2  SPLIT                     ←  strides alone; rotary turns back
    const ProjectedGradients d = make_projected();
    if (pass_.spread.world != nullptr) {
      attend_back_spread(dcontext, d);
    } else {
      attend_back(dcontext, d);
    }
    // 1  PROJECT    rows = x W_qkvᵀ + b_qkv      ←  dx, dW_qkv, db_qkv
    project_inputs(d);
    Workspace::of_this_thread().keep_a_little();
  }

 private:
  bool has_kv() const { return pass_.kv_shape.rank() > 0; }

  // A matrix of `packed`, where it is there.
  const PackedLinear* laid_out(std::optional<PackedLinear> PackedParameters::*matrix) const {
    if (packed_ == nullptr || !(packed_->*matrix).has_value()) return nullptr;
    return &*(packed_->*matrix);
  }

  // -> dcontext: [batch · tokens, num_heads · v_dim]
  TensorView project_output() const {
    if (!sizes_.out_proj) return gradients_.dy;
    const MutableTensorView dcontext = Workspace::of_this_thread().take(
        Workspace::context, {gradients_.dy.dim(0), sizes_.context_width()}, steps_);
    project_backward_({pass_.context, parameters_.out_weight(), gradients_.dy,
                       laid_out(&PackedParameters::out_back)},
                      {dcontext, gradients_.parameters.out_weight, gradients_.parameters.out_bias});
    return dcontext;
  }

  ProjectedGradients make_projected() const {
    Workspace& workspace = Workspace::of_this_thread();
    const dim_t batch = pass_.q.dim(0);
    const dim_t q_width = sizes_.q_width();
    const dim_t k_width = sizes_.k_width();
    const dim_t kv_width = k_width + sizes_.v_width();
    ProjectedGradients d;
    dim_t k_begin = 0;
    if (has_kv()) {
      d.drows = workspace.take(Workspace::rows, {pass_.x.dim(0), q_width}, steps_);
      d.dkv_rows = workspace.take(Workspace::kv_rows, {pass_.kv.dim(0), kv_width}, steps_);
    } else {
      d.drows = workspace.take(Workspace::rows, {pass_.x.dim(0), q_width + kv_width}, steps_);
      d.dkv_rows = d.drows;
      k_begin = q_width;
    }
    const dim_t kv_heads = sizes_.num_kv_heads;
    d.dq = heads_of(d.drows, batch, 0, sizes_.num_heads, sizes_.head_dim);
    d.dk = heads_of(d.dkv_rows, batch, k_begin, kv_heads, sizes_.head_dim);
    d.dv = heads_of(d.dkv_rows, batch, k_begin + k_width, kv_heads, sizes_.v_dim);
    return d;
  }

  // rows: [batch · tokens, num_heads · v_dim] -> [batch, num_heads, tokens, v_dim]
  TensorView context_heads(const TensorView& rows) const {
    const dim_t tokens = pass_.q.dim(2);
    const dim_t width = sizes_.context_width();
    return {rows.data(),
            rows.dtype(),
            {pass_.q.dim(0), sizes_.num_heads, tokens, sizes_.v_dim},
            {tokens * width, sizes_.v_dim, width, 1},
            rows.device()};
  }

  AttendPass attention_pass(const TensorView& dcontext) const {
    return {context_heads(pass_.context), pass_.lse, context_heads(dcontext)};
  }

  void attend_back(const TensorView& dcontext, const ProjectedGradients& d) {
    AttendOptions options = pass_.options;
    if (generator_) options.generator = &*generator_;
    const BackwardProblem problem =
        make_backward_problem({d.dq, d.dk, d.dv}, attention_pass(dcontext), pass_.q, pass_.k,
                              pass_.v, pass_.mask, options);
    run_backward(problem);
    if (rotary_) turn_back(d, problem.forward.mask);
  }

  void attend_back_spread(const TensorView& dcontext, const ProjectedGradients& d) const {
    attend_spread_backward_into(pass_.spread, {d.dq, d.dk, d.dv}, attention_pass(dcontext), pass_.q,
                                pass_.k, pass_.v, pass_.mask, pass_.options);
    if (!rotary_) return;
    constexpr auto kBack = RowRotation::Direction::back;
    turn_placed(pass_.placed, *rotary_, PlacedHeads::q, d.dq, kBack);
    turn_placed(pass_.placed, *rotary_, PlacedHeads::k, d.dk, kBack);
  }

  void turn_back(const ProjectedGradients& d, const BoundMask& mask) const {
    for (auto& [heads, shift] :
         {std::pair{d.dq, query_shifts(mask)}, std::pair{d.dk, key_shifts(mask)}}) {
      RowRotation rotation(*rotary_, sizes_.head_dim, RowRotation::Direction::back);
      rotation.add({heads, shift});
      rotation.build_table();
      ops::rotate(rotation.rotation());
    }
  }

  void project_inputs(const ProjectedGradients& d) const {
    const Parameters::Blocks& to = gradients_.parameters;
    if (!has_kv()) {
      project_backward_(
          {pass_.x, parameters_.qkv_weight(), d.drows, laid_out(&PackedParameters::qkv_back)},
          {gradients_.dx, to.qkv_weight, to.qkv_bias});
      return;
    }
    project_backward_({pass_.x, parameters_.q_weight(), d.drows},
                      {gradients_.dx, to.q_weight, to.q_bias});
    project_backward_({pass_.kv, parameters_.kv_weight(), d.dkv_rows},
                      {gradients_.dkv, to.kv_weight, to.kv_bias});
  }

  const Parameters& parameters_;
  const PackedParameters* packed_;
  const ParameterSizes& sizes_;
  const LayerPass& pass_;
  const std::optional<Rotary>& rotary_;
  const LayerGradients& gradients_;
  void (*project_backward_)(const Projection&, const ProjectionGradients&);
  DType steps_;
  std::optional<TorchGenerator> generator_;  // a copy: each backward draws the same
};

}  // namespace

void run_layer_backward(const Parameters& parameters, const PackedParameters* packed,
                        const LayerPass& pass, const std::optional<Rotary>& rotary,
                        const LayerGradients& gradients) {
  LayerBackward(parameters, packed, pass, rotary, gradients).run();
}

}  // namespace cephalo
