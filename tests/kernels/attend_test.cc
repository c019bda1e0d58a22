// weigh and gather, one tile of queries against blocks of keys, beside plain loops in float64.
#include <algorithm>

#include "tests/kernels/masked_tile.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using AttendKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(AttendKernelsTest, NumberTypes);

struct Sizes {
  dim_t count;  // keys of a block
  dim_t head_dim;
  dim_t v_dim;
  int columns;
};

// Keys and values of one block with its mask. q · k has about this size: larger ones in a later
// block make references move.
template <typename T>
struct Block {
  Block(const Sizes& s, double size, const MaskParts& parts, Numbers& numbers)
      : kernels(*attend_kernels<T, T>(isa_for<T>())),
        sizes(s),
        k(s.count * s.head_dim, numbers, -size, size),
        v(s.count * s.v_dim, numbers),
        masked(parts, s.count, s.columns * kernels.lanes, numbers),
        value_stride(s.count * kernels.rows + 5),
        keys(broadcast_layout<T>(s.count, s.head_dim, kernels.rows,
                                 [&](dim_t j, dim_t d) { return k[j * s.head_dim + d]; })),
        values(value_groups() * value_stride),
        weights(round_up(s.count, kernels.rows) * s.columns * kernels.lanes),
        strips(round_up(s.count, kernels.rows) / kernels.rows) {
    pack_values();
  }

  dim_t value_groups() const { return round_up(sizes.v_dim, kernels.rows) / kernels.rows; }
  void pack_values() {
    for (dim_t g = 0; g < value_groups(); ++g) {
      for (dim_t at = 0; at < sizes.count * kernels.rows; ++at) {
        const dim_t d = g * kernels.rows + at % kernels.rows;
        const dim_t j = at / kernels.rows;
        values[g * value_stride + at] = d < sizes.v_dim ? v[j * sizes.v_dim + d] : T(0);
      }
    }
  }
  KeyBlock<T> packed(bool finite = true) const {
    return {keys.data(), values.data(), sizes.count, sizes.head_dim,
            sizes.v_dim, value_stride,  finite};
  }

  const AttendKernels<T, T>& kernels;
  Sizes sizes;
  Guarded<T> k, v;  // [count][head_dim], [count][v_dim]
  MaskedTile<T> masked;
  dim_t value_stride;
  Guarded<T> keys, values, weights;
  Guarded<StripColumns> strips;
};

// Queries in lanes that have seen nothing yet.
template <typename T>
struct Tile {
  Tile(const Sizes& s, Numbers& numbers)
      : kernels(*attend_kernels<T, T>(isa_for<T>())),
        width(s.columns * kernels.lanes),
        head_dim(s.head_dim),
        q(s.head_dim * width, numbers),
        context(Guarded<T>::filled(round_up(s.v_dim, kernels.rows) * width, T(0))),
        minus_reference(Guarded<T>::filled(width, kNoReference<T>)),
        sum(Guarded<T>::filled(width, T(0))),
        tile{q.data(), context.data(), minus_reference.data(), sum.data(), s.columns, 0, false,
             0,        false} {}
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;

  void attend(Block<T>& block, bool finite = true) {
    const TileMask<T>* mask = block.masked.mask();
    kernels.weigh(block.packed(finite), tile, mask, block.weights.data(), block.strips.data());
    kernels.gather(block.packed(finite), tile, mask, block.weights.data(), block.strips.data());
    ASSERT_TRUE(context.fences_stand() && minus_reference.fences_stand() && sum.fences_stand());
    ASSERT_TRUE(block.weights.fences_stand() && block.strips.fences_stand());
  }

  Estimate score(const Block<T>& block, dim_t j, dim_t x) const {
    Dot dot;
    for (dim_t d = 0; d < head_dim; ++d) {
      dot.add(double{block.k[j * head_dim + d]}, double{q[d * width + x]});
    }
    return block.masked.score(dot, j, x, x - j);
  }
  // How far the logarithm of a weight may be off, beside exp2 itself.
  double exponent_error(const Estimate& score, dim_t x) const {
    const double at = std::abs(score.value) + std::abs(double{minus_reference[x]});
    return 0.6931 * (score.error + 2 * KernelTest<T>::kEpsilon * at);
  }

  const AttendKernels<T, T>& kernels;
  dim_t width, head_dim;
  Guarded<T> q, context, minus_reference, sum;
  QueryTile<T, T> tile;
};

// Each weight of the last block is 2^(score − reference), 0 where hidden, after dropout.
template <typename T>
void expect_weights(const Tile<T>& tile, const Block<T>& block) {
  const dim_t rows = tile.kernels.rows;
  const double least = sizeof(T) == 4 ? 0x1p-99 : 0x1p-899;  // below 2^-100 is 0
  for (dim_t j = 0; j < block.sizes.count; ++j) {
    const StripColumns columns = block.strips[j / rows];
    for (dim_t x = 0; x < tile.width; ++x) {
      const dim_t column = x / tile.kernels.lanes - columns.first;
      const bool computed = column >= 0 && column < columns.count;
      if (!block.masked.sees(j, x)) {
        ASSERT_TRUE(!computed || block.weights[j * tile.width + x] == T(0));
        continue;
      }
      ASSERT_TRUE(computed) << "key " << j << ", lane " << x;
      const Estimate score = tile.score(block, j, x);
      const double weight = std::exp2(score.value + double{tile.minus_reference[x]});
      if (weight < least) continue;
      // Moved references scale weights of strips before: one more exponential for each move.
      const double relative = 3 * kExp2Error<T> + 2 * tile.exponent_error(score, x);
      const double kept = block.masked.share_kept(j, x);
      ASSERT_NEAR(double{block.weights[j * tile.width + x]}, kept * weight,
                  kept * weight * relative)
          << "key " << j << " of " << block.sizes.count << ", lane " << x;
      ASSERT_TRUE(tile.tile.fixed || weight < 257.0) << "the reference is more than 8 below";
    }
  }
}

// Sums and context of everything seen are those of a plain softmax.
template <typename T>
void expect_softmax(const Tile<T>& tile, const std::vector<const Block<T>*>& blocks) {
  const Sizes& s = blocks.front()->sizes;
  for (dim_t x = 0; x < tile.width; ++x) {
    std::vector<double> context(static_cast<std::size_t>(s.v_dim));
    std::vector<double> magnitude(context.size());
    double sum = 0.0;
    double relative = 0.0;
    for (const Block<T>* block : blocks) {
      for (dim_t j = 0; j < s.count; ++j) {
        if (!block->masked.sees(j, x)) continue;
        const Estimate score = tile.score(*block, j, x);
        relative = std::max(relative, tile.exponent_error(score, x));
        const double weight = std::exp2(score.value);
        sum += weight;
        for (dim_t d = 0; d < s.v_dim; ++d) {
          const double part =
              weight * block->masked.share_kept(j, x) * double{block->v[j * s.v_dim + d]};
          context[static_cast<std::size_t>(d)] += part;
          magnitude[static_cast<std::size_t>(d)] += std::abs(part);
        }
      }
    }
    if (sum == 0.0) {  // nothing was visible
      ASSERT_EQ(tile.sum[x], T(0));
      for (dim_t d = 0; d < s.v_dim; ++d) ASSERT_EQ(tile.context[d * tile.width + x], T(0));
      continue;
    }
    relative = 2 * relative + 6 * kExp2Error<T> +
               KernelTest<T>::kEpsilon * static_cast<double>(s.count + 4);
    const double scale = std::exp2(-double{tile.minus_reference[x]});
    ASSERT_NEAR(double{tile.sum[x]} * scale, sum, sum * relative) << "lane " << x;
    for (dim_t d = 0; d < s.v_dim; ++d) {
      ASSERT_NEAR(double{tile.context[d * tile.width + x]} * scale,
                  context[static_cast<std::size_t>(d)],
                  magnitude[static_cast<std::size_t>(d)] * relative + 1e-37)
          << "lane " << x << ", value " << d;
    }
  }
}

// Every number of keys up to two strips and one more, every width of values and of heads: each in
// some company.
template <typename T, typename Check>
void for_all_sizes(const Check& check) {
  const AttendKernels<T, T>& kernels = *attend_kernels<T, T>(isa_for<T>());
  Numbers numbers(12);
  const dim_t most = std::max<dim_t>(2 * kernels.rows + 1, 2 * kernels.lanes + 1);
  for (const MaskParts& parts : kMaskCases) {
    for (int columns = 1; columns <= kMaxColumns; ++columns) {
      for (dim_t n = 1; n <= most; ++n) {
        const Sizes sizes{n, 1 + (n * 7) % most, 1 + (n * 5) % most, columns};
        check(sizes, parts, numbers);
        if (::testing::Test::HasFatalFailure()) return;
      }
      check(Sizes{kKvTile, 16, kernels.rows, columns}, parts, numbers);
    }
  }
}

TYPED_TEST(AttendKernelsTest, weights_are_powers_and_context_a_softmax) {
  using T = TypeParam;
  for_all_sizes<T>([](const Sizes& sizes, const MaskParts& parts, Numbers& numbers) {
    Tile<T> tile(sizes, numbers);
    Block<T> first(sizes, 1.0, parts, numbers);
    Block<T> second(sizes, 12.0, parts, numbers);  // scores that move references
    Block<T> third(sizes, 1.0, parts, numbers);
    for (Block<T>* block : {&first, &second, &third}) {
      tile.attend(*block);
      expect_weights(tile, *block);
    }
    expect_softmax<T>(tile, {&first, &second, &third});
  });
}

TYPED_TEST(AttendKernelsTest, fixed_references_never_move) {
  using T = TypeParam;
  for_all_sizes<T>([](const Sizes& sizes, const MaskParts& parts, Numbers& numbers) {
    Tile<T> tile(sizes, numbers);
    for (dim_t x = 0; x < tile.width; ++x) tile.minus_reference[x] = T(0.25) * T(x % 9) - T(20);
    const Guarded<T> before = tile.minus_reference;
    tile.tile.seen = ~std::uint64_t{0};
    tile.tile.fixed = true;
    Block<T> block(sizes, 4.0, parts, numbers);
    tile.attend(block);
    ASSERT_TRUE(tile.minus_reference.same_bits(before));
    expect_weights(tile, block);
    expect_softmax<T>(tile, {&block});
  });
}

TYPED_TEST(AttendKernelsTest, a_hidden_value_that_is_no_number_changes_no_bit) {
  using T = TypeParam;
  Numbers numbers(13);
  for (dim_t count = 1; count <= 2 * this->rows() + 1; ++count) {
    const Sizes sizes{count, 5, this->rows() + 1, 2};
    Block<T> block(sizes, 1.0, {.bits = true}, numbers);
    const dim_t hidden = count / 2;
    for (dim_t x = 0; x < 2 * this->lanes(); ++x) block.masked.hide(hidden, x);
    Numbers same(14);
    Tile<T> clean(sizes, same);
    clean.attend(block);
    for (dim_t d = 0; d < sizes.v_dim; ++d) block.v[hidden * sizes.v_dim + d] = T(NAN);
    block.pack_values();
    Numbers again(14);
    Tile<T> spoilt(sizes, again);
    spoilt.attend(block, false);
    EXPECT_TRUE(spoilt.sum.same_bits(clean.sum));
    EXPECT_TRUE(spoilt.context.same_bits(clean.context)) << count << " keys";
  }
}

TYPED_TEST(AttendKernelsTest, a_query_that_is_no_number_breaks_its_own_lane_alone) {
  using T = TypeParam;
  Numbers numbers(15);
  const Sizes sizes{2 * this->rows() + 1, 3, this->rows(), 2};
  Block<T> block(sizes, 1.0, {}, numbers);
  for (dim_t broken = 0; broken < 2 * this->lanes(); ++broken) {
    Numbers same(16);
    Tile<T> clean(sizes, same);
    clean.attend(block);
    Numbers again(16);
    Tile<T> tile(sizes, again);
    tile.q[broken] = T(NAN);
    tile.attend(block);
    for (dim_t x = 0; x < tile.width; ++x) {
      if (x == broken) {
        EXPECT_TRUE(std::isnan(tile.sum[x]));
        continue;
      }
      EXPECT_TRUE(same_number(tile.sum[x], clean.sum[x])) << x << " beside " << broken;
      EXPECT_TRUE(same_number(tile.context[x], clean.context[x])) << x << " beside " << broken;
    }
  }
}

// Scores of −1e7 are whole numbers in float32: a row that far off keeps them apart.
TYPED_TEST(AttendKernelsTest, a_large_bias_is_rounded_in_natural_units) {
  using T = TypeParam;
  Numbers numbers(17);
  const Sizes sizes{5, 1, 1, 1};
  Block<T> block(sizes, 1.0, {.bits = true}, numbers);
  const dim_t width = this->lanes();
  Guarded<T> bias(8 * width);
  for (dim_t k = 0; k < bias.count(); ++k) bias[k] = T(-1e7) + T(k / width);
  Tile<T> tile(sizes, numbers);
  for (dim_t x = 0; x < width; ++x) tile.q[x] = T(0);
  TileMask<T> mask{};
  mask.bias = bias.data();
  this->attend().weigh(block.packed(), tile.tile, &mask, block.weights.data(), block.strips.data());
  EXPECT_EQ(tile.tile.far, (std::uint64_t{1} << width) - 1);
  for (dim_t x = 0; x < width; ++x) {
    for (dim_t j = 0; j < 5; ++j) {
      const double distance = double{bias[j * width + x]} + double{tile.minus_reference[x]};
      EXPECT_NEAR(double{block.weights[j * width + x]}, std::exp(distance),
                  1e-6 * std::exp(distance));
      EXPECT_LE(std::abs(distance), 4.0) << "the reference is one of the scores";
    }
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
