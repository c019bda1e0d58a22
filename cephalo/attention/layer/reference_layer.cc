#include "cephalo/attention/layer/reference_layer.h"

#include <initializer_list>
#include <utility>

#include "cephalo/attention/layer/heads.h"
#include "cephalo/attention/layer/row_rotation.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/project.h"

namespace cephalo {
namespace {

void show(StepSink* sink, const char* key, const TensorView& value) {
  if (sink != nullptr) sink->step(key, value);
}

void show(StepSink* sink, std::initializer_list<std::pair<const char*, const TensorView*>> steps) {
  for (const auto& [key, value] : steps) show(sink, key, *value);
}

}  // namespace

Tensor run_reference_layer(const Parameters& parameters, const LayerCall& call,
                           AttendProblem problem, StepSink* sink, LayerPass* pass) {
  require(call.cache == nullptr, "{}: the reference engine of the layer has no cache", call.name);
  const ParameterSizes& sizes = parameters.sizes();
  const DType steps = compute_type(parameters.dtype());

  // 0  INPUT
  const TensorView& x = call.x;
  const TensorView& kv = call.kv ? *call.kv : x;
  show(sink, "x", x);

  // 1  PROJECT
  Tensor q = project(x, parameters.q_weight(), parameters.q_bias(), steps);
  Tensor k = project(kv, parameters.k_weight(), parameters.k_bias(), steps);
  Tensor v = project(kv, parameters.v_weight(), parameters.v_bias(), steps);
  show(sink, {{"q", &q}, {"k", &k}, {"v", &v}});

  // 2  SPLIT
  const TensorView q_split = split_heads(q, sizes.num_heads);
  const TensorView k_split = split_heads(k, sizes.num_kv_heads);
  const TensorView v_split = split_heads(v, sizes.num_kv_heads);
  show(sink, {{"q_split", &q_split}, {"k_split", &k_split}, {"v_split", &v_split}});
  if (call.rotary) {
    rotate({q.mutable_view().mutable_data(), steps, q_split.shape()}, *call.rotary,
           query_shifts(problem.mask));
    rotate({k.mutable_view().mutable_data(), steps, k_split.shape()}, *call.rotary,
           key_shifts(problem.mask));
    show(sink, {{"q_rotated", &q_split}, {"k_rotated", &k_split}});
  }

  // 3  TRANSPOSE
  const TensorView q_heads = heads_first(q_split);
  const TensorView k_heads = heads_first(k_split);
  const TensorView v_heads = heads_first(v_split);
  show(sink, {{"q_heads", &q_heads}, {"k_heads", &k_heads}, {"v_heads", &v_heads}});

  // 4  ATTEND
  problem.q = q_heads;
  problem.k = k_heads;
  problem.v = v_heads;
  problem.options.return_lse = pass != nullptr;
  AttendResult attended = attend_reference(problem, sink);

  // 5  CONCAT
  Tensor context = merge_heads(std::move(attended.context));
  show(sink, "context", context);

  // 6  PROJECT
  Tensor output;
  if (sizes.out_proj) {
    output = project(context, parameters.out_weight(), parameters.out_bias(), x.dtype());
    show(sink, "output", output);
  } else if (x.dtype() == steps && pass == nullptr) {
    output = std::move(context);
  } else {
    output = Tensor::copy(context, x.dtype());
  }
  if (pass != nullptr) {
    pass->q = q_heads;
    pass->k = k_heads;
    pass->v = v_heads;
    pass->context = view(context, {q.dim(0) * q.dim(1), sizes.context_width()});
    pass->lse = std::move(attended.lse);
    pass->memory = {std::move(q), std::move(k), std::move(v), std::move(context)};
  }
  return output;
}

}  // namespace cephalo
