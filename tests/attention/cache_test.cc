// Attention over a cache is attention over the whole, however the tokens arrived.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::normal;
using testing::same_bits;
using Kind = KVCache::Kind;
using Lengths = std::vector<dim_t>;

constexpr double kClose = 2e-6;
constexpr dim_t kCapacity = 16;  // of a ring
constexpr dim_t kPage = 7;
constexpr Kind kKinds[] = {Kind::growing, Kind::ring, Kind::paged};

std::string name_of(Kind kind) {
  return kind == Kind::growing ? "growing" : kind == Kind::ring ? "ring" : "paged";
}

KVCache make(Kind kind, const KVCacheShape& shape, DType dtype = DType::f32) {
  switch (kind) {
    case Kind::growing:
      return KVCache::growing(shape, dtype);
    case Kind::ring:
      return KVCache::ring(shape, kCapacity, dtype);
    case Kind::paged:
      break;
  }
  return KVCache::paged(shape, kPage, dtype);
}

// Rows [begin[b], begin[b] + count[b]) of each sequence of t: [batch, heads, tokens, dim], as the
// first ones of [batch, heads, new_tokens, dim]. The others are NaN: nobody may look at them.
Tensor rows_of(const TensorView& t, const Lengths& begin, const Lengths& count, dim_t new_tokens) {
  Tensor rows = Tensor::full({t.dim(0), t.dim(1), new_tokens, t.dim(3)},
                             std::numeric_limits<double>::quiet_NaN(), t.dtype());
  for (dim_t b = 0; b < t.dim(0); ++b) {
    for (dim_t h = 0; h < t.dim(1); ++h) {
      rows.mutable_view()[b][h]
          .slice(0, 0, count[b])
          .copy_from(t[b][h].slice(0, begin[b], begin[b] + count[b]));
    }
  }
  return rows;
}

// How many tokens each sequence takes at each step: prefills, single tokens, and sequences that
// pause or have ended.
struct Step {
  dim_t new_tokens;
  Lengths begin, count;
};
std::vector<Step> random_steps(const Lengths& totals, dim_t first, dim_t longest,
                               TorchGenerator& generator) {
  std::vector<Step> steps;
  Lengths at(totals.size(), 0);
  while (at != totals) {
    const bool single = !steps.empty() && generator.keeps(0.6);
    Step step{steps.empty() ? first : single ? 1 : generator.randint(1, longest + 1), at, {}};
    for (std::size_t b = 0; b < totals.size(); ++b) {
      const dim_t most = std::min(step.new_tokens, totals[b] - at[b]);
      const bool all = steps.empty() || generator.keeps(0.7);
      step.count.push_back(all ? most : generator.randint(0, most + 1));
      at[b] += step.count[b];
    }
    steps.push_back(step);
  }
  return steps;
}

struct Sequences {
  KVCacheShape shape{.batch = 3, .num_kv_heads = 2, .head_dim = 20, .v_dim = 12};
  dim_t num_heads = 6;
  Lengths totals{61, 9, 90};
  Tensor q, k, v;  // [batch, heads, longest, dim]
  explicit Sequences(std::uint64_t seed)
      : q(normal({3, 6, 90, 20}, seed)),
        k(normal({3, 2, 90, 20}, seed + 1)),
        v(normal({3, 2, 90, 12}, seed + 2)) {}
};

struct NamedMask {
  std::string name;
  Mask mask;
  bool for_ring;  // looks no further back than kCapacity
};
// prefix: of each sequence, all within the first chunk: what comes later cannot be seen early.
constexpr dim_t kFirstChunk = 8;
std::vector<NamedMask> masks(dim_t num_heads) {
  return {{"causal", causal(), false},
          {"window", causal() & window(kCapacity, 0), true},
          {"narrow", window(2, 0), true},
          {"alibi", causal() & alibi(alibi_slopes(num_heads)), false},
          {"alibi_window", causal() & alibi(alibi_slopes(num_heads)) & window(9, 0), true},
          {"prefix", causal({5, 0, kFirstChunk}), false},
          {"prefix_window", causal({3, kFirstChunk, 1}) & window(12, 5), true}};
}

// Calls use(kind, mask, whole, steps) for all kinds of cache and the masks that they can serve.
template <typename Use>
void for_all(const Sequences& s, Use&& use) {
  std::uint64_t seed = 0;
  for (const NamedMask& each : masks(s.num_heads)) {
    const AttendResult whole =
        attend(s.q, s.k, s.v, each.mask & lengths(s.totals, s.totals),
               {.return_lse = true, .return_weights = true, .engine = Engine::reference});
    for (const Kind kind : kKinds) {
      if (kind == Kind::ring && !each.for_ring) continue;
      for (const dim_t longest : {5, 40}) {
        SCOPED_TRACE(format_text("{} {} chunks of up to {}", name_of(kind), each.name, longest));
        TorchGenerator generator(++seed);
        use(kind, each.mask, whole, random_steps(s.totals, kFirstChunk, longest, generator));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CacheTest, chunks_and_single_tokens_equal_attention_over_the_whole) {
  const Sequences s(1);
  double worst = 0.0;
  for_all(s, [&](Kind kind, const Mask& mask, const AttendResult& whole,
                 const std::vector<Step>& steps) {
    KVCache cache = make(kind, s.shape);
    for (const Step& step : steps) {
      cache.append(rows_of(s.k, step.begin, step.count, step.new_tokens),
                   rows_of(s.v, step.begin, step.count, step.new_tokens), step.count);
      const Tensor q = rows_of(s.q, step.begin, step.count, step.new_tokens);
      const AttendResult ours = attend(q, cache, mask, {.return_lse = true});
      const Tensor expected = rows_of(whole.context, step.begin, step.count, step.new_tokens);
      for (dim_t b = 0; b < s.shape.batch; ++b) {
        const dim_t count = step.count[b];
        for (dim_t h = 0; h < s.num_heads; ++h) {
          const double error = largest_difference(ours.context[b][h].slice(0, 0, count),
                                                  expected[b][h].slice(0, 0, count));
          worst = std::max(worst, error);
          ASSERT_LE(error, kClose) << "sequence " << b << " from " << step.begin[b];
          ASSERT_TRUE(testing::all_zero(ours.context[b][h].slice(0, count, step.new_tokens)));
          for (dim_t i = 0; i < count; ++i) {
            ASSERT_NEAR(ours.lse.at({b, h, i}), whole.lse.at({b, h, step.begin[b] + i}), 4e-6);
          }
        }
      }
    }
    ASSERT_EQ(cache.lengths(), s.totals);
  });
  testing::report(format_text("caches: worst {:.1e} of {:.0e} allowed", worst, kClose));
}

TEST(CacheTest, columns_of_weights_are_positions) {
  const Sequences s(4);
  for_all(s, [&](Kind kind, const Mask& mask, const AttendResult& whole,
                 const std::vector<Step>& steps) {
    KVCache cache = make(kind, s.shape);
    for (const Step& step : steps) {
      cache.append(rows_of(s.k, step.begin, step.count, step.new_tokens),
                   rows_of(s.v, step.begin, step.count, step.new_tokens), step.count);
      const Tensor q = rows_of(s.q, step.begin, step.count, step.new_tokens);
      const AttendResult ours = attend(q, cache, mask, {.return_lse = true});
      const Tensor w = weights(q, cache, ours.lse, mask, {}, {.heads = {4, 1}});
      ASSERT_EQ(w.shape(), (Shape{3, 2, step.new_tokens, cache.tokens()}));
      for (dim_t b = 0; b < 3; ++b) {
        const dim_t count = step.count[b];
        const dim_t kept = cache.lengths()[b];
        for (const auto& [at, h] : {std::pair{0, 4}, std::pair{1, 1}}) {
          const TensorView expected =
              whole.weights[b][h].slice(0, step.begin[b], step.begin[b] + count).slice(1, 0, kept);
          ASSERT_LE(largest_difference(w[b][at].slice(0, 0, count).slice(1, 0, kept), expected),
                    kClose);
          ASSERT_TRUE(testing::all_zero(w[b][at].slice(1, kept, cache.tokens())));
          ASSERT_TRUE(testing::all_zero(w[b][at].slice(0, count, step.new_tokens)));
        }
      }
    }
  });
}

TEST(CacheTest, the_reference_engine_and_taps_serve_caches_too) {
  const Sequences s(7);
  const Mask mask = causal() & window(kCapacity, 0);
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    KVCache cache = make(kind, s.shape);
    cache.append(s.k.slice(2, 0, 40), s.v.slice(2, 0, 40), {40, 5, 33});
    cache.append(s.k.slice(2, 40, 52), s.v.slice(2, 40, 52), {12, 0, 9});
    const Tensor q = normal({3, 6, 12, 20}, 1);
    AttendOptions options{.dropout = 0.3, .return_lse = true, .return_weights = true};
    options.return_scores = ScoresTap::masked;
    const AttendResult fused = attend(q, cache, mask, options);
    options.engine = Engine::reference;
    const AttendResult reference = attend(q, cache, mask, options);
    EXPECT_LE(largest_difference(fused.context, reference.context), 2.0 * kClose);
    EXPECT_LE(largest_difference(fused.weights, reference.weights), kClose);
    EXPECT_TRUE(same_bits(fused.scores, reference.scores));
    EXPECT_EQ(fused.scores.shape(), (Shape{3, 6, 12, 52}));
  }
}

TEST(CacheTest, sixteen_bit_caches_equal_attention_over_rounded_keys_and_values) {
  const Sequences s(10);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor k = Tensor::copy(Tensor::copy(s.k, dtype), DType::f32);
    const Tensor v = Tensor::copy(Tensor::copy(s.v, dtype), DType::f32);
    const Mask mask = causal() & window(kCapacity, 0);
    const AttendResult whole =
        attend(s.q, k, v, mask & lengths(s.totals, s.totals), {.engine = Engine::reference});
    for (const Kind kind : kKinds) {
      SCOPED_TRACE(name_of(kind) + " " + name(dtype));
      TorchGenerator generator(3);
      KVCache cache = make(kind, s.shape, dtype);
      for (const Step& step : random_steps(s.totals, kFirstChunk, 30, generator)) {
        cache.append(rows_of(s.k, step.begin, step.count, step.new_tokens),
                     rows_of(s.v, step.begin, step.count, step.new_tokens), step.count);
        const Tensor q = rows_of(s.q, step.begin, step.count, step.new_tokens);
        const Tensor context = attend(q, cache, mask).context;
        for (dim_t b = 0; b < 3; ++b) {
          for (dim_t h = 0; h < s.num_heads; ++h) {
            const dim_t begin = step.begin[b];
            ASSERT_LE(
                largest_difference(context[b][h].slice(0, 0, step.count[b]),
                                   whole.context[b][h].slice(0, begin, begin + step.count[b])),
                kClose);
          }
        }
      }
    }
  }
}

TEST(CacheTest, a_ring_shows_the_kept_keys_and_a_whole_chunk_longer_than_itself) {
  KVCache ring = KVCache::ring({.head_dim = 8}, 4);
  const Tensor q = normal({1, 2, 30, 8}, 1);
  const Tensor k = normal({1, 1, 30, 8}, 2);
  ring.append(k.slice(2, 0, 10), k.slice(2, 0, 10));
  // The whole first chunk is seen without any window.
  const Tensor first = attend(q.slice(2, 0, 10), ring, causal()).context;
  const Tensor whole =
      attend(q, k, k, causal() & window(4, 0), {.engine = Engine::reference}).context;
  const Tensor unwindowed = attend(q, k, k, causal(), {.engine = Engine::reference}).context;
  EXPECT_LE(largest_difference(first, unwindowed.slice(2, 0, 10)), kClose);
  // Four kept ones and twenty new ones.
  ring.append(k.slice(2, 10, 30), k.slice(2, 10, 30));
  const Tensor second = attend(q.slice(2, 10, 30), ring, causal() & window(4, 0)).context;
  EXPECT_LE(largest_difference(second, whole.slice(2, 10, 30)), kClose);
}

TEST(CacheTest, a_query_that_may_look_at_an_evicted_key_is_an_error_that_names_it) {
  KVCache ring = KVCache::ring({.batch = 2, .head_dim = 8}, 4);
  const Tensor x = normal({2, 1, 10, 8}, 1);
  ring.append(x, x, {2, 10});
  ring.append(x, x, {1, 2});
  const TensorView q = x.slice(2, 0, 2);
  const auto error = [&](const Mask& mask) { return error_of([&] { attend(q, ring, mask); }); };
  EXPECT_EQ(error(causal()),
            "attend: the query at position 10 of sequence 1 may look at key 0, which the ring of 4 "
            "tokens has evicted (it holds 6 to 11); add window(4, 0) or a larger ring");
  EXPECT_NE(error(causal() & window(5, 0)).find("position 10 of sequence 1 may look at key 5"),
            std::string::npos);
  EXPECT_EQ(error(causal() & window(4, 0)), "");
  EXPECT_EQ(error_of([&] {
              weights(q, ring, Tensor::zeros({2, 1, 2}), causal());
            }).substr(0, 44),
            "weights: the query at position 10 of sequenc");
}

TEST(CacheTest, errors_of_attending_name_the_rule_and_the_numbers) {
  KVCache cache = KVCache::growing({.batch = 2, .num_kv_heads = 2, .head_dim = 8});
  const Tensor x = normal({2, 2, 5, 8}, 1);
  cache.append(x, x, {5, 3});
  const auto error = [&](const TensorView& q, const Mask& mask = {}) {
    return error_of([&] { attend(q, cache, mask); });
  };
  EXPECT_EQ(error(x.slice(2, 0, 4)), "attend: q has 4 tokens, the last append brought 5");
  EXPECT_EQ(error(x[0]), "attend: q [2, 5, 8] must be [batch, heads, tokens, dim] to meet a cache");
  EXPECT_EQ(error(x, lengths({5, 3})),
            "attend: the cache knows its lengths; leave lengths(...) out of the mask");
  EXPECT_NE(error(normal({2, 3, 5, 8}, 1)).find("num_heads (3) must be a multiple"),
            std::string::npos);
  EXPECT_NE(error(normal({2, 2, 5, 8}, 1, DType::f64)).find("q is float64 but k and v are float32"),
            std::string::npos);
  EXPECT_NE(error(x, keep(Tensor::zeros({4, 5}, DType::boolean))).find("keep([4, 5])"),
            std::string::npos);
}

TEST(CacheTest, an_empty_cache_and_an_empty_append_give_zeros) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    KVCache cache = make(kind, {.batch = 2, .head_dim = 8});
    const Tensor q = normal({2, 3, 4, 8}, 1);
    EXPECT_TRUE(testing::all_zero(attend(q, cache, causal()).context));
    cache.append(q.slice(1, 0, 1), q.slice(1, 0, 1), {0, 2});
    const Tensor context = attend(q, cache, causal()).context;
    EXPECT_TRUE(testing::all_zero(context[0]));
    EXPECT_FALSE(testing::all_zero(context[1][0].slice(0, 0, 2)));
    EXPECT_TRUE(testing::all_zero(context[1][0].slice(0, 2, 4)));
  }
}

TEST(CacheTest, the_same_bits_for_any_number_of_threads) {
  constexpr dim_t kTokens = 5000;
  const KVCacheShape shape{.batch = 2, .num_kv_heads = 2, .head_dim = 24};
  const Tensor x = normal({2, 2, kTokens, 24}, 1);
  for (const Kind kind : {Kind::growing, Kind::paged}) {
    for (const dim_t queries : {1, 8, 40}) {
      KVCache cache = make(kind, shape);
      cache.append(x, x, {kTokens - queries, 1234});
      cache.append(x.slice(2, 0, queries), x.slice(2, 0, queries));
      const Tensor q = normal({2, 6, queries, 24}, 2);
      const Mask mask = causal() & alibi(alibi_slopes(6));
      const AttendResult one = attend(q, cache, mask, {.return_lse = true, .threads = 1});
      for (const int count : {2, 3, 7}) {
        SCOPED_TRACE(format_text("{} {} queries {} threads", name_of(kind), queries, count));
        const AttendResult many = attend(q, cache, mask, {.return_lse = true, .threads = count});
        EXPECT_TRUE(same_bits(many.context, one.context));
        EXPECT_TRUE(same_bits(many.lse, one.lse));
      }
    }
  }
}

TEST(CacheTest, every_kind_of_cache_gives_the_same_bits) {
  const Sequences s(20);
  const Mask mask = causal() & window(kCapacity, 0);
  std::vector<KVCache> caches;
  for (const Kind kind : kKinds) caches.push_back(make(kind, s.shape));
  TorchGenerator generator(5);
  for (const Step& step : random_steps(s.totals, kFirstChunk, 30, generator)) {
    const Tensor q = rows_of(s.q, step.begin, step.count, step.new_tokens);
    std::vector<Tensor> contexts;
    for (KVCache& cache : caches) {
      cache.append(rows_of(s.k, step.begin, step.count, step.new_tokens),
                   rows_of(s.v, step.begin, step.count, step.new_tokens), step.count);
      contexts.push_back(attend(q, cache, mask).context);
    }
    ASSERT_TRUE(same_bits(contexts[1], contexts[0])) << "ring";
    ASSERT_TRUE(same_bits(contexts[2], contexts[0])) << "paged";
  }
}

// The layer.

struct LayerCase {
  std::string name;
  MultiHeadAttentionOptions options;
};
std::vector<LayerCase> layer_cases() {
  const MultiHeadAttentionOptions plain{
      .d_in = 40, .d_out = 48, .num_heads = 6, .num_kv_heads = 2, .seed = 1};
  std::vector<LayerCase> cases{{"plain", plain}};
  cases.push_back({"rotary", plain});
  cases.back().options.rotary = Rotary{};
  cases.push_back({"interleaved", plain});
  cases.back().options.rotary = Rotary{.interleaved = true, .base = 500.0};
  cases.push_back({"biased", plain});
  cases.back().options.qkv_bias = true;
  cases.back().options.v_dim = 5;
  cases.push_back({"merged", plain});
  cases.back().options.out_proj = false;
  cases.back().options.rotary = Rotary{};
  return cases;
}

KVCacheShape shape_for(const MultiHeadAttention& layer, dim_t batch) {
  return {.batch = batch,
          .num_kv_heads = layer.options().num_kv_heads,
          .head_dim = layer.head_dim(),
          .v_dim = layer.options().v_dim};
}

TEST(CacheTest, a_layer_fed_in_chunks_equals_the_layer_on_the_whole) {
  const Lengths totals{45, 7, 60};
  const Tensor x = normal({3, 60, 40}, 3);
  double worst = 0.0;
  for (const LayerCase& each : layer_cases()) {
    MultiHeadAttention layer(each.options);
    layer.eval();
    for (const Kind kind : kKinds) {
      for (const dim_t longest : {1, 25}) {
        SCOPED_TRACE(format_text("{} {} {}", each.name, name_of(kind), longest));
        const Mask mask = kind == Kind::ring ? window(kCapacity, 0) : Mask{};
        const Tensor whole =
            layer(x, {.mask = mask & lengths(totals, totals), .engine = Engine::reference});
        const double allowed = kClose * std::max(1.0, largest_magnitude(whole));
        TorchGenerator generator(static_cast<std::uint64_t>(longest));
        KVCache cache = make(kind, shape_for(layer, 3));
        for (const Step& step : random_steps(totals, longest, longest, generator)) {
          const TensorView x4 = view(x, {3, 1, 60, 40});
          const Tensor rows = rows_of(x4, step.begin, step.count, step.new_tokens);
          // Finite rows past a count: NaN of a projection would be fine, but of x is not asked for.
          Tensor chunk = Tensor::zeros({3, step.new_tokens, 40});
          for (dim_t b = 0; b < 3; ++b) {
            chunk.mutable_view()[b]
                .slice(0, 0, step.count[b])
                .copy_from(rows[b][0].slice(0, 0, step.count[b]));
          }
          const Tensor y = layer(chunk, {.mask = mask, .cache = &cache, .counts = step.count});
          for (dim_t b = 0; b < 3; ++b) {
            const double error =
                largest_difference(y[b].slice(0, 0, step.count[b]),
                                   whole[b].slice(0, step.begin[b], step.begin[b] + step.count[b]));
            worst = std::max(worst, error / allowed);
            ASSERT_LE(error, allowed) << "sequence " << b << " from " << step.begin[b];
          }
        }
        ASSERT_EQ(cache.lengths(), totals);
      }
    }
  }
  testing::report(format_text("layers with caches: worst {:.2f} of what is allowed", worst));
}

TEST(CacheTest, an_offset_of_positions_turns_queries_of_a_cache_as_it_does_those_of_the_whole) {
  MultiHeadAttentionOptions options{.d_in = 16, .d_out = 16, .num_heads = 2, .num_kv_heads = 2};
  options.rotary = Rotary{};
  options.seed = 4;
  MultiHeadAttention layer(options);
  layer.eval();
  const Tensor x = normal({1, 12, 16}, 1);
  const Mask mask = positions(Align::bottom_right, -2);
  const Tensor whole = layer(x, {.mask = mask, .engine = Engine::reference});
  KVCache cache = KVCache::growing(shape_for(layer, 1));
  const Tensor a = layer(x.slice(1, 0, 9), {.mask = mask, .cache = &cache});
  const Tensor b = layer(x.slice(1, 9, 12), {.mask = mask, .cache = &cache});
  EXPECT_LE(largest_difference(a, whole.slice(1, 0, 9)), kClose);
  EXPECT_LE(largest_difference(b, whole.slice(1, 9, 12)), kClose);
}

TEST(CacheTest, a_failing_call_of_a_layer_leaves_the_cache_as_it_was) {
  MultiHeadAttentionOptions options{.d_in = 16, .d_out = 16, .num_heads = 2, .num_kv_heads = 2};
  options.context_length = 12;
  options.seed = 4;
  MultiHeadAttention layer(options);
  layer.eval();
  const Tensor x = normal({2, 5, 16}, 1);
  for (const Kind kind : kKinds) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(name_of(kind) + " " + name(dtype));
      KVCache cache = kind == Kind::ring ? KVCache::ring(shape_for(layer, 2), 2, dtype)
                                         : make(kind, shape_for(layer, 2), dtype);
      const auto fails = [&](const std::string& expected, const TensorView& input,
                             CallOptions call) {
        const Lengths before = cache.lengths();
        const Lengths appended = cache.appended();
        const dim_t kept = cache.first_kept(0);
        call.cache = &cache;
        const std::string error = error_of([&] { layer(input, call); });
        EXPECT_NE(error.find(expected), std::string::npos) << "'" << error << "' not " << expected;
        EXPECT_EQ(error.substr(0, 19), "MultiHeadAttention:") << error;
        EXPECT_EQ(cache.lengths(), before) << expected;
        EXPECT_EQ(cache.appended(), appended) << expected;
        EXPECT_EQ(cache.first_kept(0), kept) << expected;
      };
      if (dtype == DType::f64) {
        fails("q is float32 but k and v are float64", x, {});
        continue;
      }
      const Mask near = window(2, 0);
      layer(x, {.mask = near, .cache = &cache});
      fails("does not broadcast", x, {.mask = near & keep(Tensor::zeros({5, 5}, DType::i32))});
      fails("alibi has 3 slopes", x, {.mask = near & alibi({1, 1, 1})});
      fails("leave lengths(...) out", x, {.mask = near & lengths({5, 5})});
      fails("bias is float64", x, {.mask = near & bias(Tensor::zeros({5, 10}, DType::f64))});
      fails("must be in [0, 5", x, {.mask = near, .counts = {6, 0}});
      fails("counts has 3 numbers", x, {.mask = near, .counts = {1, 1, 1}});
      fails("this call has batch 1", x[0], {.mask = near});
      fails("exceed context_length (12)", normal({2, 8, 16}, 1), {.mask = near});
      fails("documents(ids) needs q_tokens (5) equal to kv_tokens (10)", x,
            {.mask = near & documents(Tensor::zeros({5}, DType::i64))});
      if (kind == Kind::ring) {
        fails("may look at key 0, which the ring of 2 tokens has evicted (it holds 3 to 9)", x, {});
      }
      layer(x, {.mask = near, .cache = &cache});
      EXPECT_EQ(cache.lengths(), (Lengths{10, 10}));
    }
  }
}

TEST(CacheTest, context_length_counts_the_tokens_that_a_sequence_gets) {
  MultiHeadAttention layer(
      {.d_in = 8, .d_out = 8, .context_length = 6, .num_heads = 1, .num_kv_heads = 1, .seed = 1});
  layer.eval();
  KVCache cache = KVCache::growing(shape_for(layer, 2));
  layer(normal({2, 5, 8}, 1), {.cache = &cache, .counts = {5, 1}});
  layer(normal({2, 4, 8}, 1), {.cache = &cache, .counts = {1, 4}});
  EXPECT_EQ(cache.lengths(), (Lengths{6, 5}));
  EXPECT_EQ(error_of([&] {
              layer(normal({2, 1, 8}, 1), {.cache = &cache});
            }),
            "MultiHeadAttention: tokens (6 in the cache and 1 new of sequence 0) exceed "
            "context_length (6)");
}

}  // namespace
}  // namespace cephalo
