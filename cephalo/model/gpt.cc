#include "cephalo/model/gpt.h"

#include <cmath>
#include <utility>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/memory_limit.h"
#include "cephalo/core/random.h"
#include "cephalo/core/seed.h"
#include "cephalo/core/views.h"
#include "cephalo/model/gpt_layers.h"

namespace cephalo {
namespace {

constexpr double kInitialDeviation = 0.02;

MultiHeadAttentionOptions attention_options(const GptOptions& o, std::uint64_t seed) {
  MultiHeadAttentionOptions attention{.d_in = o.d_model,
                                      .d_out = o.d_model,
                                      .context_length = o.context_length,
                                      .dropout = o.dropout,
                                      .num_heads = o.num_heads,
                                      .qkv_bias = o.qkv_bias,
                                      .num_kv_heads = o.num_kv_heads,
                                      .seed = seed,
                                      .form = Form::joined,
                                      .dtype = o.dtype};
  if (o.positions == PositionKind::rotary) attention.rotary = o.rotary;
  return attention;
}

Block make_block(const GptOptions& o, std::uint64_t seed) {
  Block block{LayerNorm(o.d_model, o.norm_epsilon, o.dtype),
              MultiHeadAttention(attention_options(o, seed),
                                 [](const std::string&, const MutableTensorView&) {}),
              LayerNorm(o.d_model, o.norm_epsilon, o.dtype),
              Mlp(o.d_model, o.d_mlp, o.activation, o.dtype)};
  block.attention.train();  // whether a call drops anything is the call's to say
  return block;
}

// Refused whole, before the first of many small tensors is allocated.
GptOptions fitting_options(const GptOptions& options) {
  GptOptions checked = checked_options(options, "Gpt");
  const dim_t bytes =
      checked_mul(ParameterList(checked).count(), static_cast<dim_t>(item_size(checked.dtype)));
  if (bytes > physical_memory()) {
    fail(Error::Kind::memory, "Gpt: its parameters need {}", against_memory(bytes));
  }
  return checked;
}

void initialise(GptLayers& model) {
  TorchGenerator generator(model.seed);
  model.change_each([&](const ParameterInfo& info, const MutableTensorView& p) {
    if (info.kind == ParameterKind::bias || info.kind == ParameterKind::norm) {
      p.fill(info.is_bias ? 0.0 : 1.0);
      return;
    }
    Tensor drawn = generator.randn(p.shape());
    float* x = drawn.mutable_data_as<float>();
    for (dim_t k = 0; k < drawn.numel(); ++k) x[k] *= static_cast<float>(kInitialDeviation);
    p.copy_from(drawn);
  });
  model.version = 0;
}

}  // namespace

GptLayers::GptLayers(const GptOptions& o, std::uint64_t seed_)
    : options(o),
      seed(seed_),
      token(Tensor::empty({o.vocab_size, o.d_model}, o.dtype)),
      norm(o.d_model, o.norm_epsilon, o.dtype) {
  options.seed = seed;
  if (o.positions == PositionKind::learned) {
    position = Tensor::empty({o.context_length, o.d_model}, o.dtype);
  }
  blocks.reserve(static_cast<std::size_t>(o.num_layers));
  for (dim_t l = 0; l < o.num_layers; ++l) {
    blocks.push_back(make_block(o, mix_seed(seed, static_cast<std::uint64_t>(l))));
  }
  if (!o.tied_head) head = Tensor::empty({o.vocab_size, o.d_model}, o.dtype);
}

Gpt::Gpt(const GptOptions& options)
    : layers_(std::make_unique<GptLayers>(fitting_options(options),
                                          options.seed ? *options.seed : random_seed())) {
  initialise(*layers_);
}

Gpt::Gpt(const GptOptions& options, const ParameterSource& fill)
    : layers_(std::make_unique<GptLayers>(fitting_options(options), options.seed.value_or(0))) {
  layers_->change_each(
      [&](const ParameterInfo& info, const MutableTensorView& p) { fill(info.name, p); });
  layers_->version = 0;
}

Gpt::Gpt(Gpt&&) noexcept = default;
Gpt& Gpt::operator=(Gpt&&) noexcept = default;
Gpt::~Gpt() = default;

const GptOptions& Gpt::options() const {
  return layers_->options;
}
std::uint64_t Gpt::seed() const {
  return layers_->seed;
}
std::uint64_t Gpt::version() const {
  return layers_->version;
}

const MultiHeadAttention& Gpt::attention(dim_t layer) const {
  require(layer >= 0 && layer < std::ssize(layers_->blocks), "Gpt: layer {} of {} does not exist",
          layer, layers_->blocks.size());
  return layers_->blocks[static_cast<std::size_t>(layer)].attention;
}

GptCache Gpt::new_cache(dim_t batch) const {
  const GptOptions& o = layers_->options;
  GptCache cache;
  for (dim_t l = 0; l < o.num_layers; ++l) {
    cache.layers.push_back(KVCache::growing({batch, o.num_kv_heads, o.head_dim()}, o.dtype));
  }
  return cache;
}

void Gpt::prepare(Prepare what) {
  GptLayers& model = *layers_;
  const bool training = what == Prepare::training;
  const DType steps = model.options.dtype;
  model.packed_mlps.clear();
  for (Block& block : model.blocks) {
    block.attention.prepare(what);
    model.packed_mlps.push_back(block.mlp.pack());
    if (training) block.mlp.pack_for_backward(model.packed_mlps.back());
  }
  model.packed_head.emplace(model.head_weight(), TensorView(), steps);
  model.packed_head_back.reset();
  if (!training) return;
  model.packed_head_back.emplace(transpose(model.head_weight(), 0, 1), TensorView(), steps);
}

dim_t Gpt::parameter_count() const {
  return ParameterList(layers_->options).count();
}

std::vector<GptParameter> Gpt::parameters() const {
  std::vector<GptParameter> list;
  layers_->each_parameter([&](const ParameterInfo& info, const TensorView& value) {
    list.push_back({info.name, info.kind, value});
  });
  return list;
}

TensorView Gpt::parameter(const std::string& wanted) const {
  for (const GptParameter& p : parameters()) {
    if (p.name == wanted) return p.value;
  }
  fail(Error::Kind::value, "Gpt: there is no parameter {}; parameters() lists them", wanted);
}

void Gpt::update(const std::string& wanted, const TensorView& value) {
  const TensorView before = parameter(wanted);
  require(before.shape() == value.shape(), "Gpt: {} has shape {}, not {}", wanted, before.shape(),
          value.shape());
  update_all([&](std::size_t, const std::string& name, const MutableTensorView& p) {
    if (name == wanted) p.copy_from(value);
  });
}

void Gpt::update_all(const ParameterChange& change) {
  std::size_t index = 0;
  layers_->change_each([&](const ParameterInfo& info, const MutableTensorView& p) {
    change(index++, info.name, p);
  });
}

dim_t GptCache::tokens() const {
  return layers.empty() ? 0 : layers.front().tokens();
}

void GptCache::clear() {
  for (KVCache& layer : layers) layer.clear();
}

}  // namespace cephalo
