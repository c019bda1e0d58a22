// What effects, ablations, the lens and patching show: values that draw themselves.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings/arrays/callback.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt.h"
#include "bindings/view/look_model.h"
#include "cephalo/view/effects_report.h"
#include "cephalo/view/lens_report.h"
#include "cephalo/view/patch_report.h"

namespace cephalo::python {
namespace {

// A report that needs its model no more: what it shows, and all of it as JSON.
struct Shown {
  ReportPage page;
  std::string json;
};

template <typename Report>
Shown shown(const Report& report) {
  return {page_of(report), to_json(report)};
}

// Experiments ask whether to go on, and Ctrl-C ends them.
Progress progress_with(const Callback& told) {
  return [&told](std::size_t done, std::size_t all) {
    bool goes_on = true;
    const WithGil held;
    check_signals();
    if (told.given()) {
      told.call([&](const nb::object& answer) { goes_on = !answer.is(nb::handle(Py_False)); }, done,
                all);
    }
    return goes_on;
  };
}

Shown effects(const Model& model, const std::string& text, bool begin, const std::string& kind,
              double factor, const std::string& reference, bool pairs, std::optional<dim_t> edges,
              const std::string& edge_kind, nb::object progress) {
  const Bpe words = model.words("effects");
  const LookModel seen = look_model(model, words);
  const Callback told(std::move(progress), "effects", "progress");
  const Progress goes_on = progress_with(told);
  EffectsOptions options{.kind = parse_change_kind(kind), .factor = factor, .reference = reference};
  options.look.begin = begin;
  const ChangeKind edge = parse_change_kind(edge_kind);
  if (edges && pairs) throw nb::value_error("effects: pass pairs or edges, not both");
  return reading(model, [&](const Gpt&) {
    EffectsReport report = effects_of(seen, text, options);
    if (edges) {
      const dim_t query = *edges < 0 ? *edges + report.pass->tokens() : *edges;
      report.edges = edge_effects(report, query, edge, goes_on);
    } else {
      report.heads = head_effects(report, goes_on);
      if (pairs) report.pairs = pair_effects(report, goes_on);
    }
    return shown(report);
  });
}

Shown ablated(const Model& model, const std::string& text, const std::string& changes, bool begin,
              const std::string& kind, double factor, const std::string& reference) {
  const Bpe words = model.words("ablate");
  const LookModel seen = look_model(model, words);
  EffectsOptions options{.kind = parse_change_kind(kind), .factor = factor, .reference = reference};
  options.look.begin = begin;
  const Changes made = parse_changes(changes, options.kind, factor);
  return reading(model, [&](const Gpt&) {
    EffectsReport report = effects_of(seen, text, options);
    report.ablation = ablate(seen, report, made);
    return shown(report);
  });
}

Shown lens(const Model& model, const std::string& text, bool begin, const std::string& norm,
           dim_t top) {
  const Bpe words = model.words("lens");
  const LookModel seen = look_model(model, words);
  LensReportOptions options{.begin = begin, .top = top};
  bool known = false;
  for (const LensNorm each : {LensNorm::fresh, LensNorm::frozen, LensNorm::none}) {
    if (norm != name(each)) continue;
    options.norm = each;
    known = true;
  }
  if (!known) {
    throw nb::value_error(("lens: norm '" + norm + "' is none of fresh, frozen, none").c_str());
  }
  return reading(model, [&](const Gpt&) { return shown(lens_of(seen, text, options)); });
}

Shown patched(const Model& model, const std::string& clean, const std::string& corrupt,
              const std::string& answer, const std::string& wrong, bool begin,
              nb::object progress) {
  const Bpe words = model.words("patch");
  const LookModel seen = look_model(model, words);
  const Callback told(std::move(progress), "patch", "progress");
  PatchOptions options{.answer = answer, .wrong = wrong, .begin = begin};
  options.progress = progress_with(told);
  return reading(model,
                 [&](const Gpt&) { return shown(patch_texts(seen, clean, corrupt, options)); });
}

}  // namespace

void bind_reports(nb::module_& m) {
  nb::class_<Shown>(m, "ReportPage", "What a report says and draws.")
      .def_ro("json", &Shown::json, "All of it, as the program's --json prints it.")
      .def(
          "text",
          [](const Shown& s, dim_t width) {
            TerminalStyle style;
            style.width = width;
            return to_text(s.page, style);
          },
          "width"_a = 100, "As lines of at most this width, without colours.")
      .def(
          "picture", [](const Shown& s) { return draw_page(s.page); },
          "A Picture of it, to save as PNG or SVG.");
  m.def("effects_report", &effects, "model"_a, "text"_a, nb::kw_only(), "begin"_a = true,
        "kind"_a = "zero", "factor"_a = 1.0, "reference"_a = "", "pairs"_a = false,
        "edges"_a = nb::none(), "edge_kind"_a = "hide", "progress"_a = nb::none(),
        "Each head in turn, each pair, or each edge of token `edges`: see cephalo.effects.");
  m.def("ablation_report", &ablated, "model"_a, "text"_a, "changes"_a, nb::kw_only(),
        "begin"_a = true, "kind"_a = "zero", "factor"_a = 1.0, "reference"_a = "",
        "See cephalo.ablate.");
  m.def("lens_report", &lens, "model"_a, "text"_a, nb::kw_only(), "begin"_a = true,
        "norm"_a = "fresh", "top"_a = 5, "See cephalo.lens.");
  m.def("patch_report", &patched, "model"_a, "clean"_a, "corrupt"_a, "answer"_a, "wrong"_a,
        nb::kw_only(), "begin"_a = true, "progress"_a = nb::none(), "See cephalo.patch.");
}

}  // namespace cephalo::python
