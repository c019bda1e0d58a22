#include "tests/support/engine_calls.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cephalo/core/error.h"

namespace cephalo::testing {
namespace {

bool is_of_gpu(Engine engine) {
  return engine == Engine::cuda || engine == Engine::cuda_simple;
}

void set_engine(Engine engine, AttendOptions& options) {
  options.engine = engine == Engine::cuda ? Engine::automatic : engine;
  if (entry_of(engine).weights == nullptr) options.return_weights = false;
}

Tensor there(const TensorView& t) {
  return Tensor::copy(t, kGpu);
}
Tensor back(const Tensor& t) {
  return Tensor::copy(t, Device{});
}

}  // namespace

bool has_gpu() {
  static const bool found = [] {
    try {
      return Tensor::empty({1}, DType::f32, kGpu).numel() == 1;
    } catch (const Error&) {
      return false;
    }
  }();
  return found;
}

std::vector<Engine> engines_here() {
  std::vector<Engine> engines{Engine::reference, Engine::fused};
  if (has_gpu()) engines.insert(engines.end(), {Engine::cuda, Engine::cuda_simple});
  return engines;
}

std::vector<Engine> backward_engines_here() {
  std::vector<Engine> engines = engines_here();
  std::erase_if(engines, [](Engine e) { return entry_of(e).attend_backward == nullptr; });
  return engines;
}

const EngineEntry& entry_of(Engine engine) {
  const auto all = engines();
  return **std::find_if(all.begin(), all.end(),
                        [&](const EngineEntry* each) { return each->engine == engine; });
}

Mask mask_on_gpu(const Mask& mask) {
  Mask moved = mask;
  for (MaskTensor& part : moved.tensors) {
    part.owner = std::make_shared<const Tensor>(there(part.view));
    part.view = *part.owner;
  }
  return moved;
}

AttendResult attend_by(Engine engine, const TensorView& q, const TensorView& k, const TensorView& v,
                       const Mask& mask, AttendOptions options) {
  set_engine(engine, options);
  if (!is_of_gpu(engine)) return attend(q, k, v, mask, options);
  const AttendResult r = attend(there(q), there(k), there(v), mask_on_gpu(mask), options);
  return {back(r.context), back(r.lse), Tensor(), Tensor()};
}

AttendGradients attend_backward_by(Engine engine, const AttendPass& pass, const TensorView& q,
                                   const TensorView& k, const TensorView& v, const Mask& mask,
                                   AttendOptions options, bool with_dbias) {
  set_engine(engine, options);
  if (!is_of_gpu(engine)) return attend_backward(pass, q, k, v, mask, options, with_dbias);
  const Tensor context = there(pass.context), lse = there(pass.lse);
  const Tensor dcontext = there(pass.dcontext), dlse = there(pass.dlse);
  const AttendGradients g = attend_backward({context, lse, dcontext, dlse}, there(q), there(k),
                                            there(v), mask_on_gpu(mask), options, with_dbias);
  AttendGradients result{back(g.dq), back(g.dk), back(g.dv), {}};
  for (const Tensor& dbias : g.dbias) result.dbias.push_back(back(dbias));
  return result;
}

}  // namespace cephalo::testing
