#include "tests/bits/problems.h"

#include <cmath>
#include <limits>

#include "cephalo/attention/plan.h"
#include "cephalo/core/random.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

// ids of documents of some 30 tokens: [batch, tokens], the last `tokens` of `of`
Tensor document_ids(dim_t batch, dim_t tokens, dim_t of) {
  Tensor ids = Tensor::empty({batch, tokens}, DType::i64);
  auto* to = ids.mutable_data_as<std::int64_t>();
  for (dim_t b = 0; b < batch; ++b) {
    for (dim_t t = 0; t < tokens; ++t) to[b * tokens + t] = (of - tokens + t) / (29 + 2 * b);
  }
  return ids;
}

// Three pairs of four are kept, and one query sees nothing.
Tensor kept_pairs(const Shape& shape) {
  Tensor kept = Tensor::empty(shape, DType::boolean);
  auto* to = kept.mutable_data_as<bool>();
  for (dim_t i = 0; i < kept.numel(); ++i) {
    to[i] = philox(5, {static_cast<std::uint32_t>(i), 0, 0, 0})[0] % 4 != 0;
  }
  const dim_t keys = shape[-1];
  for (dim_t j = 0; j < keys; ++j) to[j] = false;
  return kept;
}

// N(0, 1), with a few pairs hidden by −inf.
Tensor biases(const Shape& shape, std::uint64_t seed) {
  Tensor t = normal(shape, seed);
  auto* to = t.mutable_data_as<float>();
  for (dim_t i = 7; i < t.numel(); i += 19) to[i] = -std::numeric_limits<float>::infinity();
  return t;
}

std::vector<dim_t> shorter(dim_t batch, dim_t tokens) {
  std::vector<dim_t> lengths;
  for (dim_t b = 0; b < batch; ++b) lengths.push_back(tokens - b * (tokens / 3));
  return lengths;
}

}  // namespace

std::string name(const Sizes& s) {
  std::string words = "b" + std::to_string(s.batch) + "/h" + std::to_string(s.num_heads) + ":" +
                      std::to_string(s.num_kv_heads) + "/" + std::to_string(s.q_tokens) + "x" +
                      std::to_string(s.kv_tokens) + "x" + std::to_string(s.head_dim);
  if (s.v_dim != 0) words += ":" + std::to_string(s.v_dim);
  return words;
}

std::string name(Engine engine) {
  return cephalo::name(engine);
}

const std::vector<Sizes>& odd_sizes() {
  static const std::vector<Sizes> sizes{
      {1, 1, 1, 1, 1, 1},      {1, 1, 1, 97, 97, 1},      {2, 4, 2, 1, 257, 64},
      {1, 4, 4, 257, 97, 40},  {2, 2, 1, 97, 257, 59},    {1, 2, 2, 257, 257, 64},
      {1, 2, 1, 33, 128, 128}, {2, 3, 3, 97, 97, 40, 24}, {1, 1, 1, 64, 1, 111},
      {1, 8, 2, 1, 1025, 128}, {1, 2, 2, 5, 97, 64, 128}};
  return sizes;
}

Problem::Problem(const Sizes& s, DType dtype, DType kv_dtype)
    : q(normal({s.batch, s.num_heads, s.q_tokens, s.head_dim}, 1, dtype)),
      k(normal({s.batch, s.num_kv_heads, s.kv_tokens, s.head_dim}, 2, kv_dtype)),
      v(normal({s.batch, s.num_kv_heads, s.kv_tokens, s.v_dim == 0 ? s.head_dim : s.v_dim}, 3,
               kv_dtype)) {}

std::vector<NamedMask> few_masks_for(const Sizes& s) {
  return {
      {"none", {}},
      {"causal", causal()},
      {"causal+window", causal() & window(31, 0)},
      {"lengths+alibi", lengths(shorter(s.batch, s.kv_tokens)) & alibi(alibi_slopes(s.num_heads))}};
}

std::vector<NamedMask> masks_for(const Sizes& s) {
  const Mask some_lengths = lengths(shorter(s.batch, s.kv_tokens));
  const Mask both_lengths = lengths(shorter(s.batch, s.kv_tokens), shorter(s.batch, s.q_tokens));
  const Mask ids = documents(document_ids(s.batch, s.q_tokens, s.kv_tokens),
                             document_ids(s.batch, s.kv_tokens, s.kv_tokens));
  const Mask slopes = alibi(alibi_slopes(s.num_heads));
  const dim_t prefix = s.kv_tokens - s.q_tokens / 2;  // half of the queries see past themselves
  std::vector<dim_t> prefixes;
  for (dim_t b = 0; b < s.batch; ++b) prefixes.push_back(prefix - 11 - 7 * b);
  const auto kept = [&] { return keep(kept_pairs({s.q_tokens, s.kv_tokens})); };
  const auto full_bias = [&] { return bias(biases({s.q_tokens, s.kv_tokens}, 11)); };
  const auto head_bias = [&] { return bias(biases({s.batch, s.num_heads, 1, s.kv_tokens}, 12)); };
  std::vector<NamedMask> masks;
  const auto add = [&](const char* label, const Mask& mask) { masks.push_back({label, mask}); };
  add("none", {});
  add("causal", causal());
  add("prefix", causal(prefix));
  add("prefixes", causal(prefixes));
  add("window", window(13, 5));
  add("lengths", some_lengths);
  add("lengths-of-both", both_lengths);
  add("documents", ids);
  add("keep", kept());
  add("drop", drop(kept_pairs({s.batch, s.num_heads, s.q_tokens, s.kv_tokens})));
  add("bias", full_bias());
  add("bias-of-keys", head_bias());
  add("alibi", slopes);
  add("causal+top-left", causal() & positions(Align::top_left));
  add("window+offset", window(20, 20) & positions(Align::top_left, 30));
  add("causal+window", causal() & window(31, 0));
  add("causal+lengths", causal() & some_lengths);
  add("causal+documents", causal() & ids);
  add("causal+alibi", causal() & slopes);
  add("causal+bias", causal() & full_bias());
  add("window+keep", window(50, 50) & kept());
  add("causal+window+lengths+documents", causal() & window(60, 0) & some_lengths & ids);
  add("prefix+bias+bias-of-keys+alibi", causal(prefix) & full_bias() & head_bias() & slopes);
  return masks;
}

}  // namespace cephalo::testing
