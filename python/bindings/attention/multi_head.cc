#include "bindings/attention/multi_head.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/spellings.h"
#include "bindings/attention/call.h"
#include "bindings/attention/gradients.h"
#include "bindings/attention/trace.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "MultiHeadAttention";

// rotary=: None, True, or a Rotary that says more.
std::optional<Rotary> rotary_of(const nb::object& rotary) {
  if (rotary.is_none()) return std::nullopt;
  if (nb::isinstance<Rotary>(rotary)) return nb::cast<Rotary>(rotary);
  if (nb::isinstance<nb::bool_>(rotary)) {
    return nb::cast<bool>(rotary) ? std::optional(Rotary{}) : std::nullopt;
  }
  throw nb::type_error("MultiHeadAttention: rotary must be None, True or a Rotary");
}

void construct(Layer* self, dim_t d_in, dim_t d_out, dim_t context_length, double dropout,
               dim_t num_heads, bool qkv_bias, dim_t num_kv_heads, dim_t d_kv, dim_t v_dim,
               bool out_proj, bool out_bias, bool causal, const nb::object& rotary,
               const nb::object& seed, const std::string& form, const std::string& dropout_stream,
               const nb::object& dtype) {
  MultiHeadAttentionOptions options{.d_in = d_in,
                                    .d_out = d_out,
                                    .context_length = context_length,
                                    .dropout = dropout,
                                    .num_heads = num_heads,
                                    .qkv_bias = qkv_bias,
                                    .num_kv_heads = num_kv_heads,
                                    .d_kv = d_kv,
                                    .v_dim = v_dim,
                                    .out_proj = out_proj,
                                    .out_bias = out_bias,
                                    .causal = causal,
                                    .rotary = rotary_of(rotary),
                                    .form = form_of(form, kName),
                                    .dropout_stream = stream_of(dropout_stream, kName),
                                    .dtype = dtype_of(dtype, kName)};
  new (self) Layer(make_rung<MultiHeadAttention>(options, SeedArgument(seed, kName)));
}

AnyArray call(const Layer& self, const AnyArray& x, const std::optional<AnyArray>& kv,
              const AnyArray& mask, const nb::object& cache, const nb::object& generator,
              std::optional<std::uint64_t> number, std::vector<dim_t> counts,
              const std::string& engine, const std::optional<std::string>& require,
              std::optional<int> threads, const std::optional<AnyArray>& out) {
  LayerCall ready(self, x, kv, mask, generator, number);
  ready.use_cache(cache, std::move(counts));
  ready.use_engine(engine, require, threads);
  if (out) {
    const ArrayOut memory(*out, self.layer->rung(), "out");
    ready.run([&](const MultiHeadAttention& layer, const TensorView& input, const CallOptions& o) {
      layer.forward_into(input, memory.view(), o);
    });
    return *out;
  }
  Tensor y = ready.run([](const MultiHeadAttention& layer, const TensorView& input,
                          const CallOptions& o) { return layer(input, o); });
  return to_python(std::move(y), ready.x().kind());
}

nb::dict trace(const Layer& self, const AnyArray& x, const std::optional<AnyArray>& kv,
               const AnyArray& mask, const nb::object& generator,
               std::optional<std::uint64_t> number) {
  LayerCall ready(self, x, kv, mask, generator, number);
  Trace steps = ready.run([](const MultiHeadAttention& layer, const TensorView& input,
                             const CallOptions& o) { return layer.trace(input, o); });
  return trace_dict(std::move(steps), ready.x().kind());
}

// Read-only arrays over the layer's own memory, which they keep.
nb::dict parameters(nb::handle self) {
  const auto& layer = nb::cast<const Layer&>(self);
  nb::dict named;
  for (const NamedParameter& parameter : layer.layer->parameters()) {
    named[parameter.name.c_str()] = borrowed_to_python(parameter.value, self);
  }
  return named;
}

void update(Layer& self, const std::string& name, const AnyArray& value) {
  const ArrayIn numbers(value, self.layer->rung(), name.c_str());
  const WithoutGil released;
  const std::unique_lock turn(self.turn);
  self.layer->update(name, numbers);
}

// The book's buffer: 1 where a query may not look. [context_length, context_length]
AnyArray mask_buffer(const Layer& self) {
  const MultiHeadAttentionOptions& o = self.layer->options();
  if (!o.causal || o.context_length == 0) throw nb::attribute_error("mask");
  Tensor mask = Tensor::empty({o.context_length, o.context_length}, DType::f32);
  auto* number = mask.mutable_data_as<float>();
  for (dim_t i = 0; i < o.context_length; ++i) {
    for (dim_t j = 0; j < o.context_length; ++j) *number++ = j > i ? 1.0F : 0.0F;
  }
  return to_python(std::move(mask), kind_without_caller(DType::f32));
}

// Something that changes the layer, once nobody is calling it.
template <typename Change>
auto changing(Change change) {
  return [change](Layer& self) -> Layer& {
    const WithoutGil released;
    const std::unique_lock turn(self.turn);
    change(*self.layer);
    return self;
  };
}

std::string text_of(const Rotary& rotary) {
  return format_text("Rotary(interleaved={}, base={})", rotary.interleaved ? "True" : "False",
                     rotary.base);
}

std::string text_of(const Layer& self) {
  const MultiHeadAttentionOptions& o = self.layer->options();
  return format_text(
      "{}(d_in={}, d_out={}, context_length={}, dropout={}, num_heads={}{}, seed={})",
      self.layer->rung(), o.d_in, o.d_out, o.context_length, o.dropout, o.num_heads,
      o.rotary ? ", rotary=" + text_of(*o.rotary) : "", self.layer->seed());
}

void bind_use(nb::class_<Layer>& layer) {
  layer
      .def("__call__", &call, "x"_a, "kv"_a = nb::none(), "mask"_a = nb::none(),
           "cache"_a = nb::none(), "generator"_a = nb::none(), "call"_a = nb::none(), nb::kw_only(),
           "counts"_a = std::vector<dim_t>(), "engine"_a = "auto", "require"_a = nb::none(),
           "threads"_a = nb::none(), "out"_a = nb::none(),
           R"(x: [batch, tokens, d_in] or [tokens, d_in] -> the same rank, d_out wide, of x's kind.

kv: keys and values come from this, [batch, kv_tokens, d_kv]. mask: joined with the layer's own.
cache: x continues its sequences; counts: how many tokens of x belong to each, empty: all.
generator: for the torch dropout streams. call: the number of this call; by default the layer counts.)")
      .def("trace", &trace, "x"_a, "kv"_a = nb::none(), "mask"_a = nb::none(),
           "generator"_a = nb::none(), "call"_a = nb::none(),
           "The same computation, every step kept: a dict of arrays in order, x ... output.")
      .def("train", changing([](MultiHeadAttention& l) { l.train(); }), nb::rv_policy::none,
           "Turns dropout on. A new layer is in this mode.")
      .def("eval", changing([](MultiHeadAttention& l) { l.eval(); }), nb::rv_policy::none,
           "Turns dropout off.")
      .def("prepare", changing([](MultiHeadAttention& l) { l.prepare(); }), nb::rv_policy::none,
           "Lays the parameters out once for all later calls; an update discards that copy.")
      .def("update", &update, "name"_a, "value"_a,
           "Sets one parameter; the shape must be the same.")
      .def("__repr__", [](const Layer& l) { return text_of(l); });
}

void bind_facts(nb::class_<Layer>& layer) {
  layer
      .def_prop_ro("parameters", &parameters,
                   nb::sig("def parameters(self) -> dict[str, typing.Any]"),
                   "name -> read-only array over the layer's own memory")
      .def_prop_ro(
          "mask", &mask_buffer,
          "The book's buffer, [context_length, context_length]: 1 above the diagonal, where\n"
          "a query may not look. cephalo itself does not use it.")
      .def_prop_ro("parameter_count", [](const Layer& l) { return l.layer->parameter_count(); })
      .def_prop_ro("training", [](const Layer& l) { return l.layer->training(); })
      .def_prop_ro("prepared", [](const Layer& l) { return l.layer->prepared(); })
      .def_prop_ro("seed", [](const Layer& l) { return l.layer->seed(); })
      .def_prop_ro(
          "version", [](const Layer& l) { return l.layer->version(); }, "grows with every update")
      .def_prop_ro("head_dim", [](const Layer& l) { return l.layer->head_dim(); })
      .def_prop_ro("num_heads", [](const Layer& l) { return l.layer->options().num_heads; })
      .def_prop_ro("num_kv_heads",
                   [](const Layer& l) {
                     const auto& o = l.layer->options();
                     return o.num_kv_heads == 0 ? o.num_heads : o.num_kv_heads;
                   })
      .def_prop_ro("d_in", [](const Layer& l) { return l.layer->options().d_in; })
      .def_prop_ro("d_out", [](const Layer& l) { return l.layer->options().d_out; })
      .def_prop_ro("context_length",
                   [](const Layer& l) { return l.layer->options().context_length; })
      .def_prop_ro("dropout", [](const Layer& l) { return l.layer->options().dropout; })
      .def_prop_ro("causal", [](const Layer& l) { return l.layer->options().causal; })
      .def_prop_ro(
          "rotary", [](const Layer& l) { return l.layer->options().rotary; }, "A Rotary, or None.")
      .def_prop_ro("form", [](const Layer& l) { return name(l.layer->options().form); })
      .def_prop_ro("dtype", [](const Layer& l) { return name(l.layer->options().dtype); });
}

}  // namespace

std::unique_ptr<Layer> copy_of(const MultiHeadAttention& layer) {
  MultiHeadAttentionOptions options = layer.options();
  options.generator = nullptr;
  options.seed = layer.seed();
  return std::make_unique<Layer>(std::make_shared<MultiHeadAttention>(
      options, [&](const std::string& name, const MutableTensorView& to) {
        to.copy_from(layer.parameter(name));
      }));
}

SeedArgument::SeedArgument(nb::handle seed, const char* layer) {
  if (seed.is_none()) return;
  if (nb::isinstance<Generator>(seed)) {
    generator = nb::cast<Generator*>(seed);
    return;
  }
  std::uint64_t value = 0;
  if (!nb::try_cast(seed, value)) {
    throw nb::type_error(
        format_text("{}: seed must be None, a number from 0 to 2^64 - 1 or a TorchGenerator", layer)
            .c_str());
  }
  number = value;
}

void bind_multi_head(nb::module_& m) {
  nb::class_<Rotary>(m, "Rotary", "Rotary positions of q and k.")
      .def(
          "__init__",
          [](Rotary* self, bool interleaved, double base) {
            new (self) Rotary{.interleaved = interleaved, .base = base};
          },
          "interleaved"_a = false, "base"_a = 10000.0,
          "interleaved: pairs (2k, 2k + 1) instead of (k, k + head_dim / 2).")
      .def_ro("interleaved", &Rotary::interleaved)
      .def_ro("base", &Rotary::base)
      .def("__repr__", [](const Rotary& r) { return text_of(r); });
  nb::class_<Layer> layer(m, kName,
                          "Rung 5, and the one layer behind all rungs: project, split, transpose, "
                          "attend, concat, project. Any number of threads may call it.");
  layer.def("__init__", &construct, "d_in"_a, "d_out"_a, "context_length"_a, "dropout"_a,
            "num_heads"_a, "qkv_bias"_a = false, nb::kw_only(), "num_kv_heads"_a = 0, "d_kv"_a = 0,
            "v_dim"_a = 0, "out_proj"_a = true, "out_bias"_a = true, "causal"_a = true,
            "rotary"_a = nb::none(), "seed"_a = nb::none(), "form"_a = "separate",
            "dropout_stream"_a = "counter", "dtype"_a = "float32",
            R"(The book's arguments; d_out is split into num_heads heads of d_out / num_heads.

By name: num_kv_heads (0: num_heads), d_kv (width of a second input; 0: d_in), v_dim (0: head_dim),
out_proj, out_bias, causal, rotary (True or a Rotary), seed (a number, a TorchGenerator, or None:
random), form (names of the parameters), dropout_stream ("counter", "torch", "torch_mkl"), dtype.)");
  bind_use(layer);
  bind_facts(layer);
  bind_training(layer);
}

}  // namespace cephalo::python
