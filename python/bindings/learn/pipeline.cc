#include "cephalo/learn/pipeline.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/text.h"
#include "bindings/attention/multi_head.h"
#include "bindings/attention/trace.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

struct TextPipeline {
  Pipeline steps;
};

TextPipeline pipeline_python(const nb::object& text, const std::string& size,
                             std::optional<dim_t> d_in, std::optional<dim_t> d_out,
                             std::optional<dim_t> context_length, std::optional<dim_t> num_heads,
                             std::optional<bool> qkv_bias, std::uint64_t seed) {
  const std::string words = TextIn(text, "pipeline", "text").copy();
  PipelineOptions options{.layer = preset(size), .seed = seed};
  options.layer.d_in = d_in.value_or(options.layer.d_in);
  options.layer.d_out = d_out.value_or(options.layer.d_out);
  options.layer.context_length = context_length.value_or(options.layer.context_length);
  options.layer.num_heads = num_heads.value_or(options.layer.num_heads);
  options.layer.qkv_bias = qkv_bias.value_or(options.layer.qkv_bias);
  const WithoutGil released;
  return {pipeline(words, options)};
}

nb::dict trace(const TextPipeline& self) {
  Trace steps;
  {
    const WithoutGil released;
    steps = self.steps.trace();
  }
  return trace_dict(std::move(steps), kind_without_caller(DType::f32));
}

nb::list tokens(const TextPipeline& self) {
  nb::list list;
  for (const std::string& token : self.steps.embedded.tokens) list.append(to_str(token));
  return list;
}

// One of its tensors as a read-only array.
template <typename Get>
auto tensor(Get get) {
  return [get](nb::handle self) {
    return borrowed_to_python(get(nb::cast<const TextPipeline&>(self).steps), self);
  };
}

}  // namespace

void bind_pipeline(nb::module_& m) {
  using View = TensorView;
  nb::class_<TextPipeline>(m, "Pipeline", "A text on its way through rung 8; every tensor is kept.")
      .def_prop_ro("tokens", &tokens, nb::sig("def tokens(self) -> list[str]"),
                   "Words and punctuation.")
      .def_prop_ro("ids", tensor([](const Pipeline& p) -> View { return p.embedded.ids; }),
                   "[1, tokens], int64: indices into the text's sorted words")
      .def_prop_ro("token_embeddings",
                   tensor([](const Pipeline& p) -> View { return p.embedded.token_embeddings; }),
                   "[1, tokens, d_in]")
      .def_prop_ro("position_embeddings",
                   tensor([](const Pipeline& p) -> View { return p.embedded.position_embeddings; }),
                   "[tokens, d_in]")
      .def_prop_ro("x", tensor([](const Pipeline& p) -> View { return p.embedded.x; }),
                   "[1, tokens, d_in], the sum of both")
      .def_prop_ro("context", tensor([](const Pipeline& p) -> View { return p.context; }),
                   "[1, tokens, d_out]")
      .def_prop_ro(
          "layer", [](const TextPipeline& p) { return copy_of(p.steps.layer); },
          "The attention layer, in eval mode: a copy.")
      .def("trace", &trace, "Every step from ids to context vectors: a dict of arrays in order.")
      .def("__repr__", [](const TextPipeline& p) {
        const auto& o = p.steps.layer.options();
        return format_text("Pipeline({} tokens, d_in={}, d_out={}, num_heads={})",
                           p.steps.embedded.tokens.size(), o.d_in, o.d_out, o.num_heads);
      });
  m.def("pipeline", &pipeline_python, "text"_a, "preset"_a = "gpt2-small", nb::kw_only(),
        "d_in"_a = nb::none(), "d_out"_a = nb::none(), "context_length"_a = nb::none(),
        "num_heads"_a = nb::none(), "qkv_bias"_a = nb::none(), "seed"_a = 123,
        R"(Rung 8: text -> tokens -> token + position embeddings -> rung 5 -> context vectors.

preset: sizes of a known model's layer (gpt2-small, ..., gpt3); the others instead of those.
seed: of embeddings and layer, in that order, as torch.manual_seed.)");
}

}  // namespace cephalo::python
