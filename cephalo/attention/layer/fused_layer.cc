#include "cephalo/attention/layer/fused_layer.h"

#include <utility>
#include <vector>

#include "cephalo/attention/layer/row_rotation.h"
#include "cephalo/attention/ring/attend_spread.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/ops.h"
#include "cephalo/linear/workspace.h"

namespace cephalo {
namespace {

DType steps_of(const Parameters& parameters) {
  return compute_type(parameters.dtype());
}

// Where q, k and v lie after the projection, as heads, with the memory that holds them.
struct Projected {
  MutableTensorView rows;     // q, k and v of a token beside each other; or q alone
  MutableTensorView kv_rows;  // k and v of a second input; or the same rows
  MutableTensorView q, k, v;
};

class FusedLayer {
 public:
  FusedLayer(const FusedLayerRun& run, std::optional<AttendProblem> problem, LayerPass* pass)
      : sizes_(run.parameters.sizes()),
        packed_(run.packed),
        call_(run.call),
        engine_(run.engine),
        problem_(std::move(problem)),
        pass_(pass),
        steps_(steps_of(run.parameters)),
        batch_(run.call.x.dim(0)),
        tokens_(run.call.x.dim(1)) {}

  void run(const MutableTensorView& output) {
    const Projected in = place_inputs();
    if (!is_spread()) set_inputs(in);
    // 1 to 3  PROJECT, SPLIT, TRANSPOSE
    if (is_spread()) {
      project_spread(in);
    } else {
      project_inputs(in, problem_->mask);
    }
    // 4 and 5  ATTEND, CONCAT
    const MutableTensorView context = place_context(in, output);
    AttendOutput heads{heads_of(context, batch_, 0, sizes_.num_heads, sizes_.v_dim)};
    if (pass_ != nullptr) heads.lse = keep(in, context);
    if (call_.cache != nullptr) call_.cache->append(in.k, in.v, call_.counts);
    if (is_spread()) {
      attend_spread_into(call_.spread, heads, in.q, in.k, in.v, call_.mask, call_.options);
    } else {
      engine_->attend(*problem_, heads);
    }
    // 6  PROJECT
    if (sizes_.out_proj) {
      ops::linear(*packed_.out, context, output);
    } else if (context.data() != output.data()) {
      output.copy_from(context);
    }
    Workspace::of_this_thread().keep_a_little();
  }

 private:
  bool is_spread() const { return call_.spread.world != nullptr; }

  void set_inputs(const Projected& in) {
    problem_->q = in.q;
    if (call_.cache != nullptr) return;
    problem_->k = in.k;
    problem_->v = in.v;
  }

  // A pass may bring the memory of an older one along.
  MutableTensorView reuse(Tensor& kept, const Shape& shape) const {
    if (kept.shape() != shape || kept.dtype() != steps_) {
      kept = Tensor();  // given back before more is taken
      kept = Tensor::empty(shape, steps_);
    }
    return kept;
  }

  // What lies between two steps: the pass keeps it, or else the thread.
  MutableTensorView memory(Workspace::Slot slot, const Shape& shape) const {
    if (pass_ == nullptr) return Workspace::of_this_thread().take(slot, shape, steps_);
    return reuse(pass_->memory[slot], shape);
  }

  // [batch · tokens, context_width]: the output itself, or where q lies if that has the size, or
  // memory of its own, as a pass needs.
  MutableTensorView place_context(const Projected& in, const MutableTensorView& output) const {
    const Shape merged{batch_ * tokens_, sizes_.context_width()};
    if (pass_ == nullptr && !sizes_.out_proj && output.dtype() == steps_) return output;
    if (pass_ == nullptr && sizes_.v_dim == sizes_.head_dim && may_write_over_q()) {
      return {in.rows.mutable_data(), steps_, merged, {in.rows.dim(1), 1}};
    }
    return memory(Workspace::context, merged);
  }

  bool may_write_over_q() const {
    return !is_spread() && engine_->writes_over_q != nullptr && engine_->writes_over_q(*problem_);
  }

  // -> memory for lse
  MutableTensorView keep(const Projected& in, const TensorView& context) const {
    pass_->q = in.q;
    pass_->k = in.k;
    pass_->v = in.v;
    pass_->context = context;
    return reuse(pass_->lse, {batch_, sizes_.num_heads, tokens_});
  }

  // Memory for q, k and v, and the heads that they will be there.
  Projected place_inputs() const {
    const dim_t q_width = sizes_.q_width();
    const dim_t k_width = sizes_.k_width();
    const dim_t v_width = sizes_.v_width();
    const bool cross = call_.kv.has_value();
    Projected in;
    in.rows =
        memory(Workspace::rows, {batch_ * tokens_, cross ? q_width : q_width + k_width + v_width});
    in.kv_rows = cross ? memory(Workspace::kv_rows, {batch_ * call_.kv->dim(1), k_width + v_width})
                       : in.rows;
    const dim_t k_begin = cross ? 0 : q_width;
    in.q = heads_of(in.rows, batch_, 0, sizes_.num_heads, sizes_.head_dim);
    in.k = heads_of(in.kv_rows, batch_, k_begin, sizes_.num_kv_heads, sizes_.head_dim);
    in.v = heads_of(in.kv_rows, batch_, k_begin + k_width, sizes_.num_kv_heads, sizes_.v_dim);
    return in;
  }

  void project_inputs(const Projected& in, const BoundMask& mask) const {
    const MaybeCopied x = reshape(call_.x, {batch_ * tokens_, call_.x.dim(2)});
    if (!call_.kv) return apply(*packed_.qkv, x, in.rows, rotation_of(in, mask, true, true));
    const MaybeCopied kv = reshape(*call_.kv, {batch_ * call_.kv->dim(1), call_.kv->dim(2)});
    apply(*packed_.q, x, in.rows, rotation_of(in, mask, true, false));
    apply(*packed_.kv, kv, in.kv_rows, rotation_of(in, mask, false, true));
  }

  // The rows of a process stand at two places of the sequence, each turned by its own positions.
  void project_spread(const Projected& in) const {
    const MaybeCopied x = reshape(call_.x, {batch_ * tokens_, call_.x.dim(2)});
    ops::linear(*packed_.qkv, x, in.rows);
    if (!call_.rotary) return;
    turn_placed(call_.placed, *call_.rotary, PlacedHeads::q, in.q);
    turn_placed(call_.placed, *call_.rotary, PlacedHeads::k, in.k);
  }

  void apply(const PackedLinear& linear, const TensorView& x, const MutableTensorView& to,
             std::optional<RowRotation> rotation) const {
    if (!rotation) return ops::linear(linear, x, to);
    rotation->build_table();
    const Rotation turn = rotation->rotation();
    ops::linear(linear, x, to, Epilogue::rotate(turn));
  }

  std::optional<RowRotation> rotation_of(const Projected& in, const BoundMask& mask, bool q,
                                         bool k) const {
    if (!call_.rotary) return std::nullopt;
    RowRotation rotation(*call_.rotary, sizes_.head_dim);
    if (q) rotation.add({in.q, query_shifts(mask)});
    if (k) rotation.add({in.k, call_.cache != nullptr ? call_.cache->lengths() : key_shifts(mask)});
    return rotation;
  }

  const ParameterSizes& sizes_;
  const PackedParameters& packed_;
  const LayerCall& call_;
  const EngineEntry* engine_;
  std::optional<AttendProblem> problem_;
  LayerPass* pass_;
  DType steps_;
  dim_t batch_;
  dim_t tokens_;
};

}  // namespace

PackedParameters pack_parameters(const Parameters& parameters, bool cross) {
  const DType steps = steps_of(parameters);
  PackedParameters packed;
  if (cross) {
    packed.q.emplace(parameters.q_weight(), parameters.q_bias(), steps);
    packed.kv.emplace(parameters.kv_weight(), parameters.kv_bias(), steps);
  } else {
    packed.qkv.emplace(parameters.qkv_weight(), parameters.qkv_bias(), steps);
  }
  if (parameters.sizes().out_proj) {
    packed.out.emplace(parameters.out_weight(), parameters.out_bias(), steps);
  }
  return packed;
}

void pack_for_backward(const Parameters& parameters, PackedParameters& packed) {
  const DType steps = steps_of(parameters);
  packed.qkv_back.emplace(transpose(parameters.qkv_weight(), 0, 1), TensorView(), steps);
  if (parameters.sizes().out_proj) {
    packed.out_back.emplace(transpose(parameters.out_weight(), 0, 1), TensorView(), steps);
  }
}

MutableTensorView heads_of(const MutableTensorView& rows, dim_t batch, dim_t begin, dim_t heads,
                           dim_t dim) {
  const dim_t tokens = batch == 0 ? 0 : rows.dim(0) / batch;
  const dim_t width = rows.strides()[0];
  auto* first = static_cast<std::byte*>(rows.mutable_data()) +
                begin * static_cast<dim_t>(item_size(rows.dtype()));
  return {first,
          rows.dtype(),
          {batch, heads, tokens, dim},
          {tokens * width, dim, width, 1},
          rows.device()};
}

void run_fused_layer(const FusedLayerRun& run, std::optional<AttendProblem> problem,
                     const MutableTensorView& output, LayerPass* pass) {
  FusedLayer(run, std::move(problem), pass).run(output);
}

}  // namespace cephalo
