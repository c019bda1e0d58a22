// move_weights, differentiate, add_rows and drop, each against a plain loop in float64 over what
// the one before it left.
#include <algorithm>

#include "tests/kernels/masked_tile.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using SecondKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(SecondKernelsTest, NumberTypes);

struct Sizes {
  dim_t queries;
  dim_t keys;  // up to the lanes of the tile
  dim_t head_dim;
  dim_t v_dim;
  int columns;
  bool moves_bias;
};

// A block of queries against a tile of keys and a direction of both, laid out by plain code.
template <typename T>
struct Problem {
  Problem(const Sizes& s, const MaskParts& parts, Numbers& numbers)
      : attend(*attend_kernels<T, T>(isa_for<T>())),
        kernels(*second_kernels<T, T>(isa_for<T>())),
        sizes(s),
        width(s.columns * attend.lanes),
        padded(round_up(s.queries, attend.rows)),
        masked(parts, s.queries, width, numbers),
        q(s.queries * s.head_dim, numbers),
        uq(s.queries * s.head_dim, numbers),
        dcontext(s.queries * s.v_dim, numbers),
        k(s.head_dim * width, numbers),
        uk(s.head_dim * width, numbers),
        v(s.v_dim * width, numbers),
        uv(s.v_dim * width, numbers),
        tbias(padded * width, numbers),
        minus_tlse(padded, numbers),
        minus_delta(padded, numbers),
        minus_tdelta(padded, numbers),
        weights(padded * width, numbers, 0.0, 1.0),
        tanhs(padded * width, numbers),
        packed_q(pack(q, s.head_dim)),
        packed_uq(pack(uq, s.head_dim)),
        packed_dcontext(pack(dcontext, s.v_dim)),
        tweights(padded * width),
        tslopes(padded * width),
        dscores(padded * width),
        tdscores(padded * width),
        strips(padded / attend.rows) {
    for (dim_t r = 0; r < padded; r += attend.rows) strips[r / attend.rows] = all_columns();
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  StripColumns all_columns() const { return {0, static_cast<std::uint8_t>(sizes.columns)}; }
  Guarded<T> pack(const Guarded<T>& rows, dim_t dim) const {
    return broadcast_layout<T>(sizes.queries, dim, attend.rows,
                               [&](dim_t i, dim_t d) { return rows[i * dim + d]; });
  }
  QueryBlock<T, T> block() const {
    return {packed_q.data(), packed_dcontext.data(), nullptr,     minus_delta.data(),
            sizes.queries,   sizes.head_dim,         sizes.v_dim, nullptr};
  }
  KeyTile<T> tile() const {
    return {k.data(), v.data(), nullptr, 0, sizes.keys, sizes.columns, true};
  }
  TileDirection<T, T> along() const {
    return {packed_uq.data(),  uk.data(),
            uv.data(),         sizes.moves_bias ? tbias.data() : nullptr,
            minus_tlse.data(), minus_tdelta.data()};
  }
  PairTile<T, T> pairs() {
    return {strips.data(),  weights.data(), tanhs.data(),   tweights.data(),
            tslopes.data(), dscores.data(), tdscores.data()};
  }
  bool fences_stand() const {
    return tweights.fences_stand() && tslopes.fences_stand() && dscores.fences_stand() &&
           tdscores.fences_stand();
  }
  // The product of row i of a and lane x of b.
  void add(Dot& dot, const Guarded<T>& a, const Guarded<T>& b, dim_t dim, dim_t i, dim_t x) const {
    for (dim_t d = 0; d < dim; ++d) dot.add(double{a[i * dim + d]}, double{b[d * width + x]});
  }
  template <typename Check>
  void for_pairs(const Check& check) const {
    for (dim_t i = 0; i < sizes.queries; ++i) {
      for (dim_t x = 0; x < sizes.keys; ++x) {
        check(i, x, i * width + x);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

  const AttendKernels<T, T>& attend;
  const SecondKernels<T, T>& kernels;
  Sizes sizes;
  dim_t width, padded;
  MaskedTile<T> masked;
  Guarded<T> q, uq, dcontext;  // [queries][dim]
  Guarded<T> k, uk, v, uv;     // [dim][width]
  Guarded<T> tbias, minus_tlse, minus_delta, minus_tdelta, weights, tanhs;
  Guarded<T> packed_q, packed_uq, packed_dcontext;
  Guarded<T> tweights, tslopes, dscores, tdscores;
  Guarded<StripColumns> strips;
};

constexpr double kLn2 = 0.69314718055994531;

// tweights = weights · (tscores − tlse), tscores in natural units; tslopes = −2 tanh / c · tscores.
template <typename T>
void check_move_weights(Problem<T>& p) {
  constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
  p.kernels.move_weights(p.block(), p.tile(), p.masked.mask(), p.along(), p.pairs());
  ASSERT_TRUE(p.fences_stand());
  ASSERT_TRUE(p.masked.has_softcap() || p.tslopes.untouched(0, p.tslopes.count()));
  p.for_pairs([&](dim_t i, dim_t x, dim_t at) {
    if (!p.masked.sees(i, x)) {
      ASSERT_EQ(p.tweights[at], T(0));
      return;
    }
    Dot dot;
    p.add(dot, p.uq, p.k, p.sizes.head_dim, i, x);
    p.add(dot, p.q, p.uk, p.sizes.head_dim, i, x);
    double tscore = kLn2 * dot.value();
    double height = kLn2 * dot.magnitude();
    if (p.masked.has_softcap()) {
      const double tanh = double{p.tanhs[at]};
      tscore *= 1.0 - tanh * tanh;
      const double tslope = -2.0 * tanh / (5.0 * kLn2) * tscore;
      ASSERT_NEAR(double{p.tslopes[at]}, tslope, dot.as<T>().error + 8 * kEpsilon * height);
    }
    if (p.sizes.moves_bias) tscore += double{p.tbias[at]};
    height += 2.0;
    const double weight = double{p.weights[at]};
    ASSERT_NEAR(double{p.tweights[at]}, weight * (tscore + double{p.minus_tlse[i]}),
                weight * (dot.as<T>().error + 8 * kEpsilon * height))
        << "query " << i << ", key " << x;
  });
}

template <typename T>
void check_differentiate(Problem<T>& p) {
  constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
  p.kernels.differentiate(p.block(), p.tile(), p.masked.mask(), p.along(), p.pairs());
  ASSERT_TRUE(p.fences_stand());
  p.for_pairs([&](dim_t i, dim_t x, dim_t at) {
    if (!p.masked.sees(i, x)) {
      ASSERT_EQ(p.dscores[at], T(0));
      ASSERT_EQ(p.tdscores[at], T(0));
      return;
    }
    Dot dweight, tdweight;
    p.add(dweight, p.dcontext, p.v, p.sizes.v_dim, i, x);
    p.add(tdweight, p.dcontext, p.uv, p.sizes.v_dim, i, x);
    const double kept = p.masked.share_kept(i, x);
    const double weight = double{p.weights[at]}, tweight = double{p.tweights[at]};
    const double centred = kept * dweight.value() + double{p.minus_delta[i]};
    const double tcentred = kept * tdweight.value() + double{p.minus_tdelta[i]};
    double dscore = weight * centred;
    double tdscore = tweight * centred + weight * tcentred;
    double tslope = 0.0;
    if (p.masked.has_softcap()) {
      const double tanh = double{p.tanhs[at]};
      tslope = double{p.tslopes[at]};
      tdscore = (1.0 - tanh * tanh) * tdscore + tslope * dscore;
      dscore *= 1.0 - tanh * tanh;
    }
    const double error = 2 * (dweight.as<T>().error + tdweight.as<T>().error) +
                         8 * kEpsilon * (kept * (dweight.magnitude() + tdweight.magnitude()) + 2.0);
    ASSERT_NEAR(double{p.dscores[at]}, dscore, weight * error);
    ASSERT_NEAR(double{p.tdscores[at]}, tdscore,
                (weight + std::abs(tweight) + weight * std::abs(tslope)) * error)
        << "query " << i << ", key " << x;
  });
}

// Sums over the keys that are there; then dropout, which multiplies by nothing else.
template <typename T>
void check_sums_and_drop(Problem<T>& p) {
  constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
  // Past the keys there may be anything.
  for (dim_t i = 0; i < p.sizes.queries; ++i) {
    for (dim_t x = p.sizes.keys; x < p.width; ++x) p.tweights[i * p.width + x] = T(NAN);
  }
  std::vector<double> sums(static_cast<std::size_t>(p.sizes.queries), 3.0);
  p.kernels.add_rows(p.block(), p.tile(), p.strips.data(), p.tweights.data(), sums.data());
  for (dim_t i = 0; i < p.sizes.queries; ++i) {
    double sum = 3.0, height = 0.0;
    for (dim_t x = 0; x < p.sizes.keys; ++x) {
      sum += double{p.tweights[i * p.width + x]};
      height += std::abs(double{p.tweights[i * p.width + x]});
    }
    ASSERT_NEAR(sums[static_cast<std::size_t>(i)], sum, 8 * kEpsilon * height + 1e-15);
  }
  const Guarded<T> before = p.tweights;
  p.kernels.drop(p.block(), p.tile(), p.masked.mask(), p.strips.data(), p.tweights.data());
  ASSERT_TRUE(p.fences_stand());
  p.for_pairs([&](dim_t i, dim_t x, dim_t at) {
    const double expected = double{before[at]} * p.masked.share_kept(i, x);
    ASSERT_NEAR(double{p.tweights[at]}, expected, kEpsilon * std::abs(expected));
  });
}

TYPED_TEST(SecondKernelsTest, movements_of_weights_and_gradients_are_those_of_plain_loops) {
  using T = TypeParam;
  Numbers numbers(60);
  const dim_t most = std::max<dim_t>(2 * this->rows() + 1, this->most());
  for (const MaskParts& parts : kMaskCases) {
    for (int columns = 1; columns <= kMaxColumns; ++columns) {
      for (dim_t n = 1; n <= most; ++n) {
        const dim_t keys = (columns - 1) * this->lanes() + 1 + n % this->lanes();
        const Sizes sizes{n, keys, 1 + n * 7 % 40, 1 + n * 5 % most, columns, n % 2 == 0};
        Problem<T> problem(sizes, parts, numbers);
        check_move_weights(problem);
        check_differentiate(problem);
        check_sums_and_drop(problem);
        if (this->HasFatalFailure()) FAIL() << n << " queries, " << keys << " keys";
      }
    }
  }
}

TYPED_TEST(SecondKernelsTest, a_hidden_key_that_is_no_number_moves_nothing) {
  using T = TypeParam;
  Numbers numbers(61);
  for (dim_t queries = 1; queries <= 2 * this->rows() + 1; ++queries) {
    Problem<T> p({queries, 2 * this->lanes(), 5, 3, 2, false}, {.bits = true}, numbers);
    const dim_t hidden = 2 * this->lanes() - 1;
    for (dim_t i = 0; i < queries; ++i) {
      p.masked.hide(i, hidden);
      p.weights[i * p.width + hidden] = T(0);
    }
    for (dim_t d = 0; d < 5; ++d) {
      p.k[d * p.width + hidden] = T(NAN);
      p.uk[d * p.width + hidden] = T(NAN);
    }
    for (dim_t d = 0; d < 3; ++d) {
      p.v[d * p.width + hidden] = T(NAN);
      p.uv[d * p.width + hidden] = T(NAN);
    }
    check_move_weights(p);
    check_differentiate(p);
    if (this->HasFatalFailure()) FAIL() << queries << " queries";
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
