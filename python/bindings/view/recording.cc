#include "bindings/view/recording.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <utility>
#include <vector>

#include "bindings/arrays/ids.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Recording";

AnyArray made(Tensor&& tensor) {
  const Kind kind = kind_without_caller(tensor.dtype());
  return to_python(std::move(tensor), kind);
}

void construct(RecordedText* self, const nb::object& model, const nb::object& text,
               std::optional<bool> begin, std::optional<int> threads) {
  if (!nb::isinstance<Model>(model)) throw nb::type_error("Recording: model must be a Gpt");
  const auto& reader = nb::cast<const Model&>(model);
  const auto ids = reader.ids_of(text, begin, kName, "text");
  const dim_t most = reader.gpt.options().context_length;
  require(static_cast<dim_t>(ids.size()) <= most,
          "{}: the text has {} tokens, the model reads at most {} at once (context_length); give a "
          "part of it",
          kName, ids.size(), most);
  new (self) RecordedText(model, ids, threads.value_or(0));
}

AnyArray weights(const RecordedText& self, dim_t layer, std::vector<dim_t> heads,
                 std::vector<dim_t> rows) {
  const WeightsSelection selection{std::move(heads), std::move(rows), false};
  return made(asked(self, [&](const Recording& r) { return r.weights(layer, selection); }));
}

AnyArray pooled(const RecordedText& self, dim_t layer, dim_t head, dim_t cells) {
  PooledWeights found =
      asked(self, [&](const Recording& r) { return r.pooled(layer, head, cells); });
  return nb::borrow<AnyArray>(
      ResultType("PooledWeights")(made(std::move(found.largest)), made(std::move(found.mean))));
}

std::vector<std::pair<std::int64_t, double>> predictions(const RecordedText& self, dim_t count) {
  std::vector<std::pair<std::int64_t, double>> likeliest;
  for (const Prediction& p : self.recording->predictions(count)) {
    likeliest.emplace_back(p.id, p.probability);
  }
  return likeliest;
}

}  // namespace

void bind_recording(nb::module_& m) {
  nb::class_<RecordedText>(m, kName,
                           "One text's pass through a Gpt, kept so that you can ask later what any "
                           "head looked at; linear in tokens.")
      .def("__init__", &construct, "model"_a, "text"_a, "begin"_a = true, "threads"_a = nb::none(),
           "text: a str, or ids: from 1 to context_length of them. begin: prepend the token that "
           "begins\n"
           "a text; None: as config.json says.")
      .def("weights", &weights, "layer"_a, "heads"_a = std::vector<dim_t>(),
           "rows"_a = std::vector<dim_t>(),
           "-> [heads, rows, tokens]: the ones you want; empty: all.")
      .def("pooled", &pooled, "layer"_a, "head"_a, "cells"_a,
           "A small map of one head: (largest, mean), each at most [cells, cells].")
      .def(
          "row_sums",
          [](const RecordedText& self, dim_t layer) {
            return made(asked(self, [&](const Recording& r) { return r.row_sums(layer); }));
          },
          "layer"_a, "-> float64 [num_heads, tokens, 11]: see row_sums and ROW_SUMS.")
      .def(
          "value_norms",
          [](const RecordedText& self, dim_t layer) {
            return made(
                asked_with_model(self, [&](const Recording& r) { return r.value_norms(layer); }));
          },
          "layer"_a,
          "-> float64 [num_heads, tokens]: how much a head adds to a token that looks only at "
          "that\n"
          "key.")
      .def("predictions", &predictions, "count"_a = 5,
           "(id, probability) of the token that would come next, the likeliest first.")
      .def_prop_ro(
          "ids", [](const RecordedText& r) { return to_list(r.recording->ids()); },
          nb::sig("def ids(self) -> list[int]"))
      .def_prop_ro("tokens", [](const RecordedText& r) { return r.recording->tokens(); })
      .def_prop_ro("num_layers", [](const RecordedText& r) { return r.recording->num_layers(); })
      .def_prop_ro("num_heads", [](const RecordedText& r) { return r.recording->num_heads(); })
      .def_prop_ro(
          "model", [](const RecordedText& r) { return r.model_object; },
          nb::sig("def model(self) -> Gpt"))
      .def("__repr__", [](const RecordedText& r) {
        return format_text("Recording({} tokens, {} layers, {} heads)", r.recording->tokens(),
                           r.recording->num_layers(), r.recording->num_heads());
      });
}

}  // namespace cephalo::python
