// Rows whose bias is one large finite number, as padding masks have them: scores are rounded after
// the bias is added, so that -1e4 costs digits and the lowest number leaves equal weights; and the
// weights of a row add up to 1, forward and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/plan.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/format.h"
#include "cephalo/core/views.h"
#include "tests/support/backward_engines.h"
#include "tests/support/rounded_attention.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::largest_difference;
using testing::largest_magnitude;
using testing::normal;
using testing::rounded_attention;
using testing::RoundedAttention;
using testing::RoundedPass;

constexpr double kLowest32 = -3.4028234663852886e38;
constexpr double kLowest64 = -std::numeric_limits<double>::max();

class LargeBiasTest : public ::testing::TestWithParam<Engine> {
 protected:
  AttendOptions options() const {
    return {.scale = 1.0, .return_lse = true, .return_weights = true, .engine = GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, LargeBiasTest, ::testing::ValuesIn(testing::kWeightsEngines),
                         [](const auto& engine) { return std::string(name(engine.param)); });

// Normal numbers on a grid, times `size`.
Tensor on_grid(const Shape& shape, std::uint64_t seed, double step, double size, DType dtype) {
  const Tensor numbers = normal(shape, seed);
  Tensor t = Tensor::empty(shape, dtype);
  for (dim_t i = 0; i < shape[0]; ++i) {
    for (dim_t j = 0; j < shape[1]; ++j) {
      t.set({i, j}, std::round(numbers.at({i, j}) * size / step) * step);
    }
  }
  return t;
}

struct Problem {
  Tensor q, k, v, bias, dcontext, dlse;
  RoundedPass pass() const { return {q, k, v, bias, dcontext, dlse}; }
};

// Scores are multiples of 2^-10, plus 2^-12: sums with a large bias are never near the middle
// between two numbers, where an engine's own last digit would decide which of them the score
// becomes.
Problem make_problem(dim_t queries, dim_t keys, DType dtype) {
  Problem p{on_grid({queries, 16}, 1, 0x1p-4, 1.0, dtype),
            on_grid({keys, 16}, 2, 0x1p-6, 0.3, dtype),
            normal({keys, 5}, 3, dtype),
            Tensor::zeros({queries, keys}, dtype),
            normal({queries, 5}, 4, dtype),
            normal({queries}, 5, dtype)};
  for (dim_t i = 0; i < queries; ++i) p.q.set({i, 15}, 1.0);
  for (dim_t j = 0; j < keys; ++j) p.k.set({j, 15}, 0x1p-12);
  return p;
}

// What a row of the bias is made of: the large number everywhere, on the first or the last half,
// nowhere; and on top of it small numbers or not.
void fill_bias(Problem& p, double large, bool mixed) {
  const dim_t keys = p.bias.dim(1);
  const Tensor small = on_grid(p.bias.shape(), 6, 0x1p-10, 1.0, DType::f64);
  for (dim_t i = 0; i < p.bias.dim(0); ++i) {
    const dim_t kind = mixed ? i % 5 : 0;
    for (dim_t j = 0; j < keys; ++j) {
      const bool first_half = j < keys / 2;
      const bool is_large =
          kind == 0 || kind == 1 || (kind == 2 && first_half) || (kind == 3 && !first_half);
      p.bias.set({i, j}, (is_large ? large : 0.0) + (kind > 0 ? small.at({i, j}) : 0.0));
    }
  }
}

double row_sum(const TensorView& weights, dim_t i) {
  double sum = 0.0;
  for (dim_t j = 0; j < weights.dim(1); ++j) sum += weights.at({i, j});
  return sum;
}

// Errors as a share of what is allowed: 1 is the bound.
struct Bounds {
  double forward, backward, weights;
};
Bounds bounds_for(DType dtype) {
  return dtype == DType::f64 ? Bounds{1e-14, 1e-13, 2e-14} : Bounds{0x1p-20, 0x1p-18, 2e-6};
}

void expect_forward(const Problem& p, const RoundedAttention& exact, const AttendResult& ours,
                    const Bounds& bounds) {
  EXPECT_LE(largest_difference(ours.context, exact.context),
            bounds.forward * largest_magnitude(p.v));
  EXPECT_LE(largest_difference(ours.weights, exact.weights), bounds.weights);
  for (dim_t i = 0; i < p.q.dim(0); ++i) {
    const double lse = exact.lse.at({i});
    ASSERT_LE(std::abs(ours.lse.at({i}) - lse), bounds.forward * std::max(1.0, std::abs(lse))) << i;
    ASSERT_NEAR(row_sum(ours.weights, i), 1.0, 10 * bounds.weights) << i;
  }
}

void expect_backward(const RoundedAttention& exact, const AttendGradients& ours,
                     const Bounds& bounds) {
  const auto near = [&](const Tensor& g, const Tensor& truth) {
    return largest_difference(g, truth) <= bounds.backward * largest_magnitude(truth);
  };
  EXPECT_TRUE(near(ours.dq, exact.dq)) << largest_difference(ours.dq, exact.dq);
  EXPECT_TRUE(near(ours.dk, exact.dk)) << largest_difference(ours.dk, exact.dk);
  EXPECT_TRUE(near(ours.dv, exact.dv)) << largest_difference(ours.dv, exact.dv);
  EXPECT_TRUE(near(ours.dbias[0], exact.dbias)) << largest_difference(ours.dbias[0], exact.dbias);
}

struct Size {
  dim_t queries, keys;
};
constexpr Size kSizes[] = {{1, 8}, {64, 64}, {300, 700}};

TEST_P(LargeBiasTest, scores_are_rounded_after_the_bias_forward_and_back) {
  struct Case {
    DType dtype;
    double large;
  };
  const Case cases[] = {{DType::f32, -1e4},  {DType::f32, -1e7},      {DType::f32, -1e9},
                        {DType::f32, 1e7},   {DType::f32, kLowest32}, {DType::f32, -kLowest32},
                        {DType::f64, -1e16}, {DType::f64, kLowest64}};
  for (const Case& c : cases) {
    for (const Size& size : kSizes) {
      for (const bool mixed : {false, true}) {
        SCOPED_TRACE(format_text("{} x {} {} bias {}{}", size.queries, size.keys, name(c.dtype),
                                 c.large, mixed ? ", ordinary rows between" : ""));
        Problem p = make_problem(size.queries, size.keys, c.dtype);
        fill_bias(p, c.large, mixed);
        const RoundedAttention exact = c.dtype == DType::f64 ? rounded_attention<double>(p.pass())
                                                             : rounded_attention<float>(p.pass());
        const Mask mask = bias(p.bias);
        const AttendResult r = attend(p.q, p.k, p.v, mask, options());
        expect_forward(p, exact, r, bounds_for(c.dtype));
        const AttendGradients g = attend_backward({r.context, r.lse, p.dcontext, p.dlse}, p.q, p.k,
                                                  p.v, mask, options(), true);
        expect_backward(exact, g, bounds_for(c.dtype));
      }
    }
  }
}

// With dcontext and dlse of ones dv of all keys adds up to what every row's weights do.
TEST_P(LargeBiasTest, weights_of_the_backward_pass_add_up_to_one) {
  for (const double large : {-1e4, -1e7, -1e9, kLowest32, 1e5}) {
    Problem p = make_problem(64, 64, DType::f32);
    fill_bias(p, large, false);
    p.dcontext.mutable_view().fill(1.0);
    const Mask mask = bias(p.bias);
    const AttendResult r = attend(p.q, p.k, p.v, mask, options());
    const AttendGradients g =
        attend_backward({r.context, r.lse, p.dcontext}, p.q, p.k, p.v, mask, options(), true);
    double weights = 0.0;
    for (dim_t j = 0; j < 64; ++j) weights += g.dv.at({j, 0});
    EXPECT_NEAR(weights, 64.0, 1e-4) << large;
    // The gradients of a row's scores add up to 0: delta is of the same weights.
    for (dim_t i = 0; i < 64; ++i) EXPECT_NEAR(row_sum(g.dbias[0], i), 0.0, 1e-6) << large;
  }
}

// Scores alone can be as large: no bias rounds them, but lse is rounded all the same.
TEST_P(LargeBiasTest, weights_of_large_scores_add_up_to_one_backward_too) {
  const Tensor k = normal({60, 8}, 2);
  Tensor q = normal({60, 8}, 1);
  for (dim_t i = 0; i < 60; ++i) {
    for (dim_t d = 0; d < 8; ++d) q.set({i, d}, 1e4 * q.at({i, d}));
  }
  const Tensor v = normal({60, 4}, 3);
  const AttendResult r = attend(q, k, v, {}, options());
  const Tensor ones = Tensor::full({60, 4}, 1.0);
  const AttendGradients g = attend_backward({r.context, r.lse, ones}, q, k, v, {}, options());
  double weights = 0.0;
  for (dim_t j = 0; j < 60; ++j) weights += g.dv.at({j, 0});
  EXPECT_NEAR(weights, 60.0, 1e-4);
}

TEST_P(LargeBiasTest, other_parts_of_the_mask_and_a_softcap_go_with_it) {
  for (const double large : {-1e9, kLowest32}) {
    for (const Size& size : kSizes) {
      Problem p = make_problem(size.queries, size.keys, DType::f32);
      fill_bias(p, large, true);
      const Mask mask = bias(p.bias) & alibi({0.25F}) & causal();
      AttendOptions with = options();
      with.softcap = 4.0;
      AttendOptions reference = with;
      reference.engine = Engine::reference;
      const AttendResult ours = attend(p.q, p.k, p.v, mask, with);
      const AttendResult expected = attend(p.q, p.k, p.v, mask, reference);
      // Alibi alone takes up to 75 from ordinary scores, which the reference engine rounds as well.
      EXPECT_LE(largest_difference(ours.context, expected.context), 1e-5) << large;
      EXPECT_LE(largest_difference(ours.weights, expected.weights), 1e-5) << large;
      const auto back = [&](const AttendResult& r, const AttendOptions& how) {
        return attend_backward({r.context, r.lse, p.dcontext, p.dlse}, p.q, p.k, p.v, mask, how);
      };
      const AttendGradients g = back(ours, with);
      const AttendGradients truth = back(expected, reference);
      EXPECT_LE(largest_difference(g.dq, truth.dq), 5e-5) << large;
      EXPECT_LE(largest_difference(g.dk, truth.dk), 5e-5) << large;
      EXPECT_LE(largest_difference(g.dv, truth.dv), 5e-5) << large;
    }
  }
}

TEST_P(LargeBiasTest, biases_that_add_up_to_minus_infinity_hide) {
  const Tensor q = normal({20, 8}, 1);
  const Tensor k = normal({30, 8}, 2);
  Tensor lowest = Tensor::zeros({1, 30});
  for (dim_t j = 10; j < 30; ++j) lowest.set({0, j}, kLowest32);
  const AttendResult r = attend(q, k, k, bias(lowest) & bias(lowest), options());
  const AttendResult hidden = attend(q, k.slice(0, 0, 10), k.slice(0, 0, 10), {}, options());
  EXPECT_LE(largest_difference(r.context, hidden.context), 2e-6);
  const Tensor all = Tensor::full({1, 30}, kLowest32);
  const AttendResult nothing = attend(q, k, k, bias(all) & bias(all), options());
  EXPECT_TRUE(testing::all_zero(nothing.context));
  EXPECT_TRUE(testing::all_zero(nothing.weights));
  EXPECT_EQ(nothing.lse.at({7}), -std::numeric_limits<double>::infinity());
}

TEST_P(LargeBiasTest, pooled_weights_and_row_sums_are_of_the_same_weights) {
  for (const double large : {-1e4, -1e7, -1e9, kLowest32}) {
    Problem p = make_problem(64, 64, DType::f32);
    fill_bias(p, large, true);
    const RoundedAttention exact = rounded_attention<float>(p.pass());
    const Mask mask = bias(p.bias);
    const AttendResult r = attend(p.q, p.k, p.v, mask, options());
    const PooledWeights pooled = pooled_weights(p.q, p.k, r.lse, 64, 0, 0, mask, options());
    EXPECT_LE(largest_difference(pooled.mean, exact.weights), 2e-6) << large;
    const Tensor sums = row_sums(p.q, p.k, r.lse, {}, mask, options());
    for (dim_t i = 0; i < 64; ++i) {
      double entropy = 0.0;
      for (dim_t j = 0; j < 64; ++j) {
        const double weight = exact.weights.at({i, j});
        if (weight > 0.0) entropy -= weight * std::log(weight);
      }
      const dim_t at = static_cast<dim_t>(RowSum::entropy);
      EXPECT_NEAR(sums.at({0, 0, i, at}), entropy, 2e-5) << large << " row " << i;
    }
  }
}

TEST_P(LargeBiasTest, decoding_with_a_cache_rounds_as_well) {
  for (const double large : {-1e4, -1e7, -1e9, kLowest32}) {
    Problem p = make_problem(3, 1300, DType::f32);  // three chunks of keys
    fill_bias(p, large, true);
    const RoundedAttention exact = rounded_attention<float>(p.pass());
    KVCache cache = KVCache::paged({.head_dim = 16, .v_dim = 5}, 64);
    const auto rows = [](const Tensor& t) { return view(t, {1, 1, t.dim(0), t.dim(1)}); };
    cache.append(rows(p.k).slice(2, 0, 1297), rows(p.v).slice(2, 0, 1297));
    cache.append(rows(p.k).slice(2, 1297, 1300), rows(p.v).slice(2, 1297, 1300));
    const AttendResult r = attend(rows(p.q), cache, bias(p.bias), options());
    EXPECT_LE(largest_difference(r.context[0][0], exact.context), 4e-6) << large;
    EXPECT_LE(largest_difference(r.weights[0][0], exact.weights), 2e-6) << large;
  }
}

// Scores are below 32 here: a bias of -1e9, whose neighbours are 64 apart, leaves nothing of them.
TEST_P(LargeBiasTest, a_layer_gives_padded_queries_the_mean_of_the_values) {
  for (const double large : {-1e9, kLowest32}) {
    MultiHeadAttention layer({.d_in = 12, .d_out = 12, .num_heads = 2, .causal = false, .seed = 1});
    layer.eval();
    const Tensor x = normal({1, 20, 12}, 2);
    Tensor padding = Tensor::zeros({20, 20});
    for (dim_t i = 12; i < 20; ++i) padding.mutable_view()[i].fill(large);
    const Mask mask = bias(padding);
    const Tensor y = layer(x, {.mask = mask, .engine = GetParam()});
    for (dim_t i = 13; i < 20; ++i) {
      EXPECT_LE(largest_difference(y[0][i], y[0][12]), 1e-6) << large;
    }
    EXPECT_GT(largest_difference(y[0][11], y[0][12]), 1e-3);
  }
}

}  // namespace
}  // namespace cephalo
