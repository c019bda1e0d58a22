#include "cephalo/core/parallel.h"
#include "cephalo/linear/packed_linear.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/layer_norm.h"
#include "cephalo/model/mlp.h"
#include "cephalo/train/loss.h"
#include "tests/bits/bits.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

void add_linear(Bits& bits) {
  for (const DType steps : {DType::f32, DType::f64}) {
    for (const Shape& s : {Shape{1, 1, 1}, Shape{1, 64, 192}, Shape{97, 59, 40}, Shape{7, 1100, 33},
                           Shape{130, 128, 257}}) {
      const UseThreads threads(bits.threads());
      const Tensor x = normal({s[0], s[1]}, 71, steps);
      const Tensor weight = normal({s[2], s[1]}, 72, steps);
      const Tensor bias = normal({s[2]}, 73, steps);
      const PackedLinear packed(weight, bias, steps);
      Tensor y = Tensor::empty({s[0], s[2]}, steps);
      packed.apply(x, y);
      Tensor sum = normal({s[0], s[2]}, 74, steps);
      packed.apply(x, sum, Epilogue::add());
      bits.add(std::string("linear/") + cephalo::name(steps) + "/" + std::to_string(s[0]) + "x" +
                   std::to_string(s[1]) + "x" + std::to_string(s[2]),
               y, sum);
    }
  }
}

void add_row_layers(Bits& bits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const dim_t width : {1, 40, 59, 256}) {
      const UseThreads threads(bits.threads());
      const std::string end = std::string("/") + cephalo::name(dtype) + "/" + std::to_string(width);
      const Tensor x = normal({3, 17, width}, 75, dtype);
      LayerNorm norm(width, 1e-5, dtype);
      norm.weight = normal({width}, 76, dtype);
      norm.bias = normal({width}, 77, dtype);
      bits.add("layer_norm" + end, norm(x));
      for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf}) {
        Mlp mlp(width, 2 * width + 3, activation, dtype);
        mlp.fc_weight = normal(mlp.fc_weight.shape(), 78, dtype);
        mlp.fc_bias = normal(mlp.fc_bias.shape(), 79, dtype);
        mlp.proj_weight = normal(mlp.proj_weight.shape(), 80, dtype);
        mlp.proj_bias = normal(mlp.proj_bias.shape(), 81, dtype);
        bits.add((activation == Activation::gelu_tanh ? "mlp/gelu_tanh" : "mlp/gelu_erf") + end,
                 mlp(x));
      }
    }
  }
}

struct GptCase {
  const char* name;
  GptOptions options;
};

std::vector<GptCase> gpt_cases() {
  GptOptions base{.vocab_size = 61,
                  .context_length = 24,
                  .d_model = 40,
                  .num_heads = 4,
                  .num_layers = 2,
                  .d_mlp = 100,
                  .seed = 3};
  GptOptions rotary = base;
  rotary.positions = PositionKind::rotary;
  GptOptions dropping = base;
  dropping.dropout = 0.1;
  GptOptions all = rotary;
  all.dropout = 0.2;
  all.tied_head = false;
  all.qkv_bias = false;
  all.rotary = {.interleaved = true, .base = 300.0};
  all.activation = Activation::gelu_erf;
  GptOptions untied = base;
  untied.tied_head = false;
  GptOptions wide = all;
  wide.dtype = DType::f64;
  return {{"learned", base},  {"learned+dropout", dropping},  {"learned+untied", untied},
          {"rotary", rotary}, {"rotary+untied+dropout", all}, {"float64", wide}};
}

Tensor some_ids(dim_t batch, dim_t tokens, dim_t vocab_size) {
  Tensor ids = Tensor::empty({batch, tokens}, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = (i * i + 7 * i) % vocab_size;
  }
  return ids;
}

void add_decoding(Bits& bits, const std::string& name, Gpt& model) {
  model.prepare();
  GptCache cache = model.new_cache(2);
  Digest digest;
  for (const dim_t tokens : {9, 1, 1, 4}) {
    GptCall call;
    call.cache = &cache;
    call.last_only = tokens > 1;
    call.threads = bits.threads();
    digest.add(model(some_ids(2, tokens, model.options().vocab_size), call));
  }
  bits.add_digest("gpt/decode/" + name, digest);
}

void add_gpt(Bits& bits, const GptCase& c) {
  Gpt model(c.options);
  const std::string name = c.name;
  constexpr dim_t kBatch = 3, kTokens = 23;
  const Tensor ids = some_ids(kBatch, kTokens, model.options().vocab_size);
  const Tensor targets = some_ids(1, kBatch * kTokens, model.options().vocab_size - 2);
  const LogitsLoss loss = [&](dim_t first, const MutableTensorView& logits) {
    return cross_entropy_share(logits, targets[0].slice(0, first, first + logits.dim(0)),
                               kBatch * kTokens, logits);
  };
  GptCall call;
  call.threads = bits.threads();
  bits.add("gpt/logits/" + name, model(ids, call));
  PassOptions pass;
  pass.call = 5;
  pass.threads = bits.threads();
  bits.add("gpt/loss/" + name, model.loss_pass(ids, loss, pass));
  GptGradients gradients(model);
  Digest digest;
  pass.threads = bits.threads();
  digest.add(model.train_pass(ids, loss, gradients, pass));
  for (const MutableTensorView& g : gradients.tensors()) digest.add(g);
  bits.add_digest("gpt/gradients/" + name, digest);
  add_decoding(bits, name, model);
}

}  // namespace

void add_model_bits(Bits& bits) {
  add_linear(bits);
  add_row_layers(bits);
  for (const GptCase& c : gpt_cases()) add_gpt(bits, c);
}

}  // namespace cephalo::testing
