// One query against keys and values in place, in every storage type, beside a plain softmax.
#include <algorithm>

#include "tests/kernels/masked_tile.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
struct DecodeKernelsTest : KernelTest<T> {
  static std::vector<DType> storage_types() {
    if (sizeof(T) == 8) return {DType::f64};
    return {DType::f32, DType::bf16, DType::f16};
  }
};
TYPED_TEST_SUITE(DecodeKernelsTest, NumberTypes);

constexpr dim_t kMaskWidth = 3;  // the query is in lane 0, the others are nobody's

template <typename T>
struct Block {
  Block(dim_t count, dim_t head_dim, dim_t v_dim, double size, DType dtype, const MaskParts& parts,
        Numbers& numbers)
      : keys(count, head_dim, 1, dtype, numbers),
        values(count, v_dim, 1, dtype, numbers),
        masked(parts, count, kMaskWidth, numbers) {
    for (dim_t j = 0; j < count; ++j) {
      for (dim_t d = 0; d < head_dim; ++d) keys.set(j, d, size * keys.at(j, d));
    }
  }
  StoredRows keys, values;
  MaskedTile<T> masked;
};

template <typename T>
struct Query {
  Query(dim_t head_dim, dim_t v_dim, Numbers& numbers)
      : q(head_dim, numbers),
        context(Guarded<T>::filled(v_dim, T(0))),
        query{q.data(), context.data(), -std::numeric_limits<T>::infinity(), T(0), false} {}
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  void decode(Block<T>& block, const Rows& coming) {
    decode_kernels<T>(current_isa())
        .decode({block.keys.rows(), block.values.rows(), coming}, block.masked.mask(), kMaskWidth,
                &query);
    ASSERT_TRUE(context.fences_stand());
  }
  Estimate score(const Block<T>& block, dim_t j) const {
    Dot dot;
    for (dim_t d = 0; d < q.count(); ++d) dot.add(double{q[d]}, block.keys.at(j, d));
    return block.masked.score(dot, j, 0, -j);
  }

  Guarded<T> q, context;
  DecodeQuery<T> query;
};

template <typename T>
void expect_softmax(const Query<T>& q, const std::vector<const Block<T>*>& blocks) {
  const dim_t v_dim = q.context.count();
  std::vector<double> context(static_cast<std::size_t>(v_dim));
  std::vector<double> magnitude(context.size());
  double sum = 0.0;
  double largest = -HUGE_VAL;
  double relative = 0.0;
  dim_t count = 0;
  for (const Block<T>* block : blocks) {
    for (dim_t j = 0; j < block->masked.rows(); ++j) {
      if (!block->masked.sees(j, 0)) continue;
      ++count;
      const Estimate score = q.score(*block, j);
      largest = std::max(largest, score.value);
      relative = std::max(relative,
                          score.error + 4 * KernelTest<T>::kEpsilon * (1 + std::abs(score.value)));
      const double weight = std::exp2(score.value);
      sum += weight;
      for (dim_t d = 0; d < v_dim; ++d) {
        const double part = weight * block->masked.share_kept(j, 0) * block->values.at(j, d);
        context[static_cast<std::size_t>(d)] += part;
        magnitude[static_cast<std::size_t>(d)] += std::abs(part);
      }
    }
  }
  ASSERT_NEAR(double{q.query.reference}, largest, relative) << "the largest score";
  relative =
      2 * relative + 4 * kExp2Error<T> + KernelTest<T>::kEpsilon * static_cast<double>(count + 4);
  const double scale = std::exp2(double{q.query.reference});
  ASSERT_NEAR(double{q.query.sum} * scale, sum, sum * relative);
  for (dim_t d = 0; d < v_dim; ++d) {
    const auto k = static_cast<std::size_t>(d);
    ASSERT_NEAR(double{q.context[d]} * scale, context[k], magnitude[k] * relative)
        << d << " of " << v_dim;
  }
}

TYPED_TEST(DecodeKernelsTest, context_is_a_softmax_in_every_storage_type_and_size) {
  using T = TypeParam;
  Numbers numbers(40);
  const dim_t wide = 5 * this->lanes();  // four vectors of values at a time, and more
  for (const DType dtype : this->storage_types()) {
    for (const MaskParts& parts : kMaskCases) {
      for (dim_t n = 1; n <= wide + 1; ++n) {
        const dim_t head_dim = 1 + n * 7 % this->most();
        const dim_t count = n % 11 == 0 ? kKvTile : 1 + n * 3 % this->most();
        Query<T> query(head_dim, n, numbers);
        // The second block's scores are larger: the first one's share shrinks.
        Block<T> first(count, head_dim, n, 1.0, dtype, parts, numbers);
        Block<T> second(count, head_dim, n, 9.0, dtype, parts, numbers);
        query.decode(first, second.keys.rows());
        query.decode(second, {nullptr, 0, head_dim, 1, dtype});
        expect_softmax<T>(query, {&first, &second});
        if (this->HasFatalFailure()) {
          FAIL() << name(dtype) << ", " << count << " keys of " << head_dim << ", values of " << n;
        }
      }
    }
  }
}

TYPED_TEST(DecodeKernelsTest, a_hidden_value_that_is_no_number_changes_no_bit) {
  using T = TypeParam;
  Numbers numbers(41);
  for (dim_t count = 2; count <= this->most(); ++count) {
    const dim_t v_dim = this->most();
    Block<T> block(count, 3, v_dim, 1.0, DTypeOf<T>::value, {.bits = true}, numbers);
    block.masked.hide(count - 1, 0);
    Numbers same(42);
    Query<T> clean(3, v_dim, same);
    clean.decode(block, {nullptr, 0, 3, 1, DTypeOf<T>::value});
    for (dim_t d = 0; d < v_dim; ++d) block.values.set(count - 1, d, NAN);
    for (dim_t d = 0; d < 3; ++d) block.keys.set(count - 1, d, NAN);
    Numbers again(42);
    Query<T> spoilt(3, v_dim, again);
    spoilt.decode(block, {nullptr, 0, 3, 1, DTypeOf<T>::value});
    EXPECT_TRUE(spoilt.context.same_bits(clean.context)) << count;
    EXPECT_EQ(spoilt.query.sum, clean.query.sum);
  }
}

TYPED_TEST(DecodeKernelsTest, a_visible_score_that_is_no_number_breaks_the_row) {
  using T = TypeParam;
  Numbers numbers(43);
  for (dim_t count = 1; count <= this->most(); ++count) {
    for (const double wrong : {std::nan(""), HUGE_VAL}) {
      Block<T> block(count, 1, 1, 1.0, DTypeOf<T>::value, {}, numbers);
      block.keys.set(count - 1, 0, wrong);
      Query<T> query(1, 1, numbers);
      query.q[0] = T(1);
      query.decode(block, {nullptr, 0, 1, 1, DTypeOf<T>::value});
      EXPECT_TRUE(std::isnan(query.query.sum)) << count;
    }
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
