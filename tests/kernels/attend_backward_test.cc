// reweigh, differentiate and add_dq, each beside a plain loop in float64 over what the one before
// it left.
#include <algorithm>

#include "tests/kernels/masked_tile.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using BackwardKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(BackwardKernelsTest, NumberTypes);

struct Sizes {
  dim_t queries;
  dim_t keys;  // up to the lanes of the tile
  dim_t head_dim;
  dim_t v_dim;
  int columns;
};

// A block of queries against a tile of keys, laid out by plain code.
template <typename T>
struct Problem {
  Problem(const Sizes& s, const MaskParts& parts, Numbers& numbers)
      : attend(*attend_kernels<T, T>(isa_for<T>())),
        kernels(*backward_kernels<T, T>(isa_for<T>())),
        sizes(s),
        width(s.columns * attend.lanes),
        padded(round_up(s.queries, attend.rows)),
        key_stride(round_up(s.head_dim, attend.lanes)),
        masked(parts, s.queries, width, numbers),
        q(s.queries * s.head_dim, numbers),
        dcontext(s.queries * s.v_dim, numbers),
        k(s.head_dim * width, numbers),
        v(s.v_dim * width, numbers),
        key_rows(width * key_stride, numbers),
        minus_lse(Guarded<T>::filled(padded, T(0))),
        minus_delta(Guarded<T>::filled(padded, T(0))),
        packed_q(broadcast_layout<T>(s.queries, s.head_dim, attend.rows,
                                     [&](dim_t i, dim_t d) { return q[i * s.head_dim + d]; })),
        packed_dcontext(
            broadcast_layout<T>(s.queries, s.v_dim, attend.rows,
                                [&](dim_t i, dim_t d) { return dcontext[i * s.v_dim + d]; })),
        weights(padded * width),
        tanhs(padded * width),
        dscores(padded * width),
        dq(padded * key_stride, numbers),
        strips(padded / attend.rows) {
    for (dim_t i = 0; i < s.queries; ++i) {
      minus_lse[i] = static_cast<T>(numbers.uniform(-4.0, 1.0));
      minus_delta[i] = static_cast<T>(numbers.uniform(-1.0, 1.0));
    }
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  QueryBlock<T, T> block() const {
    return {packed_q.data(), packed_dcontext.data(), minus_lse.data(), minus_delta.data(),
            sizes.queries,   sizes.head_dim,         sizes.v_dim,      nullptr};
  }
  KeyTile<T> tile(bool finite = true) const {
    return {k.data(), v.data(), key_rows.data(), key_stride, sizes.keys, sizes.columns, finite};
  }
  bool fences_stand() const {
    return weights.fences_stand() && tanhs.fences_stand() && dscores.fences_stand() &&
           dq.fences_stand() && strips.fences_stand();
  }
  // Each pair of a query and a key that is there, and whether a kernel had to look at it.
  template <typename Check>
  void for_pairs(const Check& check) const {
    for (dim_t i = 0; i < sizes.queries; ++i) {
      const StripColumns columns = strips[i / attend.rows];
      for (dim_t x = 0; x < sizes.keys; ++x) {
        const dim_t column = x / attend.lanes - columns.first;
        const bool computed = column >= 0 && column < columns.count;
        ASSERT_TRUE(computed || !masked.sees(i, x)) << "query " << i << ", key " << x;
        if (computed) check(i, x);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

  const AttendKernels<T, T>& attend;
  const BackwardKernels<T, T>& kernels;
  Sizes sizes;
  dim_t width, padded, key_stride;
  MaskedTile<T> masked;
  Guarded<T> q, dcontext;     // [queries][head_dim], [queries][v_dim]
  Guarded<T> k, v, key_rows;  // as in KeyTile
  Guarded<T> minus_lse, minus_delta, packed_q, packed_dcontext;
  Guarded<T> weights, tanhs, dscores, dq;
  Guarded<StripColumns> strips;
};

// weights = 2^(score − lse), 0 where hidden; tanhs = tanh(score / softcap).
template <typename T>
void check_reweigh(Problem<T>& p) {
  constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
  p.kernels.reweigh(p.block(), p.tile(), p.masked.mask(), p.weights.data(), p.tanhs.data(),
                    p.strips.data());
  ASSERT_TRUE(p.fences_stand());
  ASSERT_TRUE(p.masked.has_softcap() || p.tanhs.untouched(0, p.tanhs.count()));
  p.for_pairs([&](dim_t i, dim_t x) {
    const T found = p.weights[i * p.width + x];
    if (!p.masked.sees(i, x)) {
      ASSERT_EQ(found, T(0));
      return;
    }
    Dot dot;
    for (dim_t d = 0; d < p.sizes.head_dim; ++d) {
      dot.add(double{p.q[i * p.sizes.head_dim + d]}, double{p.k[d * p.width + x]});
    }
    const Estimate score = p.masked.score(dot, i, x, i - x);
    const double lse = -double{p.minus_lse[i]};
    const double weight = std::exp2(score.value - lse);
    const double exponent = score.error + 2 * kEpsilon * (std::abs(score.value) + std::abs(lse));
    ASSERT_NEAR(double{found}, weight, weight * (2 * kExp2Error<T> + exponent))
        << "query " << i << ", key " << x;
    if (p.masked.has_softcap()) {
      ASSERT_NEAR(double{p.tanhs[i * p.width + x]}, std::tanh(dot.value() / 5.0),
                  kTanhError<T> + 2 * kEpsilon + dot.as<T>().error);
    }
  });
}

// dscores = weights · (dropped dcontext · v − delta) · (1 − tanhs²), 0 where hidden; then weights
// drop.
template <typename T>
void check_differentiate(Problem<T>& p) {
  constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
  const Guarded<T> before = p.weights;
  p.kernels.differentiate(p.block(), p.tile(), p.masked.mask(), p.strips.data(), p.tanhs.data(),
                          p.weights.data(), p.dscores.data());
  ASSERT_TRUE(p.fences_stand());
  p.for_pairs([&](dim_t i, dim_t x) {
    const dim_t at = i * p.width + x;
    const double weight = double{before[at]};
    const double kept = p.masked.share_kept(i, x);
    ASSERT_NEAR(double{p.weights[at]}, weight * kept, weight * kept * kEpsilon);
    if (!p.masked.sees(i, x)) {
      ASSERT_EQ(p.dscores[at], T(0));
      return;
    }
    Dot dweight;
    for (dim_t d = 0; d < p.sizes.v_dim; ++d) {
      dweight.add(double{p.dcontext[i * p.sizes.v_dim + d]}, double{p.v[d * p.width + x]});
    }
    const double tanh = p.masked.has_softcap() ? double{p.tanhs[at]} : 0.0;
    const double slope = 1.0 - tanh * tanh;
    const double minus_delta = double{p.minus_delta[i]};
    const double expected = weight * (kept * dweight.value() + minus_delta) * slope;
    const double bound =
        weight * (2 * dweight.as<T>().error +
                  4 * kEpsilon * (kept * dweight.magnitude() + std::abs(minus_delta)));
    ASSERT_NEAR(double{p.dscores[at]}, expected, bound) << "query " << i << ", key " << x;
  });
}

// dq += dscores · k over the keys that are there, whole vectors of each row.
template <typename T>
void check_add_dq(Problem<T>& p, bool finite) {
  const Guarded<T> before = p.dq;
  p.kernels.add_dq(p.block(), p.tile(finite), p.masked.mask(), p.strips.data(), p.dscores.data(),
                   p.dq.data());
  ASSERT_TRUE(p.fences_stand());
  for (dim_t i = 0; i < p.sizes.queries; ++i) {
    for (dim_t d = 0; d < p.key_stride; ++d) {
      Dot sum;
      sum.add(1.0, double{before[i * p.key_stride + d]});
      for (dim_t x = 0; x < p.sizes.keys; ++x) {
        if (!p.masked.sees(i, x)) continue;
        sum.add(double{p.dscores[i * p.width + x]}, double{p.key_rows[x * p.key_stride + d]});
      }
      const Estimate expected = sum.as<T>();
      ASSERT_NEAR(double{p.dq[i * p.key_stride + d]}, expected.value, expected.error)
          << "query " << i << ", element " << d;
    }
  }
}

template <typename T, typename Check>
void for_all_sizes(const Check& check) {
  const AttendKernels<T, T>& attend = *attend_kernels<T, T>(isa_for<T>());
  Numbers numbers(50);
  const dim_t most = std::max<dim_t>(2 * attend.rows + 1, 2 * attend.lanes + 1);
  for (const MaskParts& parts : kMaskCases) {
    for (int columns = 1; columns <= kMaxColumns; ++columns) {
      for (dim_t n = 1; n <= most; ++n) {
        const dim_t keys = (columns - 1) * attend.lanes + 1 + n % attend.lanes;
        // Heads of up to seven vectors: dq goes three, two or one at a time.
        const Sizes sizes{n, keys, 1 + (n * 7) % (7 * attend.lanes), 1 + (n * 5) % most, columns};
        check(sizes, parts, numbers);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(BackwardKernelsTest, weights_gradients_of_scores_and_dq_are_those_of_plain_loops) {
  using T = TypeParam;
  for_all_sizes<T>([](const Sizes& sizes, const MaskParts& parts, Numbers& numbers) {
    Problem<T> problem(sizes, parts, numbers);
    check_reweigh(problem);
    check_differentiate(problem);
    check_add_dq(problem, true);
    if (::testing::Test::HasFatalFailure()) {
      FAIL() << sizes.queries << " queries, " << sizes.keys << " keys of " << sizes.head_dim;
    }
  });
}

TYPED_TEST(BackwardKernelsTest, a_hidden_key_that_is_no_number_reaches_no_gradient) {
  using T = TypeParam;
  Numbers numbers(51);
  for (dim_t queries = 1; queries <= 2 * this->rows() + 1; ++queries) {
    const Sizes sizes{queries, 2 * this->lanes(), 5, 3, 2};
    Problem<T> p(sizes, {.bits = true}, numbers);
    const dim_t hidden = 2 * this->lanes() - 1;
    for (dim_t i = 0; i < queries; ++i) p.masked.hide(i, hidden);
    for (dim_t d = 0; d < 5; ++d) p.k[d * p.width + hidden] = T(NAN);
    for (dim_t d = 0; d < 3; ++d) p.v[d * p.width + hidden] = T(NAN);
    for (dim_t d = 0; d < 5; ++d) p.key_rows[hidden * p.key_stride + d] = T(NAN);
    check_reweigh(p);
    check_differentiate(p);
    check_add_dq(p, false);
    if (this->HasFatalFailure()) FAIL() << queries << " queries";
  }
}

// Whole numbers around 1e7: differences that base 2 could not hold.
TYPED_TEST(BackwardKernelsTest, far_rows_are_subtracted_in_natural_units) {
  using T = TypeParam;
  Numbers numbers(52);
  const Sizes sizes{3, this->lanes(), 1, 1, 1};
  Problem<T> p(sizes, {}, numbers);
  for (dim_t x = 0; x < p.width; ++x) p.k[x] = T(0);
  Guarded<T> bias(p.padded * p.width);
  for (dim_t k = 0; k < bias.count(); ++k) bias[k] = T(-1e7) - T(k % p.width);
  const Guarded<std::uint8_t> far = Guarded<std::uint8_t>::filled(p.padded, 1);
  for (dim_t i = 0; i < 3; ++i) p.minus_lse[i] = T(1e7);
  TileMask<T> mask{};
  mask.bias = bias.data();
  QueryBlock<T, T> block = p.block();
  block.far = far.data();
  p.kernels.reweigh(block, p.tile(), &mask, p.weights.data(), p.tanhs.data(), p.strips.data());
  for (dim_t i = 0; i < 3; ++i) {
    for (dim_t x = 0; x < p.width; ++x) {
      EXPECT_NEAR(double{p.weights[i * p.width + x]}, std::exp(-static_cast<double>(x)), 1e-6);
    }
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
