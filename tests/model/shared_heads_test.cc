// Models whose heads share keys and values: num_kv_heads < num_heads, from options to file.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/model/generate.h"
#include "cephalo/model/gpt_file.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::Folder;
using testing::largest_difference;
using testing::same_bits;

constexpr dim_t kHeads = 6;
constexpr dim_t kKvHeads = 2;
constexpr dim_t kHeadDim = 8;
constexpr dim_t kWidth = kHeads * kHeadDim;

GptOptions options_of(PositionKind positions, dim_t num_kv_heads) {
  return {.vocab_size = 61,
          .context_length = 20,
          .d_model = kWidth,
          .num_heads = kHeads,
          .num_kv_heads = num_kv_heads,
          .num_layers = 2,
          .positions = positions,
          .seed = 8};
}

// Large parameters, biases too: a head that reads another's keys changes the logits.
Gpt lively_model(PositionKind positions) {
  Gpt model(options_of(positions, kKvHeads));
  std::uint64_t seed = 0;
  model.update_all([&](std::size_t, const std::string& name, const MutableTensorView& p) {
    ++seed;
    if (name.find("ln_") != std::string::npos) return;
    const Tensor drawn = testing::normal(p.shape(), seed);
    float* x = p.mutable_data_as<float>();
    for (dim_t i = 0; i < p.numel(); ++i) x[i] = 0.2F * drawn.data_as<float>()[i];
  });
  return model;
}

Tensor ids_of(const Shape& shape) {
  TorchGenerator generator(3);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, 61);
  }
  return ids;
}

// shared: the rows of q, k and v of a layer whose heads share -> those of a layer in which each
// head has its own keys and values, equal in a group
Tensor with_own_keys(const TensorView& shared) {
  Shape shape = shared.shape();
  shape[0] = 3 * kWidth;
  Tensor own = Tensor::empty(shape);
  const MutableTensorView to = own.mutable_view();
  to.slice(0, 0, kWidth).copy_from(shared.slice(0, 0, kWidth));
  for (dim_t part = 0; part < 2; ++part) {
    for (dim_t h = 0; h < kHeads; ++h) {
      const dim_t kv_head = h / (kHeads / kKvHeads);
      const dim_t from = kWidth + (part * kKvHeads + kv_head) * kHeadDim;
      const dim_t at = kWidth + (part * kHeads + h) * kHeadDim;
      to.slice(0, at, at + kHeadDim).copy_from(shared.slice(0, from, from + kHeadDim));
    }
  }
  return own;
}

TEST(SharedHeadsTest, logits_are_those_of_the_model_in_which_each_head_has_a_copy) {
  for (const PositionKind positions : {PositionKind::learned, PositionKind::rotary}) {
    const Gpt shared = lively_model(positions);
    Gpt copied(options_of(positions, 0));
    for (const GptParameter& p : shared.parameters()) {
      const bool is_qkv = p.name.find("c_attn") != std::string::npos;
      copied.update(p.name, is_qkv ? with_own_keys(p.value) : Tensor::copy(p.value));
    }
    const Tensor ids = ids_of({2, 20});
    const Tensor logits = shared(ids);
    EXPECT_LE(largest_difference(logits, copied(ids)), 1e-4);
    EXPECT_GT(testing::largest_magnitude(logits), 1.0);
  }
}

TEST(SharedHeadsTest, a_layer_of_the_model_is_the_layer_made_by_hand) {
  const Gpt model = lively_model(PositionKind::rotary);
  const MultiHeadAttention& inside = model.attention(1);
  MultiHeadAttention by_hand({.d_in = kWidth,
                              .d_out = kWidth,
                              .context_length = 20,
                              .num_heads = kHeads,
                              .qkv_bias = true,
                              .num_kv_heads = kKvHeads,
                              .rotary = Rotary{}});
  constexpr dim_t kEnds[] = {0, kWidth, kWidth + kKvHeads * kHeadDim,
                             kWidth + 2 * kKvHeads * kHeadDim};
  const char* names[] = {"W_query", "W_key", "W_value"};
  for (const std::string part : {".weight", ".bias"}) {
    const TensorView qkv = model.parameter("transformer.h.1.attn.c_attn" + part);
    EXPECT_EQ(qkv.dim(0), kEnds[3]);
    for (int k = 0; k < 3; ++k) {
      by_hand.update(names[k] + part, Tensor::copy(qkv.slice(0, kEnds[k], kEnds[k + 1])));
    }
    by_hand.update("out_proj" + part, model.parameter("transformer.h.1.attn.c_proj" + part));
  }
  const Tensor x = testing::normal({2, 9, kWidth}, 5);
  EXPECT_TRUE(same_bits(inside(x), by_hand(x)));
}

TEST(SharedHeadsTest, a_cache_holds_the_shared_heads_and_gives_the_logits_of_the_whole) {
  const Gpt model = lively_model(PositionKind::rotary);
  const Tensor ids = ids_of({2, 20});
  const Tensor whole = model(ids);
  GptCache cache = model.new_cache(2);
  dim_t begin = 0;
  for (const dim_t count : {7, 1, 12}) {
    const Tensor part = model(ids.slice(1, begin, begin + count), {.cache = &cache});
    EXPECT_LE(largest_difference(part, whole.slice(1, begin, begin + count)), 1e-4);
    begin += count;
  }
  EXPECT_EQ(cache.layers[1].dense_keys()->shape(), (Shape{2, kKvHeads, 20, kHeadDim}));
}

TEST(SharedHeadsTest, a_cache_does_not_change_the_text) {
  for (const PositionKind positions : {PositionKind::learned, PositionKind::rotary}) {
    const Gpt model = lively_model(positions);
    GenerateOptions options{.new_tokens = 30, .sampling = {.temperature = 1.0}};
    const std::vector<std::int64_t> prompt{5, 7, 60};
    const Generated cached = generate(model, prompt, options);
    options.cached = false;
    EXPECT_EQ(generate(model, prompt, options).ids, cached.ids);
  }
}

TEST(SharedHeadsTest, what_is_saved_comes_back) {
  const Gpt model = lively_model(PositionKind::learned);
  const Tensor ids = ids_of({1, 12});
  for (const GptNames names : {GptNames::hugging_face, GptNames::book}) {
    const Folder folder;
    save_gpt(model, folder / "m", {.names = names});
    const LoadedGpt loaded = load_gpt(folder / "m");
    EXPECT_EQ(loaded.model.options().num_kv_heads, kKvHeads);
    EXPECT_TRUE(same_bits(loaded.model(ids), model(ids)));
    const SafetensorsFile file(folder / "m/model.safetensors");
    if (names == GptNames::book) {
      EXPECT_EQ(file.find("trf_blocks.0.att.W_query.weight")->shape, (Shape{kWidth, kWidth}));
      EXPECT_EQ(file.find("trf_blocks.0.att.W_key.weight")->shape, (Shape{16, kWidth}));
    } else {
      EXPECT_EQ(file.find("transformer.h.0.attn.c_attn.weight")->shape, (Shape{kWidth, 80}));
    }
  }
}

// config.json beside the file says how many heads of keys and values there are.
TEST(SharedHeadsTest, a_layer_taken_out_of_the_books_file_computes_what_the_models_does) {
  const Gpt model = lively_model(PositionKind::rotary);
  const Folder folder;
  save_gpt(model, folder / "m", {.names = GptNames::book});
  const MultiHeadAttention layer =
      load_layer(folder / "m/model.safetensors", {.prefix = "trf_blocks.1.att."});
  const Tensor x = testing::normal({2, 9, kWidth}, 5);
  EXPECT_TRUE(same_bits(layer(x), model.attention(1)(x)));
}

// GPT-2's class for a layer has no heads to share: it is refused, not misread.
TEST(SharedHeadsTest, a_layer_taken_out_of_a_gpt_2_file_is_refused) {
  const Folder folder;
  save_gpt(lively_model(PositionKind::learned), folder / "m");
  EXPECT_EQ(testing::error_of([&] {
              load_layer(folder / "m/model.safetensors", {.prefix = "transformer.h.1."});
            }),
            "MultiHeadAttention: form gpt2 needs num_kv_heads (2) equal to num_heads (6)");
}

TEST(SharedHeadsTest, fewer_heads_of_keys_and_values_need_less_memory) {
  const GptOptions shared = options_of(PositionKind::rotary, kKvHeads);
  const GptOptions own = options_of(PositionKind::rotary, 0);
  const dim_t saved_rows = 2 * (kHeads - kKvHeads) * kHeadDim;  // of k and v, in each layer
  EXPECT_EQ(parameter_count(own) - parameter_count(shared), 2 * saved_rows * (kWidth + 1));
  EXPECT_LT(memory_bytes(shared, 4, 20).pass, memory_bytes(own, 4, 20).pass);
}

}  // namespace
}  // namespace cephalo
