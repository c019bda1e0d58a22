// A problem cut into rectangles gives the whole's results: every mask, dropout, both engines.
#include "cephalo/mask/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/plan.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/support/backward_engines.h"
#include "tests/support/mask_spec.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::error_of;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::make_mask_spec;
using testing::mask_combinations;
using testing::MaskSpec;
using testing::normal;
using testing::same_bits;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  dim_t begin, end;
  dim_t size() const { return end - begin; }
};

struct Rectangle {
  Range batch, heads, q, kv;
};

// [0, cuts[0]), [cuts[0], cuts[1]) ... up to `end`
std::vector<Range> ranges(const std::vector<dim_t>& cuts, dim_t end) {
  std::vector<Range> all;
  dim_t begin = 0;
  for (const dim_t cut : cuts) {
    all.push_back({begin, cut});
    begin = cut;
  }
  all.push_back({begin, end});
  return all;
}

struct Cuts {
  std::vector<dim_t> batch, heads, q, kv;
};

std::vector<Rectangle> rectangles(const Cuts& cuts, const MaskExtent& whole) {
  std::vector<Rectangle> all;
  for (const Range& batch : ranges(cuts.batch, whole.batch)) {
    for (const Range& heads : ranges(cuts.heads, whole.num_heads)) {
      for (const Range& q : ranges(cuts.q, whole.q_tokens)) {
        for (const Range& kv : ranges(cuts.kv, whole.kv_tokens)) {
          all.push_back({batch, heads, q, kv});
        }
      }
    }
  }
  return all;
}

template <typename View>
View part(const View& t, int axis, const Range& range) {
  return t.slice(axis, range.begin, range.end);
}

// t: [batch, heads, q, ...]
template <typename View>
View rows_of(const View& t, const Rectangle& r) {
  return part(part(part(t, 0, r.batch), 1, r.heads), 2, r.q);
}

// A mask's tensor: [batch | 1, heads | 1, q | 1, k | 1], or with fewer axes in front.
TensorView pairs_of(const TensorView& t, const Rectangle& r) {
  const Range* axes[] = {&r.batch, &r.heads, &r.q, &r.kv};
  TensorView cut = t;
  for (int axis = -1; axis >= -t.rank(); --axis) {
    if (t.dim(axis) != 1) cut = part(cut, t.rank() + axis, *axes[4 + axis]);
  }
  return cut;
}

Mask mask_of(const Mask& whole, const Rectangle& r) {
  Mask mask = whole;
  for (MaskTensor& tensor : mask.tensors) tensor.view = pairs_of(tensor.view, r);
  return mask;
}

// A whole problem, and the parts of it that belong to a rectangle.
struct Whole {
  Whole(const MaskExtent& e, dim_t kv_heads, dim_t dim, std::uint64_t seed, DType dtype)
      : extent(e),
        num_kv_heads(kv_heads),
        q(normal({e.batch, e.num_heads, e.q_tokens, dim}, seed, dtype)),
        k(normal({e.batch, kv_heads, e.kv_tokens, dim}, seed + 1, dtype)),
        v(normal({e.batch, kv_heads, e.kv_tokens, dim}, seed + 2, dtype)),
        dcontext(normal({e.batch, e.num_heads, e.q_tokens, dim}, seed + 3, dtype)),
        dlse(normal({e.batch, e.num_heads, e.q_tokens}, seed + 4, dtype)) {}

  // [batch, kv_heads, kv, dim]: the key heads that the rectangle's heads use
  template <typename View>
  View keys_of(const View& t, const Rectangle& r) const {
    const dim_t group = extent.num_heads / num_kv_heads;
    const Range kv_heads{r.heads.begin / group, (r.heads.end - 1) / group + 1};
    return part(part(part(t, 0, r.batch), 1, kv_heads), 2, r.kv);
  }

  AttendOptions options_of(AttendOptions options, const Rectangle& r) const {
    options.place = {.batch = {r.batch.begin, extent.batch},
                     .heads = {r.heads.begin, extent.num_heads},
                     .q_tokens = {r.q.begin, extent.q_tokens},
                     .kv_tokens = {r.kv.begin, extent.kv_tokens}};
    return options;
  }

  AttendResult forward(const Mask& mask, const AttendOptions& options) const {
    return attend(q, k, v, mask, options);
  }
  AttendResult forward(const Mask& mask, const AttendOptions& options, const Rectangle& r) const {
    return attend(rows_of(TensorView(q), r), keys_of(TensorView(k), r), keys_of(TensorView(v), r),
                  mask_of(mask, r), options_of(options, r));
  }
  AttendGradients backward(const AttendResult& of, const Mask& mask,
                           const AttendOptions& options) const {
    return attend_backward({of.context, of.lse, dcontext, dlse}, q, k, v, mask, options, true);
  }
  // `of` is the whole's
  AttendGradients backward(const AttendResult& of, const Mask& mask, const AttendOptions& options,
                           const Rectangle& r) const {
    return attend_backward({rows_of(TensorView(of.context), r), rows_of(TensorView(of.lse), r),
                            rows_of(TensorView(dcontext), r), rows_of(TensorView(dlse), r)},
                           rows_of(TensorView(q), r), keys_of(TensorView(k), r),
                           keys_of(TensorView(v), r), mask_of(mask, r), options_of(options, r),
                           true);
  }

  MaskExtent extent;
  dim_t num_kv_heads;
  Tensor q, k, v, dcontext, dlse;
};

class PlaceTest : public ::testing::TestWithParam<Engine> {
 protected:
  AttendOptions options() const { return {.return_lse = true, .engine = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Engines, PlaceTest, ::testing::ValuesIn(testing::kWeightsEngines),
                         [](const auto& engine) { return std::string(name(engine.param)); });

// to += from
void add(const MutableTensorView& to, const TensorView& from) {
  Tensor sum = Tensor::copy(to, DType::f64);
  const Tensor more = Tensor::copy(from, DType::f64);
  for (dim_t n = 0; n < sum.numel(); ++n) {
    sum.mutable_data_as<double>()[n] += more.data_as<double>()[n];
  }
  to.copy_from(sum);
}

double relative_difference(const TensorView& a, const TensorView& b) {
  return largest_difference(a, b) / std::max(1.0, testing::largest_magnitude(b));
}

// The lanes of a vector move the references of their softmax together, so the last digit of a row
// depends on its neighbours in the tile. A cut between sequences, heads or tiles of queries changes
// no bit; 48 queries are whole tiles of every width.
TEST_P(PlaceTest, rectangles_of_whole_rows_have_the_bits_of_the_whole) {
  TorchGenerator generator(31);
  const MaskExtent e{3, 4, 97, 70};
  const std::vector<Rectangle> cut = rectangles({{1}, {2}, {48}, {}}, e);
  for (const auto& parts : mask_combinations()) {
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Whole whole(e, 2, 12, 5, DType::f32);
    for (const double dropout : {0.0, 0.3}) {
      AttendOptions wanted = options();
      wanted.dropout = dropout;
      wanted.seed = 9;
      wanted.return_weights = true;
      const AttendResult all = whole.forward(mask.mask, wanted);
      for (const Rectangle& r : cut) {
        const AttendResult own = whole.forward(mask.mask, wanted, r);
        ASSERT_TRUE(same_bits(own.context, rows_of(TensorView(all.context), r))) << mask.name;
        ASSERT_TRUE(same_bits(own.lse, rows_of(TensorView(all.lse), r))) << mask.name;
        ASSERT_TRUE(same_bits(own.weights, rows_of(TensorView(all.weights), r))) << mask.name;
      }
    }
  }
}

// lse and context of rectangles that share rows, joined in float64.
struct Joined {
  explicit Joined(const Whole& whole)
      : lse(Tensor::full(whole.dlse.shape(), -kInfinity, DType::f64)),
        context(Tensor::zeros(whole.dcontext.shape(), DType::f64)) {}

  void add(const AttendResult& own, const Rectangle& r) {
    for (dim_t b = r.batch.begin; b < r.batch.end; ++b) {
      for (dim_t h = r.heads.begin; h < r.heads.end; ++h) {
        for (dim_t i = r.q.begin; i < r.q.end; ++i) {
          const Dims at{b - r.batch.begin, h - r.heads.begin, i - r.q.begin};
          const double more = own.lse.at(at);
          if (more == -kInfinity) continue;
          const double before = lse.at({b, h, i});
          const double high = std::max(before, more);
          const double sum = high + std::log(std::exp(before - high) + std::exp(more - high));
          for (dim_t d = 0; d < context.dim(3); ++d) {
            const double value = context.at({b, h, i, d}) * std::exp(before - sum) +
                                 own.context.at({at[0], at[1], at[2], d}) * std::exp(more - sum);
            context.set({b, h, i, d}, value);
          }
          lse.set({b, h, i}, sum);
        }
      }
    }
  }

  Tensor lse, context;
};

// A cut between keys changes the order of sums, and an lse is rounded for every piece: float32 is
// off by a few of its last digits.
TEST_P(PlaceTest, rectangles_of_keys_join_by_lse_into_the_whole) {
  TorchGenerator generator(32);
  double worst[2] = {};
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const MaskExtent e{2, 4, generator.randint(1, 60), generator.randint(3, 150)};
      const MaskSpec mask = make_mask_spec(parts, e, generator);
      const Whole whole(e, 2, 8, 7, dtype);
      AttendOptions wanted = options();
      wanted.dropout = ++rounds % 3 == 0 ? 0.0 : 0.4;
      wanted.seed = 77;
      const AttendResult all = whole.forward(mask.mask, wanted);
      const dim_t first = generator.randint(1, e.kv_tokens - 1);
      const Cuts cuts{
          {1}, {1, 2}, {e.q_tokens / 3}, {first, generator.randint(first, e.kv_tokens)}};
      Joined joined(whole);
      for (const Rectangle& r : rectangles(cuts, e)) {
        joined.add(whole.forward(mask.mask, wanted, r), r);
      }
      SCOPED_TRACE(format_text("tokens {}/{} dropout {} {}", e.q_tokens, e.kv_tokens,
                               wanted.dropout, mask.name));
      const double bound = dtype == DType::f32 ? 2e-6 : 1e-14;
      const double error = std::max(relative_difference(joined.context, all.context),
                                    relative_difference(joined.lse, all.lse));
      ASSERT_LE(error, bound);
      double& most = worst[dtype == DType::f32 ? 0 : 1];
      most = std::max(most, error);
    }
  }
  testing::report(
      format_text("{} engine: rectangles of keys, worst {:.1e} in float32, {:.1e} in "
                  "float64",
                  name(GetParam()), worst[0], worst[1]));
}

// dq adds up over keys, dk and dv over queries and over the heads that share them, dbias over
// wherever it was repeated; context and lse are the whole's.
TEST_P(PlaceTest, gradients_of_rectangles_add_up_to_those_of_the_whole) {
  TorchGenerator generator(33);
  double worst[2] = {};
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const MaskExtent e{2, 4, generator.randint(3, 80), generator.randint(3, 120)};
      const MaskSpec mask = make_mask_spec(parts, e, generator);
      const Whole whole(e, 2, 8, 11, dtype);
      AttendOptions wanted = options();
      wanted.dropout = ++rounds % 3 == 0 ? 0.0 : 0.4;
      wanted.seed = 78;
      if (rounds % 2 == 0) wanted.softcap = 3.0;
      const AttendResult all = whole.forward(mask.mask, wanted);
      const AttendGradients expected = whole.backward(all, mask.mask, wanted);
      AttendGradients sum{Tensor::zeros(whole.q.shape(), DType::f64),
                          Tensor::zeros(whole.k.shape(), DType::f64),
                          Tensor::zeros(whole.v.shape(), DType::f64),
                          {}};
      for (const Tensor& dbias : expected.dbias) {
        sum.dbias.push_back(Tensor::zeros(dbias.shape(), DType::f64));
      }
      const Cuts cuts{
          {1}, {1, 2}, {generator.randint(1, e.q_tokens)}, {generator.randint(1, e.kv_tokens)}};
      for (const Rectangle& r : rectangles(cuts, e)) {
        const AttendGradients own = whole.backward(all, mask.mask, wanted, r);
        add(rows_of(sum.dq.mutable_view(), r), own.dq);
        add(whole.keys_of(sum.dk.mutable_view(), r), own.dk);
        add(whole.keys_of(sum.dv.mutable_view(), r), own.dv);
        ASSERT_EQ(own.dbias.size(), sum.dbias.size());
        for (std::size_t n = 0; n < sum.dbias.size(); ++n) {
          MutableTensorView to = sum.dbias[n];  // [heads, q, k]
          to = part(part(part(to, 0, r.heads), 1, r.q), 2, r.kv);
          add(to, own.dbias[n]);
        }
      }
      SCOPED_TRACE(format_text("tokens {}/{} dropout {} {}", e.q_tokens, e.kv_tokens,
                               wanted.dropout, mask.name));
      double error = std::max({relative_difference(sum.dq, expected.dq),
                               relative_difference(sum.dk, expected.dk),
                               relative_difference(sum.dv, expected.dv)});
      for (std::size_t n = 0; n < sum.dbias.size(); ++n) {
        error = std::max(error, relative_difference(sum.dbias[n], expected.dbias[n]));
      }
      ASSERT_LE(error, dtype == DType::f32 ? 2e-6 : 1e-14);
      double& most = worst[dtype == DType::f32 ? 0 : 1];
      most = std::max(most, error);
    }
  }
  testing::report(
      format_text("{} engine: gradients of rectangles, worst {:.1e} in float32, {:.1e} "
                  "in float64",
                  name(GetParam()), worst[0], worst[1]));
}

// Keys of a row are all in one rectangle: sums of dk and dv have the whole's order, those of dq
// depend on how many sequences and heads there are (as many pieces as keep the threads busy).
TEST_P(PlaceTest, gradients_of_whole_rows_are_the_wholes) {
  TorchGenerator generator(34);
  const MaskExtent e{3, 4, 60, 300};
  for (const char* part : {"none", "causal", "documents", "bias", "alibi"}) {
    const MaskSpec mask = make_mask_spec({part}, e, generator);
    const Whole whole(e, 2, 12, 5, DType::f32);
    AttendOptions wanted = options();
    wanted.dropout = 0.3;
    const AttendResult all = whole.forward(mask.mask, wanted);
    const AttendGradients expected = whole.backward(all, mask.mask, wanted);
    for (const Rectangle& r : rectangles({{1}, {2}, {}, {}}, e)) {
      const AttendGradients own = whole.backward(all, mask.mask, wanted, r);
      EXPECT_TRUE(same_bits(own.dk, whole.keys_of(TensorView(expected.dk), r))) << part;
      EXPECT_TRUE(same_bits(own.dv, whole.keys_of(TensorView(expected.dv), r))) << part;
      EXPECT_LE(relative_difference(own.dq, rows_of(TensorView(expected.dq), r)), 1e-6) << part;
    }
  }
}

TEST_P(PlaceTest, an_lse_beyond_1024_needs_no_sum_over_keys_that_are_elsewhere) {
  const MaskExtent e{1, 2, 30, 50};
  const Whole whole(e, 2, 8, 3, DType::f64);
  const Tensor high = Tensor::full({1, 1}, 3000.0, DType::f64);
  const Mask mask = bias(high);
  const AttendResult all = whole.forward(mask, options());
  ASSERT_GT(all.lse.at({0, 0, 0}), 1024.0);
  const AttendGradients expected = whole.backward(all, mask, options());
  Tensor dq = Tensor::zeros(whole.q.shape(), DType::f64);
  for (const Rectangle& r : rectangles({{}, {}, {}, {20}}, e)) {
    const AttendGradients own = whole.backward(all, mask, options(), r);
    add(rows_of(dq.mutable_view(), r), own.dq);
    EXPECT_LE(relative_difference(own.dk, whole.keys_of(TensorView(expected.dk), r)), 1e-11);
    EXPECT_LE(relative_difference(own.dv, whole.keys_of(TensorView(expected.dv), r)), 1e-11);
  }
  EXPECT_LE(relative_difference(dq, expected.dq), 1e-11);
}

TEST_P(PlaceTest, a_row_that_sees_no_key_of_its_rectangle_is_empty_there) {
  const MaskExtent e{1, 2, 40, 40};
  const Whole whole(e, 2, 8, 3, DType::f32);
  const Mask mask = causal();
  const AttendResult all = whole.forward(mask, options());
  const Rectangle future{{0, 1}, {0, 2}, {0, 20}, {20, 40}};
  const AttendResult own = whole.forward(mask, options(), future);
  EXPECT_TRUE(all_zero(own.context));
  for (dim_t i = 0; i < 20; ++i) EXPECT_EQ(own.lse.at({0, 1, i}), -kInfinity);
  const AttendGradients gradients = whole.backward(all, mask, options(), future);
  EXPECT_TRUE(all_zero(gradients.dq));
  EXPECT_TRUE(all_zero(gradients.dk));
  EXPECT_TRUE(all_zero(gradients.dv));
}

TEST(PlaceWeightsTest, rectangles_have_the_weights_and_the_dropout_of_the_whole) {
  TorchGenerator generator(35);
  const MaskExtent e{2, 4, 50, 90};
  AttendOptions wanted{.dropout = 0.4, .seed = 5, .return_lse = true};
  const WeightsSelection dropped{.heads = {}, .rows = {}, .dropped = true};
  for (const auto& parts : mask_combinations()) {
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Whole whole(e, 2, 8, 3, DType::f32);
    const AttendResult all = whole.forward(mask.mask, wanted);
    const Tensor expected = weights(whole.q, whole.k, all.lse, mask.mask, wanted, dropped);
    const Cuts cuts{{1}, {1, 2}, {21}, {generator.randint(1, 90)}};
    for (const Rectangle& r : rectangles(cuts, e)) {
      const TensorView k = whole.keys_of(TensorView(whole.k), r);
      const TensorView q = rows_of(TensorView(whole.q), r);
      const TensorView lse = rows_of(TensorView(all.lse), r);
      const AttendOptions placed = whole.options_of(wanted, r);
      const Tensor own = weights(q, k, lse, mask_of(mask.mask, r), placed, dropped);
      const Tensor same = Tensor::copy(part(rows_of(TensorView(expected), r), 3, r.kv));
      ASSERT_LE(largest_difference(own, same), 2e-6) << mask.name;
      for (dim_t n = 0; n < own.numel(); ++n) {
        ASSERT_EQ(own.data_as<float>()[n] == 0.0F, same.data_as<float>()[n] == 0.0F) << mask.name;
      }
      // As many cells as there are pairs: each is a weight.
      const Tensor kept = weights(q, k, lse, mask_of(mask.mask, r), placed);
      const PooledWeights cells =
          pooled_weights(q, k, lse, 100, r.heads.size() - 1, 0, mask_of(mask.mask, r), placed);
      ASSERT_TRUE(same_bits(cells.largest, kept[0][r.heads.size() - 1])) << mask.name;
    }
  }
}

TEST(PlaceWeightsTest, sums_of_rows_add_up_over_rectangles_of_keys) {
  TorchGenerator generator(36);
  const MaskExtent e{2, 2, 40, 40};
  Tensor tokens = Tensor::empty({40}, DType::i64);
  for (dim_t j = 0; j < 40; ++j) {
    tokens.mutable_data_as<std::int64_t>()[j] = generator.randint(0, 6);
  }
  const auto is_largest = [](dim_t sum) {
    return sum == static_cast<dim_t>(RowSum::largest) ||
           sum == static_cast<dim_t>(RowSum::has_duplicate) ||
           sum == static_cast<dim_t>(RowSum::has_induction);
  };
  for (const char* part_name : {"none", "causal", "window", "offset", "lengths", "documents"}) {
    const MaskSpec mask = make_mask_spec({part_name}, e, generator);
    const Whole whole(e, 1, 8, 3, DType::f32);
    const AttendResult all = whole.forward(mask.mask, {.return_lse = true});
    const Tensor expected = row_sums(whole.q, whole.k, all.lse, tokens, mask.mask);
    Tensor sums = Tensor::zeros(expected.shape(), DType::f64);
    for (const Rectangle& r : rectangles({{1}, {1}, {13}, {7, 22}}, e)) {
      const Tensor own = row_sums(
          rows_of(TensorView(whole.q), r), whole.keys_of(TensorView(whole.k), r),
          rows_of(TensorView(all.lse), r), tokens, mask_of(mask.mask, r), whole.options_of({}, r));
      MutableTensorView to = rows_of(sums.mutable_view(), r);
      for (dim_t b = 0; b < own.dim(0); ++b) {
        for (dim_t h = 0; h < own.dim(1); ++h) {
          for (dim_t i = 0; i < own.dim(2); ++i) {
            for (dim_t s = 0; s < kRowSums; ++s) {
              const double before = TensorView(to).at({b, h, i, s});
              const double more = own.at({b, h, i, s});
              to.set({b, h, i, s}, is_largest(s) ? std::max(before, more) : before + more);
            }
          }
        }
      }
    }
    EXPECT_LE(relative_difference(sums, expected), 2e-6) << part_name;
  }
}

TEST_P(PlaceTest, a_cache_of_some_sequences_and_heads_answers_as_one_of_all) {
  const MaskExtent e{3, 4, 2, 9};
  Tensor ids = Tensor::empty({3, 9}, DType::i64);
  for (dim_t n = 0; n < 27; ++n) ids.mutable_data_as<std::int64_t>()[n] = n / 5;
  const Tensor q_ids = Tensor::copy(TensorView(ids).slice(1, 7, 9));
  const Mask mask = causal({1, 9, 4}) & documents(q_ids, ids) & alibi(alibi_slopes(4));
  const Whole whole(e, 2, 8, 3, DType::f32);
  AttendOptions wanted = options();
  wanted.dropout = 0.3;
  const KVCacheShape shape{.batch = 3, .num_kv_heads = 2, .head_dim = 8, .v_dim = 8};
  const auto filled = [](const KVCacheShape& of, const TensorView& k, const TensorView& v) {
    KVCache cache = KVCache::growing(of);
    cache.append(k.slice(2, 0, 7), v.slice(2, 0, 7));
    cache.append(k.slice(2, 7, 9), v.slice(2, 7, 9));
    return cache;
  };
  const AttendResult all = attend(whole.q, filled(shape, whole.k, whole.v), mask, wanted);
  for (const Rectangle& r : rectangles({{2}, {2}, {}, {}}, e)) {
    KVCacheShape own_shape = shape;
    own_shape.batch = r.batch.size();
    own_shape.num_kv_heads = 1;
    const KVCache cache = filled(own_shape, whole.keys_of(TensorView(whole.k), r),
                                 whole.keys_of(TensorView(whole.v), r));
    AttendOptions placed = wanted;
    placed.place = {.batch = {r.batch.begin, 3}, .heads = {r.heads.begin, 4}};
    const AttendResult own = attend(rows_of(TensorView(whole.q), r), cache, mask, placed);
    EXPECT_TRUE(same_bits(own.context, rows_of(TensorView(all.context), r)));
    EXPECT_TRUE(same_bits(own.lse, rows_of(TensorView(all.lse), r)));
    placed.place.kv_tokens = {0, 20};
    EXPECT_EQ(error_of([&] { attend(rows_of(TensorView(whole.q), r), cache, mask, placed); }),
              "attend: a cache holds every key of its sequences; place may cut batch and heads "
              "alone");
  }
}

TEST(PlaceErrorsTest, a_rectangle_outside_of_its_whole_is_an_error_with_numbers) {
  const Tensor t = normal({2, 2, 5, 4}, 1);
  const auto attempt = [&](const Place& place, const Mask& mask = {}) {
    return error_of([&] { attend(t, t, t, mask, {.place = place}); });
  };
  EXPECT_EQ(attempt({.kv_tokens = {7, 10}}),
            "attend: place.kv_tokens: 5 from 7 on are not inside a whole of 10");
  EXPECT_EQ(attempt({.batch = {-1, 4}}),
            "attend: place.batch: 2 from -1 on are not inside a whole of 4");
  EXPECT_EQ(attempt({.heads = {0, 1}}),
            "attend: place.heads: 2 from 0 on are not inside a whole of 1");
  EXPECT_EQ(attempt({.q_tokens = {3, 0}}),
            "attend: place.q_tokens begins at 3; give the length of the whole");
  EXPECT_EQ(attempt({.q_tokens = {3, -8}}),
            "attend: place.q_tokens: 5 from 3 on are not inside a whole of -8");
  EXPECT_EQ(attempt({.batch = {0, dim_t{1} << 40}}),
            "attend: place.batch: a whole of 1099511627776 is longer than 4294967295");
  EXPECT_EQ(attempt({.kv_tokens = {5, 10}}), "");
}

TEST(PlaceErrorsTest, what_speaks_of_sequences_heads_or_tokens_is_the_wholes) {
  const Tensor t = normal({2, 2, 5, 4}, 1);
  const Tensor ids = Tensor::zeros({4, 5}, DType::i64);
  const Tensor pairs = Tensor::zeros({10, 5});
  const auto attempt = [&](const Mask& mask) {
    const Place place{.batch = {1, 4}, .heads = {0, 8}, .q_tokens = {5, 10}};
    return error_of([&] { attend(t, t, t, mask, {.place = place}); });
  };
  EXPECT_EQ(attempt(lengths({1, 2})), "attend: lengths(kv) has 2 entries, batch is 4");
  EXPECT_EQ(attempt(lengths({5, 5, 5, 5}, {10, 0, 7, 10})), "");
  EXPECT_EQ(attempt(causal({1, 2})), "attend: causal(prefix) has 2 entries, batch is 4");
  EXPECT_EQ(attempt(alibi({1.0F, 1.0F})), "attend: alibi has 2 slopes, num_heads is 8");
  EXPECT_EQ(attempt(documents(ids, ids)),
            "attend: documents ids [4, 5] must be [4 (batch), 10 (q_tokens)]");
  EXPECT_EQ(attempt(bias(pairs)),
            "attend: bias([10, 5]) does not broadcast to [batch, heads, q, k] = [2, 2, 5, 5]; a "
            "mask of three dimensions is [heads, q, k]");
}

TEST(PlaceErrorsTest, torch_streams_draw_for_whole_problems_alone) {
  const Tensor t = normal({1, 1, 5, 4}, 1);
  TorchGenerator generator(1);
  const AttendOptions options{.dropout = 0.5,
                              .dropout_stream = DropoutStream::torch,
                              .generator = &generator,
                              .place = {.q_tokens = {0, 10}}};
  EXPECT_EQ(error_of([&] { attend(t, t, t, {}, options); }),
            "attend: the torch dropout streams draw for a whole problem in its memory order; a "
            "rectangle of one needs the counter stream");
}

}  // namespace
}  // namespace cephalo
