#include "bindings/attention/call.h"

#include "bindings/arrays/spellings.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/learn/ladder.h"

namespace cephalo::python {
namespace {

bool takes_bare_masks(const MultiHeadAttention& layer) {
  return std::string(layer.rung()) == "FastMultiHeadAttention";
}

}  // namespace

LayerCall::LayerCall(const Layer& layer, const AnyArray& x, const std::optional<AnyArray>& kv,
                     const AnyArray& mask, const nb::object& generator,
                     std::optional<std::uint64_t> call)
    : layer_(layer), x_(x, layer.layer->rung(), "x") {
  const char* rung = layer.layer->rung();
  if (kv) {
    kv_.emplace(*kv, rung, "kv");
    options_.kv = &kv_->view();
  }
  if (takes_bare_masks(*layer.layer) && !mask.is_none() && nb::ndarray_check(mask)) {
    options_.mask = keep(Tensor::copy(ArrayIn(mask, rung, "mask"), DType::boolean));
  } else {
    options_.mask = mask_of(mask, rung);
  }
  if (!generator.is_none()) {
    if (!nb::isinstance<Generator>(generator)) {
      throw nb::type_error(format_text("{}: generator must be a TorchGenerator", rung).c_str());
    }
    generator_ = nb::cast<Generator*>(generator);
  }
  options_.call = call;
}

void LayerCall::use_cache(nb::handle cache, std::vector<dim_t> counts) {
  options_.counts = std::move(counts);
  if (cache.is_none()) return;
  if (!nb::isinstance<Cache>(cache)) {
    throw nb::type_error(format_text("{}: cache must be a KVCache", layer_.layer->rung()).c_str());
  }
  cache_ = nb::cast<Cache*>(cache);
  options_.cache = &cache_->stored;
}

void LayerCall::use_engine(const std::string& engine, const std::optional<std::string>& require,
                           std::optional<int> threads) {
  options_.engine = engine_of(engine, layer_.layer->rung());
  options_.require = required_engine(require, layer_.layer->rung());
  options_.threads = threads.value_or(0);
}

}  // namespace cephalo::python
