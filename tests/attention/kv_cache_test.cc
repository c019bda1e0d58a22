#include "cephalo/attention/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;
using testing::same_bits;
using Kind = KVCache::Kind;
using Lengths = std::vector<dim_t>;
using Bytes = std::vector<std::byte>;
using Rows = std::vector<Bytes>;  // of one sequence and head, by position

constexpr std::array kKinds{Kind::growing, Kind::ring, Kind::paged};
constexpr std::array kTypes{DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr dim_t kRoom = 16;  // of a ring, of a page

KVCache make(Kind kind, const KVCacheShape& shape, DType dtype = DType::f32) {
  if (kind == Kind::growing) return KVCache::growing(shape, dtype);
  if (kind == Kind::ring) return KVCache::ring(shape, kRoom, dtype);
  return KVCache::paged(shape, kRoom, dtype);
}

std::string name_of(Kind kind) {
  return kind == Kind::growing ? "growing" : kind == Kind::ring ? "ring" : "paged";
}

Bytes bytes_at(const void* row, dim_t dim, DType dtype) {
  const auto* first = static_cast<const std::byte*>(row);
  return {first, first + static_cast<std::size_t>(dim) * item_size(dtype)};
}

// The rows of positions [begin, end) as the cache holds them.
Rows held(const KVCache& cache, bool keys, dim_t b, dim_t h, dim_t begin, dim_t end) {
  std::vector<const void*> rows(static_cast<std::size_t>(end - begin));
  if (keys) {
    cache.key_rows(b, h, begin, end, rows.data());
  } else {
    cache.value_rows(b, h, begin, end, rows.data());
  }
  Rows result;
  for (const void* row : rows) {
    const dim_t dim = keys ? cache.shape().head_dim : cache.shape().v_dim;
    result.push_back(bytes_at(row, dim, cache.dtype()));
  }
  return result;
}

// Everything that can be seen of a cache.
struct Snapshot {
  explicit Snapshot(const KVCache& cache)
      : lengths(cache.lengths()), appended(cache.appended()), bytes(cache.bytes()) {
    for (dim_t b = 0; b < cache.shape().batch; ++b) {
      const dim_t begin = cache.first_kept(b);
      first_kept.push_back(begin);
      for (dim_t h = 0; h < cache.shape().num_kv_heads; ++h) {
        rows.push_back(held(cache, true, b, h, begin, cache.lengths()[b]));
        rows.push_back(held(cache, false, b, h, begin, cache.lengths()[b]));
      }
    }
  }
  bool operator==(const Snapshot&) const = default;

  Lengths lengths, appended, first_kept;
  std::size_t bytes;
  std::vector<Rows> rows;
};

// What a cache promises, in the plainest way: every row ever appended.
class Model {
 public:
  Model(const KVCacheShape& shape, DType dtype)
      : shape_(shape),
        dtype_(dtype),
        lengths_(shape.batch),
        appended_(shape.batch),
        keys_(shape.batch, std::vector<Rows>(shape.num_kv_heads)),
        values_(keys_) {}

  void append(const TensorView& k, const TensorView& v, const Lengths& counts) {
    for (dim_t b = 0; b < shape_.batch; ++b) {
      appended_[b] = counts.empty() ? k.dim(2) : counts[b];
      lengths_[b] += appended_[b];
      for (dim_t h = 0; h < shape_.num_kv_heads; ++h) {
        for (dim_t t = 0; t < appended_[b]; ++t) {
          keys_[b][h].push_back(rounded(k[b][h][t]));
          values_[b][h].push_back(rounded(v[b][h][t]));
        }
      }
    }
  }

  void clear(dim_t b) {
    lengths_[b] = appended_[b] = 0;
    for (Rows& rows : keys_[b]) rows.clear();
    for (Rows& rows : values_[b]) rows.clear();
  }

  // The cache holds these rows, asked for all at once and from `cut` (0 to 1) of them on.
  void expect_in(const KVCache& cache, double cut) const {
    EXPECT_EQ(cache.lengths(), lengths_);
    EXPECT_EQ(cache.appended(), appended_);
    EXPECT_EQ(cache.tokens(), *std::max_element(lengths_.begin(), lengths_.end()));
    for (dim_t b = 0; b < shape_.batch; ++b) {
      const dim_t before = lengths_[b] - appended_[b];
      const dim_t kept = cache.kind() == Kind::ring ? std::max<dim_t>(0, before - kRoom) : 0;
      ASSERT_EQ(cache.first_kept(b), kept);
      const dim_t middle = kept + static_cast<dim_t>(cut * static_cast<double>(lengths_[b] - kept));
      for (dim_t h = 0; h < shape_.num_kv_heads; ++h) {
        for (const dim_t begin : {kept, middle}) {
          const auto tail = [&](const Rows& rows) {
            return Rows(rows.begin() + begin, rows.end());
          };
          ASSERT_EQ(held(cache, true, b, h, begin, lengths_[b]), tail(keys_[b][h]));
          ASSERT_EQ(held(cache, false, b, h, begin, lengths_[b]), tail(values_[b][h]));
        }
      }
    }
  }

 private:
  Bytes rounded(const TensorView& row) const {
    return bytes_at(Tensor::copy(row, dtype_).data(), row.dim(0), dtype_);
  }

  KVCacheShape shape_;
  DType dtype_;
  Lengths lengths_, appended_;
  std::vector<std::vector<Rows>> keys_, values_;
};

// Numbers [batch, num_kv_heads, new_tokens, dim] of some type in some order of memory.
struct Source {
  Source(const KVCacheShape& shape, dim_t new_tokens, dim_t dim, TorchGenerator& generator) {
    const DType dtype = kTypes[static_cast<std::size_t>(generator.randint(0, 4))];
    const auto seed = generator.random64();
    switch (generator.randint(0, 3)) {
      case 0:
        memory = normal({shape.batch, shape.num_kv_heads, new_tokens, dim}, seed, dtype);
        view = memory;
        break;
      case 1:  // as a projection leaves it: rows of one head lie apart
        memory = normal({shape.batch, new_tokens, shape.num_kv_heads, dim}, seed, dtype);
        view = transpose(memory, 1, 2);
        break;
      default:  // elements lie apart
        memory = normal({dim, new_tokens, shape.num_kv_heads, shape.batch}, seed, dtype);
        view = permute(memory, {3, 2, 1, 0});
    }
  }
  Tensor memory;
  TensorView view;
};

TEST(KVCacheTest, every_kind_holds_exactly_the_rounded_rows_appended) {
  const KVCacheShape shape{.batch = 3, .num_kv_heads = 2, .head_dim = 5, .v_dim = 3};
  std::uint64_t seed = 0;
  for (const Kind kind : kKinds) {
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(name_of(kind) + " " + name(dtype));
      TorchGenerator generator(++seed);
      KVCache cache = make(kind, shape, dtype);
      Model model(shape, dtype);
      for (int round = 0; round < 60; ++round) {
        const dim_t new_tokens = generator.keeps(0.4) ? 1 : generator.randint(0, 41);
        const Source k(shape, new_tokens, shape.head_dim, generator);
        const Source v(shape, new_tokens, shape.v_dim, generator);
        Lengths counts;
        if (generator.keeps(0.7)) {
          for (dim_t b = 0; b < shape.batch; ++b) {
            counts.push_back(generator.keeps(0.2) ? 0 : generator.randint(0, new_tokens + 1));
          }
        }
        cache.append(k.view, v.view, counts);
        model.append(k.view, v.view, counts);
        model.expect_in(cache, generator.uniform53());
        if (generator.keeps(0.1)) {
          const dim_t b = generator.randint(0, shape.batch);
          cache.clear(b);
          model.clear(b);
          model.expect_in(cache, generator.uniform53());
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(KVCacheTest, rows_are_rounded_to_the_nearest_even) {
  // bfloat16 has 8 bits: 257 lies between 256 and 258, 259 between 258 and 260.
  const Tensor k = Tensor::of({{{{257, 259, -257}}}}, DType::f64);
  KVCache cache = KVCache::growing({.head_dim = 3}, DType::bf16);
  cache.append(k, k);
  EXPECT_TRUE(same_bits(*cache.dense_keys(), Tensor::of({{{{256, 260, -256}}}}, DType::bf16)));
}

TEST(KVCacheTest, a_ring_evicts_at_the_next_append_only) {
  KVCache cache = KVCache::ring({.head_dim = 2}, 4);
  EXPECT_EQ(cache.capacity(), 4);
  const auto append = [&](dim_t new_tokens) {
    const Tensor x = normal({1, 1, new_tokens, 2}, 1);
    cache.append(x, x);
  };
  append(10);  // longer than the ring, and all of it is seen
  EXPECT_EQ(cache.first_kept(0), 0);
  EXPECT_EQ(held(cache, true, 0, 0, 0, 10).size(), 10U);
  append(3);
  EXPECT_EQ(cache.first_kept(0), 6);
  EXPECT_EQ(held(cache, false, 0, 0, 6, 13).size(), 7U);
  EXPECT_EQ(error_of([&] { held(cache, true, 0, 0, 5, 13); }),
            "KVCache: positions [5, 13) of sequence 0 are asked for, [6, 13) are kept");
  append(0);  // brings nothing, but the last three are no longer new
  EXPECT_EQ(cache.first_kept(0), 9);
  EXPECT_EQ(cache.appended(), Lengths{0});
}

TEST(KVCacheTest, a_ring_gives_the_memory_of_a_long_prompt_back) {
  KVCache cache = KVCache::ring({.head_dim = 8}, 4);
  const Tensor x = normal({1, 1, 1000, 8}, 1);
  const std::size_t token = (8 + 8) * sizeof(float);
  EXPECT_EQ(cache.bytes(), 4 * token);
  cache.append(x, x);
  EXPECT_EQ(cache.bytes(), 1004 * token);
  cache.append(x.slice(2, 0, 1), x.slice(2, 0, 1));
  EXPECT_EQ(cache.bytes(), 5 * token);
}

TEST(KVCacheTest, the_dense_view_of_a_growing_cache_equals_its_rows) {
  const KVCacheShape shape{.batch = 2, .num_kv_heads = 3, .head_dim = 4, .v_dim = 6};
  KVCache cache = KVCache::growing(shape, DType::f16);
  EXPECT_EQ(cache.dense_keys()->shape(), (Shape{2, 3, 0, 4}));
  for (const dim_t new_tokens : {7, 1, 1, 12}) {
    const Tensor k = normal({2, 3, new_tokens, 4}, 1);
    const Tensor v = normal({2, 3, new_tokens, 6}, 2);
    cache.append(k, v, {new_tokens, new_tokens / 2});
    const TensorView keys = cache.dense_keys().value();
    const TensorView values = cache.dense_values().value();
    ASSERT_EQ(keys.shape(), (Shape{2, 3, cache.tokens(), 4}));
    ASSERT_EQ(values.shape(), (Shape{2, 3, cache.tokens(), 6}));
    for (dim_t b = 0; b < 2; ++b) {
      std::vector<const void*> rows(static_cast<std::size_t>(cache.lengths()[b]));
      for (dim_t h = 0; h < 3; ++h) {
        cache.key_rows(b, h, 0, cache.lengths()[b], rows.data());
        for (dim_t j = 0; j < cache.lengths()[b]; ++j) EXPECT_EQ(keys[b][h][j].data(), rows[j]);
        cache.value_rows(b, h, 0, cache.lengths()[b], rows.data());
        for (dim_t j = 0; j < cache.lengths()[b]; ++j) EXPECT_EQ(values[b][h][j].data(), rows[j]);
      }
    }
  }
  EXPECT_FALSE(make(Kind::ring, shape).dense_keys().has_value());
  EXPECT_FALSE(make(Kind::paged, shape).dense_values().has_value());
}

TEST(KVCacheTest, growing_memory_doubles_when_it_is_full) {
  KVCache cache = KVCache::growing({.head_dim = 4});
  const std::size_t token = (4 + 4) * sizeof(float);
  const Tensor x = normal({1, 1, 5, 4}, 1);
  EXPECT_EQ(cache.bytes(), 0U);
  for (const auto& [count, room] : {std::pair{5, 5U}, {1, 10U}, {4, 10U}, {1, 20U}}) {
    cache.append(x, x, {count});
    EXPECT_EQ(cache.bytes(), room * token);
  }
}

TEST(KVCacheTest, paged_memory_grows_by_pages_and_is_used_again) {
  const KVCacheShape shape{.batch = 2, .num_kv_heads = 3, .head_dim = 4, .v_dim = 2};
  KVCache cache = KVCache::paged(shape, 8, DType::bf16);
  const std::size_t page = item_size(DType::bf16) * 8 * 3 * (4 + 2);
  const Tensor k = normal({2, 3, 17, 4}, 1);
  const Tensor v = normal({2, 3, 17, 2}, 2);
  EXPECT_EQ(cache.bytes(), 0U);
  const std::vector<std::pair<Lengths, std::size_t>> steps = {
      {{0, 0}, 0}, {{1, 0}, 1}, {{7, 0}, 1}, {{1, 0}, 2}, {{0, 17}, 5}, {{7, 7}, 5}};
  for (const auto& [counts, pages] : steps) {
    cache.append(k, v, counts);
    EXPECT_EQ(cache.bytes(), pages * page);
  }
  cache.clear(1);  // three pages are free
  cache.append(k, v, {16, 8});
  EXPECT_EQ(cache.bytes(), 5 * page);
  cache.append(k, v, {0, 1});
  EXPECT_EQ(cache.bytes(), 6 * page);
}

TEST(KVCacheTest, a_cleared_cache_starts_anew) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    KVCache cache = make(kind, {.batch = 2, .num_kv_heads = 2, .head_dim = 4});
    const Tensor long_ago = normal({2, 2, 50, 4}, 1);
    const Tensor x = normal({2, 2, 20, 4}, 2);
    cache.append(long_ago, long_ago);
    cache.append(x, x);
    cache.clear();
    EXPECT_EQ(cache.lengths(), (Lengths{0, 0}));
    EXPECT_EQ(cache.appended(), (Lengths{0, 0}));
    EXPECT_EQ(cache.first_kept(1), 0);
    EXPECT_EQ(cache.tokens(), 0);
    KVCache fresh = make(kind, cache.shape());
    for (KVCache* each : {&cache, &fresh}) {
      each->append(x, x, {20, 3});
      each->append(x, x, {1, 20});
    }
    EXPECT_EQ(Snapshot(cache).rows, Snapshot(fresh).rows);
  }
}

TEST(KVCacheTest, a_moved_cache_goes_on) {
  static_assert(!std::is_copy_constructible_v<KVCache> && !std::is_copy_assignable_v<KVCache>);
  static_assert(std::is_nothrow_move_constructible_v<KVCache>);
  static_assert(std::is_nothrow_move_assignable_v<KVCache>);
  const Tensor x = normal({1, 2, 20, 4}, 1);
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    KVCache cache = make(kind, {.num_kv_heads = 2, .head_dim = 4}, DType::bf16);
    cache.append(x, x);
    const Snapshot before(cache);
    KVCache moved = std::move(cache);
    EXPECT_EQ(Snapshot(moved), before);
    KVCache assigned = KVCache::growing({.head_dim = 1});
    assigned = std::move(moved);
    EXPECT_EQ(Snapshot(assigned), before);
    EXPECT_EQ(assigned.kind(), kind);
    EXPECT_EQ(assigned.dtype(), DType::bf16);
    assigned.append(x, x);
    EXPECT_EQ(assigned.lengths(), Lengths{40});
  }
}

TEST(KVCacheTest, a_failed_append_changes_nothing) {
  // Keys of this many tokens fit into memory and values do not; of the most that a view can have,
  // neither.
  constexpr dim_t kMany = dim_t{1} << 27;
  constexpr dim_t kMost = std::numeric_limits<dim_t>::max() / 4096;
  const float one = 1;
  const auto repeated = [&](dim_t new_tokens, dim_t dim) {
    return TensorView(&one, DType::f32, {1, 1, new_tokens, dim}, {0, 0, 0, 0});
  };
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    KVCache cache = make(kind, {.head_dim = 1, .v_dim = 4096});
    const Tensor k = normal({1, 1, 20, 1}, 1);
    const Tensor v = normal({1, 1, 20, 4096}, 2);
    cache.append(k, v);
    cache.append(k, v, {5});
    const Snapshot before(cache);
    const auto fails = [&](Error::Kind expected, auto&& append) {
      try {
        append();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), expected) << error.what();
      }
      EXPECT_EQ(Snapshot(cache), before);
    };
    fails(Error::Kind::memory, [&] { cache.append(repeated(kMany, 1), repeated(kMany, 4096)); });
    fails(Error::Kind::memory, [&] { cache.append(repeated(kMost, 1), repeated(kMost, 4096)); });
    fails(Error::Kind::value, [&] { cache.append(v, k); });
    fails(Error::Kind::value, [&] { cache.append(k, v, {21}); });
    fails(Error::Kind::type, [&] { cache.append(k, Tensor::zeros({1, 1, 20, 4096}, DType::i32)); });
    cache.append(k, v);
    EXPECT_EQ(cache.lengths(), Lengths{45});
  }
}

TEST(KVCacheTest, an_empty_batch_is_allowed) {
  for (const Kind kind : kKinds) {
    KVCache cache = make(kind, {.batch = 0, .head_dim = 2});
    const Tensor x = Tensor::zeros({0, 1, 5, 2});
    cache.append(x, x);
    EXPECT_EQ(cache.tokens(), 0);
    EXPECT_TRUE(cache.lengths().empty());
  }
}

TEST(KVCacheTest, errors_of_making_one_name_the_rule_and_the_number) {
  const auto growing = [](const KVCacheShape& shape, DType dtype = DType::f32) {
    return error_of([&] { KVCache::growing(shape, dtype); });
  };
  EXPECT_EQ(growing({.batch = -1, .head_dim = 2}), "KVCache: batch (-1) must be >= 0");
  EXPECT_EQ(growing({.num_kv_heads = 0, .head_dim = 2}), "KVCache: num_kv_heads (0) must be > 0");
  EXPECT_EQ(growing({}), "KVCache: head_dim (0) must be > 0");
  EXPECT_EQ(growing({.head_dim = 2, .v_dim = -3}),
            "KVCache: v_dim (-3) must be >= 0; 0 means head_dim");
  EXPECT_EQ(growing({.head_dim = 2}, DType::i64),
            "KVCache: dtype is int64, a floating-point type is needed");
  EXPECT_EQ(growing({.batch = dim_t{1} << 62, .head_dim = 2}),
            "KVCache: no list is as long as 4611686018427387904 sequences");
  EXPECT_EQ(error_of([] { KVCache::ring({.head_dim = 2}, 0); }),
            "KVCache: capacity (0) must be > 0");
  EXPECT_EQ(error_of([] { KVCache::paged({.head_dim = 2}, -8); }),
            "KVCache: page (-8) must be > 0");
  EXPECT_EQ(error_of([] { KVCache::paged({.head_dim = 2}, dim_t{1} << 60); }),
            "size overflows: 1152921504606846976 x 8");
}

TEST(KVCacheTest, errors_of_using_one_name_the_rule_and_the_numbers) {
  KVCache cache =
      KVCache::paged({.batch = 2, .num_kv_heads = 4, .head_dim = 64, .v_dim = 32}, 8, DType::bf16);
  const Tensor k = Tensor::zeros({2, 4, 3, 64});
  const Tensor v = Tensor::zeros({2, 4, 3, 32});
  const auto append = [&](const TensorView& keys, const TensorView& values,
                          const Lengths& counts = {}) {
    return error_of([&] { cache.append(keys, values, counts); });
  };
  EXPECT_EQ(append(Tensor::zeros({1, 2, 3, 64}), v),
            "KVCache: k [1, 2, 3, 64] must be [2 (batch), 4 (num_kv_heads), new_tokens, "
            "64 (head_dim)]");
  EXPECT_EQ(append(k[0], v),
            "KVCache: k [4, 3, 64] must be [2 (batch), 4 (num_kv_heads), "
            "new_tokens, 64 (head_dim)]");
  EXPECT_EQ(append(k, k),
            "KVCache: v [2, 4, 3, 64] must be [2 (batch), 4 (num_kv_heads), "
            "new_tokens, 32 (v_dim)]");
  EXPECT_EQ(append(k, v.slice(2, 0, 2)),
            "KVCache: new_tokens of k (3) and v (2) differ: k [2, 4, 3, 64], v [2, 4, 2, 32]");
  EXPECT_EQ(append(Tensor::zeros({2, 4, 3, 64}, DType::i8), v),
            "KVCache: k is int8, a floating-point type is needed");
  EXPECT_EQ(append(k, v, {1, 2, 3}), "KVCache: counts has 3 numbers for a batch of 2");
  EXPECT_EQ(append(k, v, {3, 4}), "KVCache: counts[1] (4) must be in [0, 3 (new_tokens)]");
  EXPECT_EQ(append(k, v, {-1, 3}), "KVCache: counts[0] (-1) must be in [0, 3 (new_tokens)]");

  cache.append(k, v, {3, 1});
  const void* row = nullptr;
  EXPECT_EQ(error_of([&] { cache.key_rows(1, 0, 0, 2, &row); }),
            "KVCache: positions [0, 2) of sequence 1 are asked for, [0, 1) are kept");
  EXPECT_EQ(error_of([&] { cache.value_rows(0, 4, 0, 1, &row); }),
            "KVCache: kv_head 4 is outside num_kv_heads (4)");
  EXPECT_EQ(error_of([&] { cache.key_rows(2, 0, 0, 1, &row); }),
            "KVCache: sequence 2 is outside batch (2)");
  EXPECT_EQ(error_of([&] { cache.clear(-1); }), "KVCache: sequence -1 is outside batch (2)");
  EXPECT_EQ(error_of([&] { cache.first_kept(2); }), "KVCache: sequence 2 is outside batch (2)");
}

}  // namespace
}  // namespace cephalo
