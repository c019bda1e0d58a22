#include "cephalo/embed/embedding.h"

#include <nanobind/stl/string.h>

#include <new>
#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/attention/multi_head.h"
#include "bindings/bindings.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Embedding";

void construct(Embedding* self, dim_t rows, dim_t width, const nb::object& seed) {
  require(rows > 0 && width > 0, "{}: rows ({}) and width ({}) must be > 0", kName, rows, width);
  const SeedArgument given(seed, kName);
  const WithoutGil released;
  const GeneratorTurn turn(given.generator);
  if (turn.stream() != nullptr) {
    new (self) Embedding(rows, width, *turn.stream());
    return;
  }
  TorchGenerator own(given.number.value_or(0));
  new (self) Embedding(rows, width, own);
}

AnyArray call(const Embedding& self, const nb::object& ids) {
  const IdsIn rows(ids, kName, "ids");
  Tensor x;
  {
    const WithoutGil released;
    x = self(rows);
  }
  return to_python(std::move(x), rows.kind());
}

AnyArray embed(const Embedding& tokens, const Embedding& positions, const nb::object& ids) {
  const IdsIn rows(ids, "embed_tokens", "ids");
  require(rows.view().rank() >= 1, "embed_tokens: ids must be [batch, tokens] or [tokens]");
  Tensor x;
  {
    const WithoutGil released;
    x = embed_tokens(tokens, positions, rows);
  }
  return to_python(std::move(x), rows.kind());
}

}  // namespace

void bind_embedding(nb::module_& m) {
  nb::class_<Embedding>(
      m, kName,
      "A table of learned vectors: row id is the vector of token id, or row t that of position t.")
      .def("__init__", &construct, "rows"_a, "width"_a, "seed"_a = 0,
           "N(0, 1) rows, drawn as nn.Embedding(rows, width) draws them after\n"
           "torch.manual_seed(seed); seed: a number, or a TorchGenerator to draw from.")
      .def("__call__", &call, "ids"_a, "ids: any shape -> [shape of ids, width], of ids' kind.")
      .def_prop_ro(
          "table",
          [](nb::handle self) {
            return borrowed_to_python(nb::cast<const Embedding&>(self).table(), self);
          },
          "[rows, width], read-only")
      .def("__repr__", [](const Embedding& e) {
        return format_text("{}(rows={}, width={})", kName, e.table().dim(0), e.table().dim(1));
      });
  m.def("embed_tokens", &embed, "tokens"_a, "positions"_a, "ids"_a,
        "Token vector + position vector. tokens, positions: Embedding\n"
        "ids: [batch, tokens] or [tokens] -> x: [shape of ids, width]");
}

}  // namespace cephalo::python
