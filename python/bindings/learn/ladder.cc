#include "cephalo/learn/ladder.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <new>
#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/spellings.h"
#include "bindings/attention/attend.h"
#include "bindings/attention/multi_head.h"
#include "bindings/attention/trace.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

// The rungs as Python classes; what they do is the layer's.
struct SelfLayer : Layer {
  using Layer::Layer;
};
struct CausalLayer : Layer {
  using Layer::Layer;
};
struct WrapperLayer : Layer {
  using Layer::Layer;
};
struct EasyLayer : Layer {
  using Layer::Layer;
};
struct FastLayer : Layer {
  using Layer::Layer;
};

AnyArray simple_python(const AnyArray& x) {
  const ArrayIn input(x, "simple_attention", "x");
  SimpleAttention result;
  {
    const WithoutGil released;
    result = simple_attention(input);
  }
  return nb::borrow<AnyArray>(
      ResultType("SimpleAttention")(to_python(std::move(result.context), input.kind()),
                                    to_python(std::move(result.weights), input.kind())));
}

nb::dict trace_simple(const AnyArray& x) {
  const ArrayIn input(x, "simple_attention", "x");
  return trace_dict(trace_simple_attention(input), input.kind());
}

void bind_simple(nb::module_& m) {
  m.def("simple_attention", &simple_python, "x"_a,
        "Rung 1: weights = softmax(x x^T), context = weights x, as (context, weights).\n"
        "x: [tokens, d] or [batch, tokens, d]");
  m.def("trace_simple_attention", &trace_simple, "x"_a, "Rung 1 with every step kept: a dict.");
}

void bind_one_head(nb::module_& m) {
  nb::class_<SelfLayer, Layer>(m, "SelfAttention", "Rung 2: one head, nothing hidden.")
      .def(
          "__init__",
          [](SelfLayer* self, dim_t d_in, dim_t d_out, bool qkv_bias, const nb::object& seed,
             const std::string& form, const nb::object& dtype) {
            constexpr const char* kName = "SelfAttention";
            const SelfAttentionOptions o{.d_in = d_in,
                                         .d_out = d_out,
                                         .qkv_bias = qkv_bias,
                                         .form = form_of(form, kName),
                                         .dtype = dtype_of(dtype, kName)};
            new (self) SelfLayer(make_rung<SelfAttention>(o, SeedArgument(seed, kName)));
          },
          "d_in"_a, "d_out"_a, "qkv_bias"_a = false, nb::kw_only(), "seed"_a = nb::none(),
          "form"_a = "separate", "dtype"_a = "float32");
  nb::class_<CausalLayer, Layer>(m, "CausalAttention",
                                 "Rung 3: one head, the future hidden, dropout.")
      .def(
          "__init__",
          [](CausalLayer* self, dim_t d_in, dim_t d_out, dim_t context_length, double dropout,
             bool qkv_bias, const nb::object& seed, const std::string& dropout_stream,
             const nb::object& dtype) {
            constexpr const char* kName = "CausalAttention";
            const CausalAttentionOptions o{.d_in = d_in,
                                           .d_out = d_out,
                                           .context_length = context_length,
                                           .dropout = dropout,
                                           .qkv_bias = qkv_bias,
                                           .dropout_stream = stream_of(dropout_stream, kName),
                                           .dtype = dtype_of(dtype, kName)};
            new (self) CausalLayer(make_rung<CausalAttention>(o, SeedArgument(seed, kName)));
          },
          "d_in"_a, "d_out"_a, "context_length"_a, "dropout"_a, "qkv_bias"_a = false, nb::kw_only(),
          "seed"_a = nb::none(), "dropout_stream"_a = "counter", "dtype"_a = "float32");
  m.attr("CausalSelfAttention") = m.attr("CausalAttention");
}

void bind_wrapper(nb::module_& m) {
  nb::class_<WrapperLayer, Layer>(m, "HeadWrapper",
                                  "Rung 4: rung-3 heads side by side, num_heads * d_out wide.")
      .def(
          "__init__",
          [](WrapperLayer* self, dim_t d_in, dim_t d_out, dim_t context_length, double dropout,
             dim_t num_heads, bool qkv_bias, bool out_proj, const nb::object& seed,
             const std::string& dropout_stream, const nb::object& dtype) {
            constexpr const char* kName = "HeadWrapper";
            const HeadWrapperOptions o{.d_in = d_in,
                                       .d_out = d_out,
                                       .context_length = context_length,
                                       .dropout = dropout,
                                       .num_heads = num_heads,
                                       .qkv_bias = qkv_bias,
                                       .out_proj = out_proj,
                                       .dropout_stream = stream_of(dropout_stream, kName),
                                       .dtype = dtype_of(dtype, kName)};
            new (self) WrapperLayer(make_rung<HeadWrapper>(o, SeedArgument(seed, kName)));
          },
          "d_in"_a, "d_out"_a, "context_length"_a, "dropout"_a, "num_heads"_a, "qkv_bias"_a = false,
          "out_proj"_a = false, nb::kw_only(), "seed"_a = nb::none(),
          "dropout_stream"_a = "counter", "dtype"_a = "float32");
}

void bind_bidirectional(nb::module_& m) {
  nb::class_<EasyLayer, Layer>(m, "EasyMultiHeadAttention",
                               "Rung 6: no mask, projections with bias.")
      .def(
          "__init__",
          [](EasyLayer* self, dim_t d_model, dim_t num_heads, const nb::object& seed,
             const nb::object& dtype) {
            constexpr const char* kName = "EasyMultiHeadAttention";
            const EasyMultiHeadAttentionOptions o{
                .d_model = d_model, .num_heads = num_heads, .dtype = dtype_of(dtype, kName)};
            new (self) EasyLayer(make_rung<EasyMultiHeadAttention>(o, SeedArgument(seed, kName)));
          },
          "d_model"_a = 8, "num_heads"_a = 2, nb::kw_only(), "seed"_a = nb::none(),
          "dtype"_a = "float32");
  m.attr("MultiHeadSelfAttention") = m.attr("EasyMultiHeadAttention");
  nb::class_<FastLayer, Layer>(m, "FastMultiHeadAttention",
                               "Rung 7: one joined projection with bias. The only layer that takes "
                               "a plain array as a mask, layer(x, a): 0 = hidden.")
      .def(
          "__init__",
          [](FastLayer* self, dim_t d_model, dim_t num_heads, const nb::object& seed,
             const nb::object& dtype) {
            constexpr const char* kName = "FastMultiHeadAttention";
            const FastMultiHeadAttentionOptions o{
                .d_model = d_model, .num_heads = num_heads, .dtype = dtype_of(dtype, kName)};
            new (self) FastLayer(make_rung<FastMultiHeadAttention>(o, SeedArgument(seed, kName)));
          },
          "d_model"_a, "num_heads"_a, nb::kw_only(), "seed"_a = nb::none(), "dtype"_a = "float32")
      .def(
          "__call__",
          [](nb::handle self, const AnyArray& x, const AnyArray& mask, const nb::kwargs& others) {
            return nb::type<Layer>().attr("__call__")(self, x, "mask"_a = mask, **others);
          },
          "x"_a, "mask"_a = nb::none(), "others"_a,
          "layer(x, mask=None), as in the class of that name; otherwise as in MultiHeadAttention.");
}

}  // namespace

void bind_ladder(nb::module_& m) {
  bind_simple(m);
  bind_one_head(m);
  bind_wrapper(m);
  bind_bidirectional(m);
}

}  // namespace cephalo::python
