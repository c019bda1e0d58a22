#include "bindings/model/gpt.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <new>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/callback.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/spellings.h"
#include "bindings/attention/multi_head.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt_options.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Gpt";

struct ModelCache {
  explicit ModelCache(GptCache&& made) : stored(std::move(made)) {}
  GptCache stored;
  Turn turn{"GptCache"};
};

void construct(Model* self, const nb::args& positional, nb::kwargs keywords) {
  const GptOptions options = options_from(positional, keywords);
  std::optional<Bpe> tokenizer;
  if (keywords.contains("tokenizer")) {
    if (!nb::try_cast(keywords["tokenizer"], tokenizer)) {
      throw nb::type_error("Gpt: tokenizer must be a Bpe or None");
    }
    nb::del(keywords["tokenizer"]);
  }
  for (const auto [key, value] : keywords) {
    throw nb::type_error(format_text("Gpt: unknown argument {}; known are {} and tokenizer",
                                     nb::str(key).c_str(), option_names())
                             .c_str());
  }
  const WithoutGil released;
  new (self) Model(Gpt(options), std::move(tokenizer));
}

nb::object preset_model(const std::string& size, const nb::kwargs& options) {
  nb::dict all = options_dict(gpt_preset(size));
  for (const auto [key, value] : options) all[key] = value;
  return nb::type<Model>()(**all);
}

AnyArray call(const Model& self, const nb::object& ids, ModelCache* cache, bool last_only,
              std::optional<int> threads) {
  const IdsIn tokens(ids, kName, "ids");
  GptCall options{.last_only = last_only, .threads = threads.value_or(0)};
  std::unique_lock<Turn> cache_turn;
  Tensor logits = reading(self, [&](const Gpt& gpt) {
    if (cache != nullptr) {
      cache_turn = std::unique_lock(cache->turn);
      options.cache = &cache->stored;
    }
    return gpt(tokens, options);
  });
  return to_python(std::move(logits), tokens.kind());
}

nb::list attention_inputs(const Model& self, const nb::object& ids, std::optional<int> threads) {
  const IdsIn tokens(ids, kName, "ids");
  std::vector<Tensor> inputs;
  GptCall options{.last_only = true, .threads = threads.value_or(0)};
  options.on_attention = [&](dim_t, const TensorView& x) { inputs.push_back(Tensor::copy(x)); };
  static_cast<void>(reading(self, [&](const Gpt& gpt) { return gpt(tokens, options); }));
  nb::list arrays;
  for (Tensor& x : inputs) arrays.append(to_python(std::move(x), tokens.kind()));
  return arrays;
}

// What is done to it is not done to the model.
std::unique_ptr<Layer> attention(const Model& self, dim_t layer) {
  return reading(self, [&](const Gpt& gpt) { return copy_of(gpt.attention(layer)); });
}

nb::dict parameters(nb::handle self) {
  nb::dict named;
  for (const GptParameter& p : nb::cast<const Model&>(self).gpt.parameters()) {
    named[p.name.c_str()] = borrowed_to_python(p.value, self);
  }
  return named;
}

nb::dict parameter_kinds(const Model& self) {
  nb::dict named;
  for (const GptParameter& p : self.gpt.parameters()) named[p.name.c_str()] = word_of(p.kind);
  return named;
}

void update(Model& self, const std::string& parameter, const AnyArray& value) {
  const ArrayIn numbers(value, kName, parameter.c_str());
  const WithoutGil released;
  const std::unique_lock turn(self.turn);
  self.gpt.update(parameter, numbers);
}

void update_all(nb::handle self, const nb::object& change) {
  auto& model = nb::cast<Model&>(self);
  const Callback changes(change, kName, "change");
  if (!changes.given()) throw nb::type_error("Gpt: change must be a function");
  const WithoutGil released;
  const std::unique_lock turn(model.turn);
  model.gpt.update_all([&](std::size_t, const std::string& parameter, const MutableTensorView& p) {
    const WithGil held;
    changes(parameter, borrowed_to_python(p, self));
  });
}

Model& prepare(Model& self) {
  const WithoutGil released;
  const std::unique_lock turn(self.turn);
  self.gpt.prepare();
  return self;
}

nb::dict memory(const Model& self, dim_t batch, dim_t tokens) {
  const GptMemory bytes = memory_bytes(self.gpt.options(), batch, tokens);
  nb::dict named;
  named["parameters"] = bytes.parameters;
  named["gradients"] = bytes.gradients;
  named["optimiser"] = bytes.optimiser;
  named["pass"] = bytes.pass;
  named["total"] = bytes.total();
  return named;
}

std::string text_of(const Model& self) {
  return format_text("Gpt({}), {} parameters", options_text(self.gpt.options()),
                     self.gpt.parameter_count());
}

void bind_cache(nb::module_& m) {
  const auto tokens = [](ModelCache& c) {
    const WithoutGil released;
    const std::shared_lock turn(c.turn);
    return c.stored.tokens();
  };
  nb::class_<ModelCache>(m, "GptCache", "Keys and values of every layer, made by gpt.new_cache.")
      .def_prop_ro("tokens", tokens, "The number of tokens it holds of each sequence.")
      .def("__len__", tokens)
      .def("clear", [](ModelCache& c) {
        const WithoutGil released;
        const std::unique_lock turn(c.turn);
        c.stored.clear();
      });
}

void bind_use(nb::class_<Model>& model) {
  model
      .def("__call__", &call, "ids"_a, "cache"_a = nb::none(), nb::kw_only(), "last_only"_a = false,
           "threads"_a = nb::none(),
           R"(ids: [batch, tokens] or [tokens] -> logits: [batch, tokens, vocab_size] or
[tokens, vocab_size], of the kind of ids; without dropout.

cache: ids continue its sequences and are added to it. last_only: only the logits of the last token.)")
      .def(
          "new_cache",
          [](const Model& self, dim_t batch) {
            return std::make_unique<ModelCache>(self.gpt.new_cache(batch));
          },
          "batch"_a = 1, "An empty GptCache for this many sequences.")
      .def("attention", &attention, "layer"_a,
           "One attention layer as a MultiHeadAttention: a copy, in eval mode.")
      .def("attention_inputs", &attention_inputs, "ids"_a, "threads"_a = nb::none(),
           "The input of each attention layer: a list of [batch, tokens, d_model], so that\n"
           "gpt.attention(l).trace(gpt.attention_inputs(ids)[l]) shows it at work.")
      .def("update", &update, "name"_a, "value"_a,
           "Sets one parameter; the shape must be the same.")
      .def("update_all", &update_all, "change"_a,
           "Calls change(name, parameter) for each parameter, an array over the model's own memory "
           "that may be\n"
           "written to during the call. The version grows by one.")
      .def("prepare", &prepare, nb::rv_policy::none,
           "Lays the parameters out once for all later calls; an update discards that copy.")
      .def(
          "memory_bytes", &memory, "batch"_a, "tokens"_a,
          "How many bytes training takes: a dict of parameters, gradients, optimiser, pass, total.")
      .def("__repr__", &text_of);
}

void bind_facts(nb::class_<Model>& model) {
  model
      .def_prop_ro(
          "options", [](const Model& m) { return options_dict(m.gpt.options()); },
          "The arguments of the constructor: Gpt(**gpt.options) is a new model of this shape.")
      .def_prop_ro("parameters", &parameters,
                   nb::sig("def parameters(self) -> dict[str, typing.Any]"),
                   "name -> read-only array over the model's own memory, [out, in] for matrices")
      .def_prop_ro("parameter_kinds", &parameter_kinds,
                   nb::sig("def parameter_kinds(self) -> dict[str, str]"),
                   "name -> matrix, bias, norm or embedding; weight decay is for matrices.")
      .def_prop_ro("parameter_count", [](const Model& m) { return m.gpt.parameter_count(); })
      .def_prop_ro(
          "version",
          [](const Model& m) { return reading(m, [](const Gpt& g) { return g.version(); }); },
          "grows with every update")
      .def_rw("name", &Model::name, "The name of its folder, shown on pages.");
}

}  // namespace

void Model::prepare_once() {
  {
    const std::shared_lock reads(turn);
    if (gpt.attention(0).prepared()) return;
  }
  const std::unique_lock changes(turn);
  gpt.prepare();
}

void bind_gpt(nb::module_& m) {
  bind_cache(m);
  m.def("gpt_preset_names", &gpt_preset_names, "The sizes that Gpt.preset knows.");
  nb::class_<Model> model(m, kName,
                          "A GPT: token and position embeddings, pre-norm blocks of attention and "
                          "MLP, a last norm and the output head. Any number of threads may call "
                          "it.");
  const std::string signature = format_text(
      "def __init__(self, {}, tokenizer: Bpe | None = None) -> None", options_signature());
  model.def("__init__", &construct, nb::sig(signature.c_str()),
            R"(Matrices and embeddings are drawn from N(0, 0.02), biases are 0, norms 1.

num_kv_heads: 0 for num_heads; if fewer, neighbouring heads share them. d_mlp: 0 for 4 * d_model.
dropout: on embeddings, weights and what a layer adds, in training only.
tied_head: the output head is the token embedding. positions: "learned" or "rotary" (rotary: a Rotary
with the details). activation: "gelu_tanh" (GPT-2's) or "gelu_erf". seed: None for random.
tokenizer: a Bpe, so that text can be given instead of ids.)");
  model.def_static(
      "preset", &preset_model, "name"_a, "options"_a,
      nb::sig("def preset(name: str, **options: typing.Any) -> Gpt"),
      "A new model in one of the sizes of GPT-2 or GPT-3: gpt2 (gpt2-small, 124M), ..., gpt2-xl,\n"
      "gpt3-small, ..., gpt3. options: the constructor's, to override those of the preset.");
  bind_use(model);
  bind_options(model);
  bind_facts(model);
  bind_gpt_training(model);
  bind_gpt_text(model);
}

}  // namespace cephalo::python
