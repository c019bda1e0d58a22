#pragma once

#include <memory>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/core/random.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/turn.h"

namespace cephalo::python {

// A layer that any number of threads call while the GIL is released; what changes it waits for
// them. The pointer was made from the rung itself, whose constructor it must outlive.
struct Layer {
  explicit Layer(std::shared_ptr<MultiHeadAttention> made)
      : layer(std::move(made)), turn(layer->rung()) {}
  std::shared_ptr<MultiHeadAttention> layer;
  mutable Turn turn;
};

// A layer of its own with the same parameters, in eval mode.
std::unique_ptr<Layer> copy_of(const MultiHeadAttention& layer);

// seed=: None, a number, or a TorchGenerator whose stream goes on.
class SeedArgument {
 public:
  SeedArgument(nb::handle seed, const char* layer);
  std::optional<std::uint64_t> number;
  Generator* generator = nullptr;
};

// Makes a rung from options that have seed and generator, with the GIL released.
template <typename Rung, typename Options>
std::shared_ptr<MultiHeadAttention> make_rung(Options options, const SeedArgument& seed) {
  const WithoutGil released;
  const GeneratorTurn turn(seed.generator);
  options.seed = seed.number;
  options.generator = turn.stream();
  return std::make_shared<Rung>(options);
}

}  // namespace cephalo::python
