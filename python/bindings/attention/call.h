#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/attention/kv_cache.h"
#include "bindings/attention/mask.h"
#include "bindings/attention/multi_head.h"
#include "bindings/core/random.h"

namespace cephalo::python {

// What one call of a layer brings along, ready for C++. Locks are taken by `options`, which wants
// the GIL released.
class LayerCall {
 public:
  LayerCall(const Layer& layer, const AnyArray& x, const std::optional<AnyArray>& kv,
            const AnyArray& mask, const nb::object& generator, std::optional<std::uint64_t> call);
  void use_cache(nb::handle cache, std::vector<dim_t> counts);
  void use_engine(const std::string& engine, const std::optional<std::string>& require,
                  std::optional<int> threads);
  void use_dropout(bool drop) { options_.drop = drop; }

  const ArrayIn& x() const { return x_; }
  const ArrayIn* kv() const { return kv_ ? &*kv_ : nullptr; }

  // Runs body(options) without the GIL, the layer held against changes.
  template <typename Body>
  auto run(Body body) {
    const WithoutGil released;
    const std::shared_lock layer(layer_.turn);
    const CacheWriting cache(cache_);
    const GeneratorTurn generator(generator_);
    options_.generator = generator.stream();
    return body(*layer_.layer, x_.view(), options_);
  }

 private:
  const Layer& layer_;
  ArrayIn x_;
  std::optional<ArrayIn> kv_;
  Cache* cache_ = nullptr;
  Generator* generator_ = nullptr;
  CallOptions options_;
};

}  // namespace cephalo::python
