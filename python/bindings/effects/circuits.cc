#include "cephalo/effects/circuits.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/effects/kept_pass.h"

namespace cephalo::python {
namespace {

Composition kind_of_composition(const std::string& word) {
  if (word == "query") return Composition::query;
  if (word == "key") return Composition::key;
  require(word == "value", "composition: kind '{}' is none of query, key, value", word);
  return Composition::value;
}

std::pair<AnyArray, double> composed(const Model& model, const std::string& kind,
                                     std::uint64_t seed) {
  const Composition what = kind_of_composition(kind);
  CompositionScores found =
      reading(model, [&](const Gpt& gpt) { return composition(gpt, what, seed); });
  return {made(std::move(found.scores)), found.baseline};
}

}  // namespace

void bind_circuits(nb::module_& m) {
  m.def("composition", &composed, "model"_a, "kind"_a = "key", "seed"_a = 123,
        "How much a later head reads of what an earlier one writes, by its queries, keys or values "
        "(kind),\n"
        "from parameters alone -> (float64 [layer, head, later layer, later head], the mean score "
        "of random\nmatrices).");
  m.def(
      "copying",
      [](const Model& model) {
        return made(reading(model, [](const Gpt& gpt) { return copying(gpt); }));
      },
      "model"_a, "From -1 (opposite) to 1 (copies) -> float64 [num_layers, num_heads].");
}

}  // namespace cephalo::python
