#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/learn/pipeline.h"
#include "tests/bits/bits.h"
#include "tests/bits/problems.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

constexpr Engine kEngines[] = {Engine::fused, Engine::reference};

struct LayerCase {
  const char* name;
  MultiHeadAttentionOptions options;
};

std::vector<LayerCase> layer_cases() {
  return {
      {"plain", {.d_in = 48, .d_out = 48, .num_heads = 4, .seed = 1}},
      {"book",
       {.d_in = 40, .d_out = 24, .dropout = 0.2, .num_heads = 3, .qkv_bias = true, .seed = 2}},
      {"rotary+gqa",
       {.d_in = 64,
        .d_out = 64,
        .dropout = 0.1,
        .num_heads = 8,
        .qkv_bias = true,
        .num_kv_heads = 2,
        .rotary = Rotary{},
        .seed = 3}},
      {"rotary-interleaved",
       {.d_in = 33,
        .d_out = 80,
        .num_heads = 2,
        .out_bias = false,
        .rotary = Rotary{.interleaved = true, .base = 500.0},
        .seed = 4}},
      {"no-projection",
       {.d_in = 59, .d_out = 59, .num_heads = 1, .out_proj = false, .causal = false, .seed = 5}},
      {"wide-values",
       {.d_in = 32, .d_out = 32, .num_heads = 4, .v_dim = 19, .causal = false, .seed = 6}},
      {"torch",
       {.d_in = 32, .d_out = 32, .num_heads = 4, .qkv_bias = true, .seed = 7, .form = Form::torch}},
      {"float64",
       {.d_in = 24,
        .d_out = 24,
        .dropout = 0.1,
        .num_heads = 3,
        .qkv_bias = true,
        .rotary = Rotary{},
        .seed = 8,
        .dtype = DType::f64}},
      {"bfloat16",
       {.d_in = 48,
        .d_out = 48,
        .num_heads = 4,
        .qkv_bias = true,
        .seed = 9,
        .dtype = DType::bf16}},
      {"float16", {.d_in = 48, .d_out = 48, .num_heads = 4, .seed = 10, .dtype = DType::f16}}};
}

Tensor input_of(const MultiHeadAttention& layer, dim_t tokens, std::uint64_t seed) {
  const DType dtype = layer.options().dtype == DType::f64 ? DType::f64 : DType::f32;
  return normal({2, tokens, layer.options().d_in}, seed, dtype);
}

void add_gradients(Digest& digest, const Gradients& gradients) {
  for (const NamedParameter& g : gradients.named()) digest.add(g.value);
}

// Forward, then there and back in training mode. kv: of cross attention, or null
void add_passes(Bits& bits, const std::string& line, MultiHeadAttention& layer, const Tensor& x,
                const TensorView* kv = nullptr) {
  for (const Engine engine : kEngines) {
    const std::string end = line + "/" + name(engine);
    CallOptions call;
    call.kv = kv;
    call.call = 6;
    call.engine = engine;
    call.threads = bits.threads();
    layer.eval();
    bits.add("layer/forward/" + end, layer(x, call));
    layer.train();
    const TrainResult r = layer.forward_train(x, call);
    const Tensor dy = normal(r.y.shape(), 52, r.y.dtype());
    Tensor dx = Tensor::empty(x.shape(), x.dtype());
    Tensor dkv = kv == nullptr ? Tensor() : Tensor::empty(kv->shape(), kv->dtype());
    Gradients gradients = layer.new_gradients();
    layer.backward(r.saved, dy, dx, gradients,
                   kv == nullptr ? MutableTensorView() : dkv.mutable_view());
    Digest digest;
    digest.add(r.y).add(dx).add(dkv);
    add_gradients(digest, gradients);
    bits.add_digest("layer/train/" + end, digest);
  }
}

void add_trace(Bits& bits, const std::string& line, MultiHeadAttention& layer, const Tensor& x) {
  layer.eval();
  Digest digest;
  for (const Step& step : layer.trace(x)) digest.add(step.value);
  bits.add_digest("layer/trace/" + line, digest);
}

void add_decoding(Bits& bits, const std::string& line, MultiHeadAttention& layer) {
  layer.eval();
  layer.prepare();
  const MultiHeadAttentionOptions& o = layer.options();
  const dim_t kv_heads = o.num_kv_heads == 0 ? o.num_heads : o.num_kv_heads;
  const KVCacheShape shape{2, kv_heads, layer.head_dim(), o.v_dim};
  const DType dtype = o.dtype == DType::f64 ? DType::f64 : DType::f32;
  KVCache caches[] = {KVCache::growing(shape, dtype), KVCache::paged(shape, 8, dtype)};
  for (KVCache& cache : caches) {
    Digest digest;
    std::uint64_t seed = 60;
    for (const dim_t tokens : {21, 1, 1, 6, 1}) {
      CallOptions call;
      call.cache = &cache;
      call.threads = bits.threads();
      digest.add(layer(input_of(layer, tokens, seed++), call));
    }
    const char* kind = cache.kind() == KVCache::Kind::paged ? "paged/" : "growing/";
    bits.add_digest(std::string("layer/decode/") + kind + line, digest);
  }
}

void add_cross_attention(Bits& bits) {
  MultiHeadAttention layer({.d_in = 40,
                            .d_out = 48,
                            .dropout = 0.1,
                            .num_heads = 4,
                            .d_kv = 27,
                            .causal = false,
                            .seed = 11});
  const Tensor memory = normal({2, 43, 27}, 53);
  const TensorView kv = memory;
  add_passes(bits, "cross", layer, input_of(layer, 29, 54), &kv);
}

}  // namespace

void add_layer_bits(Bits& bits) {
  for (const LayerCase& c : layer_cases()) {
    MultiHeadAttention layer(c.options);
    for (const dim_t tokens : {1, 97}) {
      const std::string line = std::string(c.name) + "/" + std::to_string(tokens);
      const Tensor x = input_of(layer, tokens, 51);
      add_passes(bits, line, layer, x);
      add_trace(bits, line, layer, x);
    }
    if (c.options.causal) add_decoding(bits, c.name, layer);
    Digest parameters;
    for (const NamedParameter& p : layer.parameters()) parameters.add(p.value);
    bits.add_digest(std::string("layer/parameters/") + c.name, parameters);
  }
  add_cross_attention(bits);
  const Pipeline text = pipeline("Your journey starts with one step", {});
  bits.add("layer/pipeline", text.embedded.x, text.context);
}

}  // namespace cephalo::testing
