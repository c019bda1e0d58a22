#include "cephalo/effects/sweep.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/callback.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "bindings/effects/kept_pass.h"
#include "cephalo/effects/patching.h"

namespace cephalo::python {
namespace {

// "L3H2,L2H6", a Change, or a list of them.
Changes changes_of(nb::handle given, const std::string& kind, double factor) {
  if (given.is_none()) return {};
  if (nb::isinstance<nb::str>(given)) {
    return parse_changes(nb::cast<std::string>(given), parse_change_kind(kind), factor);
  }
  if (nb::isinstance<Change>(given)) return {nb::cast<Change>(given)};
  Changes list;
  if (!nb::try_cast(given, list)) {
    throw nb::type_error(
        "measure: changes must be a str such as 'L3H2,L2H6', a Change, or a list "
        "of Change");
  }
  return list;
}

// Arguments that every experiment takes.
struct Asked {
  Measures measures;
  SweepOptions options;
  std::optional<ArrayIn> reference_array;
  Tensor reference;

  Asked(const PassOfText& self, const nb::kwargs& given) {
    for (const auto [key, value] : given) set(self, nb::cast<std::string>(key), value);
  }

 private:
  void set(const PassOfText& self, const std::string& key, nb::handle value) {
    if (key == "position") {
      measures.position = position_of(self, nb::cast<dim_t>(value), "measure");
    } else if (key == "logits") {
      if (nb::isinstance<nb::str>(value)) {
        throw nb::type_error("measure: logits must be a list of tokens, as [' Mary', ' John']");
      }
      for (const nb::handle token : value) {
        measures.logits.push_back(token_of(self.model, token, "measure", "logits"));
      }
    } else if (key == "rank") {
      if (!value.is_none()) measures.rank = token_of(self.model, value, "measure", "rank");
    } else if (key == "divergence") {
      measures.divergence = nb::cast<bool>(value);
    } else if (key == "losses") {
      measures.losses = nb::cast<bool>(value);
    } else if (key == "top") {
      measures.top = nb::cast<dim_t>(value);
    } else if (key == "patch_from") {
      if (!value.is_none()) options.patch_from = nb::cast<const PassOfText&>(value).pass.get();
    } else if (key == "reference") {
      set_reference(value);
    } else if (key == "memory") {
      options.memory = nb::cast<std::size_t>(value);
    } else if (key == "threads") {
      options.threads = value.is_none() ? 0 : nb::cast<int>(value);
    } else {
      throw nb::type_error(("measure: unknown argument " + key +
                            "; known are position, logits, rank, divergence, losses, top, "
                            "patch_from, reference, memory, threads")
                               .c_str());
    }
  }

  void set_reference(nb::handle value) {
    if (value.is_none()) return;
    reference_array.emplace(value, "measure", "reference");
    reference = Tensor::copy(reference_array->view(), DType::f64);
    options.reference = &reference;
  }
};

Measured measure_one(const PassOfText& self, const nb::object& changes, const std::string& kind,
                     double factor, const nb::kwargs& rest) {
  const Changes made = changes_of(changes, kind, factor);
  const Asked what(self, rest);
  return asked(
      self, [&](const KeptPass& pass) { return measure(pass, made, what.measures, what.options); });
}

std::vector<Measured> measure_each(const PassOfText& self, const nb::list& experiments,
                                   const std::string& kind, double factor, nb::object progress,
                                   const nb::kwargs& rest) {
  std::vector<Changes> all;
  for (const nb::handle one : experiments) all.push_back(changes_of(one, kind, factor));
  Asked what(self, rest);
  const Callback told(std::move(progress), "measure_each", "progress");
  what.options.progress = [&](std::size_t done, std::size_t count) {
    bool goes_on = true;
    const WithGil held;
    check_signals();
    if (told.given()) {
      told.call([&](const nb::object& answer) { goes_on = !answer.is(nb::handle(Py_False)); }, done,
                count);
    }
    return goes_on;
  };
  return asked(self, [&](const KeptPass& pass) {
    return measure_changes(pass, all, what.measures, what.options);
  });
}

AnyArray patched(const PassOfText& clean, const PassOfText& corrupt, const nb::object& answer,
                 const nb::object& wrong, std::optional<int> threads) {
  constexpr const char* kName = "patch_each";
  const std::int64_t right_id = token_of(corrupt.model, answer, kName, "answer");
  const std::int64_t wrong_id = token_of(corrupt.model, wrong, kName, "wrong");
  Patching p = asked(corrupt, [&](const KeptPass& pass) {
    return patch_each(*clean.pass, pass, right_id, wrong_id, {.threads = threads.value_or(0)});
  });
  return nb::borrow<AnyArray>(ResultType("Patching")(
      p.clean, p.corrupt, p.divided, made(std::move(p.positions)), made(std::move(p.heads))));
}

void bind_change(nb::module_& m) {
  nb::class_<Change>(m, "Change", "A part of a model that an experiment changes, and how.")
      .def("__eq__", [](const Change& a, const Change& b) { return a == b; })
      .def_ro("layer", &Change::layer)
      .def_ro("head", &Change::head, "of a head or an edge")
      .def_ro("query", &Change::query, "of an edge")
      .def_ro("key", &Change::key, "of an edge")
      .def_prop_ro(
          "kind", [](const Change& c) { return name(c.kind); }, "zero, mean, ...")
      .def("__repr__",
           [](const Change& c) { return "Change('" + to_string(c) + "', " + name(c.kind) + ")"; });
  m.def(
      "parse_changes",
      [](const std::string& text, const std::string& kind, double factor) {
        return parse_changes(text, parse_change_kind(kind), factor);
      },
      "text"_a, "kind"_a = "zero", "factor"_a = 1.0,
      "'L3H2', 'L3', 'L3.attention', 'L3.mlp', 'L3H2:12>4' (query 12, key 4), joined by commas.");
  const auto each = [&m](const char* name, auto list, const char* words) {
    m.def(
        name,
        [list](const Model& model, const std::string& kind, double factor) {
          std::vector<Changes> all = list(model.gpt.options(), parse_change_kind(kind));
          for (Changes& changes : all) {
            for (Change& change : changes) change.factor = factor;
          }
          return all;
        },
        "model"_a, "kind"_a = "zero", "factor"_a = 1.0, words);
  };
  each(
      "each_head", [](const GptOptions& o, ChangeKind k) { return each_head(o, k); },
      "One experiment for each head, layer by layer.");
  each(
      "each_pair", [](const GptOptions& o, ChangeKind k) { return each_pair(o, k); },
      "One experiment for each pair of heads.");
  m.def(
      "each_section", [](const Model& model) { return each_section(model.gpt.options()); },
      "model"_a, "One experiment for attention and MLP of each layer: what they add is left out.");
  m.def(
      "each_edge",
      [](const Model& model, dim_t query, const std::string& kind) {
        return each_edge(model.gpt.options(), query, parse_change_kind(kind));
      },
      "model"_a, "query"_a, "kind"_a = "hide",
      "One experiment for each key that a token sees, in each head: layer, head, key.");
}

void bind_measured(nb::module_& m) {
  nb::class_<Measured>(m, "Measured", "What was read off a run; empty for what was not asked for.")
      .def_ro("logits", &Measured::logits, "in the order asked for")
      .def_prop_ro(
          "rank",
          [](const Measured& r) {
            return r.rank < 0 ? std::optional<dim_t>() : std::optional(r.rank);
          },
          "of the token asked for, 0 the likeliest")
      .def_prop_ro(
          "divergence",
          [](const Measured& r) {
            return std::isnan(r.divergence) ? std::optional<double>() : std::optional(r.divergence);
          },
          "KL(unchanged || changed), in nats; None: not asked for")
      .def_ro("losses", &Measured::losses, "of token i + 1, as row i predicted it; in nats")
      .def_prop_ro(
          "top",
          [](const Measured& r) {
            std::vector<std::pair<std::int64_t, double>> top;
            for (const TokenProbability& t : r.top) top.emplace_back(t.id, t.probability);
            return top;
          },
          "(id, probability), the likeliest first");
}

}  // namespace

void bind_sweep(nb::module_& m, nb::class_<PassOfText>& pass) {
  bind_change(m);
  bind_measured(m);
  pass.def("measure", &measure_one, "changes"_a = nb::none(), "kind"_a = "zero", "factor"_a = 1.0,
           "rest"_a,
           "One run under these changes: a str such as 'L3H2,L2H6', a Change or a list of them; "
           "None: the\n"
           "text as it is. kind: of a str: zero, mean, reference-mean, uniform, no-first, patch, "
           "scale (by\nfactor), hide or cut.\n"
           "What is read off: logits=[tokens], rank=token, divergence=True, losses=True, top=5, at "
           "position=-1.\n"
           "patch_from: the KeptPass that patch takes from; reference: see reference_mean.");
  pass.def(
      "measure_each", &measure_each, "experiments"_a, "kind"_a = "zero", "factor"_a = 1.0,
      "progress"_a = nb::none(), "rest"_a,
      "Each experiment by itself -> a list of Measured, each with the bits that measure gives. "
      "Layers\n"
      "below a change and positions before it are computed once for all.\n"
      "progress(done, all): called as experiments end; if it returns False, what is done is "
      "returned.");
  m.def(
      "patch_each", &patched, "clean"_a, "corrupt"_a, "answer"_a, "wrong"_a,
      "threads"_a = nb::none(),
      "What brings the answer of a clean text back into a corrupt one, part by part -> Patching.");
}

}  // namespace cephalo::python
