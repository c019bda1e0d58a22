#include "cephalo/view/head_trace.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt.h"
#include "bindings/view/look_model.h"
#include "cephalo/core/fail.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "trace";

// A trace with the model that it was made by, which its JSON names.
struct TracedHead {
  nb::object model;
  std::uint64_t version;
  HeadTrace trace;
};

TracedHead trace_python(const nb::object& model_object, const std::vector<nb::object>& texts,
                        dim_t layer, dim_t head, std::optional<dim_t> token, bool begin,
                        dim_t sequence, std::optional<int> threads) {
  const auto& model = nb::cast<const Model&>(model_object);
  std::vector<std::string> copies;
  for (const nb::object& text : texts) copies.push_back(TextIn(text, kName, "text").copy());
  const Bpe words = model.words(kName);
  const LookModel seen = look_model(model, words);
  const HeadTraceOptions options{.layer = layer,
                                 .head = head,
                                 .token = token,
                                 .begin = begin,
                                 .sequence = sequence,
                                 .threads = threads.value_or(0)};
  std::uint64_t version = 0;
  HeadTrace trace = reading(model, [&](const Gpt& gpt) {
    version = gpt.version();
    return trace_head(seen, copies, options);
  });
  return {model_object, version, std::move(trace)};
}

std::string json(const TracedHead& self) {
  const auto& model = nb::cast<const Model&>(self.model);
  const Bpe words = model.words(kName);
  const LookModel seen = look_model(model, words);
  return reading(model, [&](const Gpt& gpt) {
    require(gpt.version() == self.version,
            "trace: the model has changed since (version {} then, {} now)", self.version,
            gpt.version());
    return to_json(self.trace, seen);
  });
}

// Names of a text's tokens, before it is traced.
std::vector<std::string> token_names(const Model& model, const nb::object& text, bool begin) {
  const Bpe words = model.words(kName);
  const LookModel seen = look_model(model, words);
  std::vector<std::string> names;
  const auto ids = look_ids(seen, TextIn(text, kName, "text").copy(), begin, kName);
  for (LookToken& token : look_tokens(seen, ids)) names.push_back(std::move(token.label));
  return names;
}

nb::list keys(const TracedHead& self) {
  const nb::object type = nb::module_::import_("cephalo._head_trace").attr("TracedKey");
  nb::list list;
  for (std::size_t j = 0; j < self.trace.keys.size(); ++j) {
    const TracedKey& key = self.trace.keys[j];
    list.append(type(j, key.product, key.score, key.weight, key.adds));
  }
  return list;
}

// One of its tensors as a read-only array.
template <typename Get>
auto tensor(Get get) {
  return [get](nb::handle self) {
    return borrowed_to_python(get(nb::cast<const TracedHead&>(self).trace), self);
  };
}

template <typename Get>
auto number(Get get) {
  return [get](const TracedHead& self) { return get(self.trace); };
}

}  // namespace

void bind_head_trace(nb::module_& m) {
  using View = TensorView;
  nb::class_<TracedHead>(m, "_TracedHead")
      .def_prop_ro("model", [](const TracedHead& t) { return t.model; })
      .def_prop_ro("text", [](const TracedHead& t) { return to_str(t.trace.text); })
      .def_prop_ro("tokens",
                   [](const TracedHead& t) {
                     std::vector<std::string> names;
                     for (const LookToken& token : t.trace.tokens) names.push_back(token.label);
                     return names;
                   })
      .def_prop_ro("name", number([](const HeadTrace& t) { return t.model; }))
      .def_prop_ro("begun", number([](const HeadTrace& t) { return t.begun; }))
      .def_prop_ro("training_note", number([](const HeadTrace& t) {
                     return training_note(t.trained_context_length, std::ssize(t.tokens));
                   }))
      .def_prop_ro("layer", number([](const HeadTrace& t) { return t.layer; }))
      .def_prop_ro("head", number([](const HeadTrace& t) { return t.head; }))
      .def_prop_ro("token", number([](const HeadTrace& t) { return t.token; }))
      .def_prop_ro("rotary", number([](const HeadTrace& t) { return t.rotary.has_value(); }))
      .def_prop_ro("scale", number([](const HeadTrace& t) { return t.scale; }))
      .def_prop_ro("q", tensor([](const HeadTrace& t) -> View { return t.q; }))
      .def_prop_ro("k", tensor([](const HeadTrace& t) -> View { return t.k; }))
      .def_prop_ro("v", tensor([](const HeadTrace& t) -> View { return t.v; }))
      .def_prop_ro("context", tensor([](const HeadTrace& t) -> View { return t.context; }))
      .def_prop_ro("keys", &keys)
      .def_prop_ro("worked",
                   [](const TracedHead& t) {
                     nb::list steps;
                     for (const WorkedStep& step : worked_key(t.trace)) {
                       steps.append(nb::make_tuple(step.name, step.text));
                     }
                     return steps;
                   })
      .def_prop_ro("strongest_values",
                   number([](const HeadTrace& t) { return t.strongest_values(); }))
      .def_prop_ro("strongest", number([](const HeadTrace& t) { return t.strongest(); }))
      .def_prop_ro("head_norms", number([](const HeadTrace& t) { return t.head_norms; }))
      .def_prop_ro("shares", number([](const HeadTrace& t) { return t.shares(); }))
      .def_prop_ro("added_norm", number([](const HeadTrace& t) { return t.added_norm; }))
      .def_prop_ro("bias_norm", number([](const HeadTrace& t) { return t.bias_norm; }))
      .def_prop_ro("padded_to", number([](const HeadTrace& t) { return t.padded_to(); }))
      .def_prop_ro("batch",
                   [](const TracedHead& t) {
                     nb::list texts;
                     for (const TracedSequence& one : t.trace.batch) {
                       texts.append(nb::make_tuple(to_str(one.text), one.tokens));
                     }
                     return texts;
                   })
      .def_prop_ro("sequence", number([](const HeadTrace& t) { return t.sequence; }))
      .def("json", &json)
      .def(
          "show",
          [](const TracedHead& t, dim_t top, bool explain) {
            return to_text(t.trace, {.top = top, .explain = explain});
          },
          "top"_a, "explain"_a);
  m.def("_trace_head", &trace_python, "model"_a, "texts"_a, "layer"_a, "head"_a,
        "token"_a = nb::none(), "begin"_a = true, "sequence"_a = 0, "threads"_a = nb::none());
  m.def("_token_names", &token_names, "model"_a, "text"_a, "begin"_a);
}

}  // namespace cephalo::python
