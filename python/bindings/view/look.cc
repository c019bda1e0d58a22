#include "cephalo/view/look.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/view/look_model.h"
#include "bindings/view/recording.h"
#include "cephalo/core/format.h"
#include "cephalo/view/look_json.h"
#include "cephalo/view/page.h"
#include "cephalo/view/terminal.h"

namespace cephalo::python {
namespace {

using Places = std::vector<std::pair<dim_t, dim_t>>;  // (layer, head)

// A report with the recording that it was made from, and so with its model.
struct Report {
  nb::object recorded;
  LookReport report;
};

LookProbe probe(const Model& model, std::uint64_t seed, std::optional<int> threads) {
  const Bpe words = model.words("look");
  const LookModel seen = look_model(model, words);
  return reading(model, [&](const Gpt&) {
    return probe_for_look(seen, {.seed = seed, .threads = threads.value_or(0)});
  });
}

void construct(Report* self, const nb::object& recording, const std::string& text,
               const LookProbe& probe, bool begun, dim_t top) {
  const auto& recorded = nb::cast<const RecordedText&>(recording);
  const Bpe words = recorded.model.words("look");
  const LookModel model = look_model(recorded.model, words);
  LookReport report;
  {
    const WithoutGil released;
    report = look_at(model, text, recorded.recording, probe, {.begin = begun, .top = top});
  }
  new (self) Report{recording, std::move(report)};
}

std::vector<std::pair<std::string, double>> predictions(const Report& self) {
  std::vector<std::pair<std::string, double>> next;
  for (const LookPrediction& p : self.report.predictions) {
    next.emplace_back(p.token.label, p.probability);
  }
  return next;
}

std::string json(const Report& self, const Places& weights) {
  std::vector<HeadPlace> places;
  for (const auto& [layer, head] : weights) places.push_back({layer, head});
  const WithoutGil released;
  return to_json(self.report, places);
}

std::string page(const Report& self, std::int64_t most_bytes, const Places& heads) {
  RecordedOptions options{.most_bytes = most_bytes};
  for (const auto& [layer, head] : heads) options.heads.push_back({layer, head});
  return asked_with_model(nb::cast<const RecordedText&>(self.recorded), [&](const Recording&) {
    return recorded_page_html(self.report, plan_recorded_page(self.report, options));
  });
}

Places shown(const Report& self, std::size_t most) {
  Places places;
  for (const HeadReport* head : heads_to_show(self.report, most)) {
    places.emplace_back(head->layer, head->head);
  }
  return places;
}

}  // namespace

void bind_look(nb::module_& m) {
  nb::class_<LookProbe>(
      m, "LookProbe",
      "What the heads of a model do on repeated random tokens; one probe serves many looks.");
  m.def("probe_for_look", &probe, "model"_a, "seed"_a = LookOptions().seed,
        "threads"_a = nb::none(), "-> LookProbe; empty if the model is too small for a probe.");
  nb::class_<Report>(m, "LookReport",
                     "A text as a model sees it: what the program, pictures and notebooks draw.")
      .def("__init__", &construct, "recording"_a, "text"_a, "probe"_a, "begun"_a = true,
           "top"_a = LookOptions().top,
           "recording: of that text. begun: whether the token that begins a text was prepended. "
           "top: how\n"
           "many of the likeliest next tokens.")
      .def_prop_ro("tokens", [](const Report& r) { return r.report.labels(); })
      .def_prop_ro("heads", [](const Report& r) { return r.report.heads; })
      .def_prop_ro("predictions", &predictions)
      .def("heads_to_show", &shown, "most"_a,
           "(layer, head) of those to draw if there is no room for all.")
      .def("json", &json, "weights"_a = Places(),
           "All of it, as cephalo look --json prints it; with the weights of these heads, each\n"
           "(layer, head).")
      .def(
          "page", &page, "most_bytes"_a = RecordedOptions().most_bytes, "heads"_a = Places(),
          "One HTML file with every head of this text, as a str. Above most_bytes these heads are\n"
          "kept in full, each (layer, head); of the others the map and the strongest keys.");
  m.def(
      "shade", [](double weight) { return shade(weight, TerminalStyle()); }, "weight"_a,
      "The character for a weight from 0 to 1, for output without colours.");
  m.def(
      "shades", [] { return legend(TerminalStyle()); }, "What these characters mean: one line.");
}

}  // namespace cephalo::python
