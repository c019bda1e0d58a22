#include "cephalo/mask/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/mask/bound_mask.h"
#include "tests/support/mask_spec.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::make_mask_spec;
using testing::mask_part_names;
using testing::MaskSpec;

// Every part alone and every pair that may be joined.
std::vector<std::vector<std::string>> part_combinations() {
  std::vector<std::vector<std::string>> combinations;
  const auto& names = mask_part_names();
  for (std::size_t a = 0; a < names.size(); ++a) {
    combinations.push_back({names[a]});
    for (std::size_t b = a; b < names.size(); ++b) {
      if (testing::parts_combine(names[a], names[b])) combinations.push_back({names[a], names[b]});
    }
  }
  return combinations;
}

TEST(MaskTest, every_part_and_pair_is_its_definition) {
  TorchGenerator generator(1);
  int pairs = 0;
  for (const auto& parts : part_combinations()) {
    for (const MaskExtent extent : {MaskExtent{2, 3, 7, 7}, MaskExtent{1, 2, 5, 11},
                                    MaskExtent{2, 1, 9, 4}, MaskExtent{1, 1, 1, 1}}) {
      const MaskSpec spec = make_mask_spec(parts, extent, generator);
      const BoundMask bound(spec.mask, extent, "test");
      std::vector<std::uint8_t> row(static_cast<std::size_t>(extent.kv_tokens));
      for (dim_t b = 0; b < extent.batch; ++b) {
        for (dim_t h = 0; h < extent.num_heads; ++h) {
          for (dim_t i = 0; i < extent.q_tokens; ++i) {
            bound.row(b, h, i, row.data());
            ASSERT_EQ(bound.position(b, i), spec.position(b, i)) << spec.name;
            for (dim_t j = 0; j < extent.kv_tokens; ++j, ++pairs) {
              const bool expected = spec.visible(b, h, i, j);
              ASSERT_EQ(bound.visible(b, h, i, j), expected) << spec.name;
              ASSERT_EQ(row[static_cast<std::size_t>(j)] != 0, expected) << spec.name;
              if (expected) {
                ASSERT_NEAR(bound.added(b, h, i, j), spec.added(b, h, i, j), 1e-12) << spec.name;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(pairs, 40000);
}

// Parts for which `mixed` must really be mixed: no look at single pairs is needed to tell.
bool answers_exactly(const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (part == "documents" || part == "bias" || part == "alibi" || part == "prefix") return false;
  }
  return parts.size() == 1;
}

TEST(MaskTest, the_three_answers_for_a_tile_are_true) {
  TorchGenerator generator(2);
  int answers[3] = {};
  for (const auto& parts : part_combinations()) {
    const MaskExtent extent{2, 2, 12, 14};
    const MaskSpec spec = make_mask_spec(parts, extent, generator);
    const BoundMask bound(spec.mask, extent, "test");
    for (int round = 0; round < 200; ++round) {
      const dim_t b = generator.randint(0, 2), h = generator.randint(0, 2);
      const dim_t i = generator.randint(0, 12), j = generator.randint(0, 14);
      const dim_t i_end = generator.randint(i + 1, 13), j_end = generator.randint(j + 1, 15);
      bool some = false, all = true, adds = false;
      for (dim_t y = i; y < i_end; ++y) {
        for (dim_t x = j; x < j_end; ++x) {
          const bool seen = spec.visible(b, h, y, x);
          some = some || seen;
          all = all && seen;
          adds = adds || (seen && spec.added(b, h, y, x) != 0.0);
        }
      }
      const Tile tile = bound.tile(b, h, i, i_end, j, j_end);
      ++answers[static_cast<int>(tile)];
      if (tile == Tile::hidden) {
        ASSERT_FALSE(some) << spec.name;
      }
      if (tile == Tile::visible) {
        ASSERT_TRUE(all && !adds) << spec.name;
      }
      if (tile == Tile::mixed && answers_exactly(parts)) {
        ASSERT_TRUE(some && !all) << spec.name;
      }
    }
  }
  for (const int count : answers) EXPECT_GT(count, 1000);
}

// Every combination of parts that hide by position, with every content that makes a difference.
std::vector<testing::PositionalParts> positional_parts(const MaskExtent& extent) {
  std::vector<std::optional<Mask::Positions>> maps{std::nullopt};
  for (const Align align : {Align::bottom_right, Align::top_left}) {
    for (const dim_t offset : {-4, -1, 0, 2}) maps.push_back(Mask::Positions{align, offset});
  }
  std::vector<std::optional<std::vector<dim_t>>> prefixes{std::nullopt};
  for (dim_t prefix = 0; prefix <= extent.kv_tokens + 1; ++prefix) prefixes.push_back({{prefix}});
  std::vector<std::optional<Mask::Window>> windows{std::nullopt};
  for (const dim_t left : {dim_t{0}, dim_t{2}, unlimited}) {
    for (const dim_t right : {dim_t{0}, dim_t{1}, unlimited}) {
      windows.push_back(Mask::Window{left, right});
    }
  }
  std::vector<std::optional<Mask::Lengths>> lengths{std::nullopt};
  for (dim_t kv = 0; kv <= extent.kv_tokens; ++kv) {
    lengths.push_back(Mask::Lengths{{kv}, std::nullopt});
    for (dim_t q = 0; q <= extent.q_tokens; ++q) {
      lengths.push_back(Mask::Lengths{{kv}, std::vector<dim_t>{q}});
    }
  }
  std::vector<testing::PositionalParts> all;
  for (const auto& map : maps) {
    for (const auto& prefix : prefixes) {
      for (const auto& window : windows) {
        for (const auto& length : lengths) all.push_back({map, prefix, window, length});
      }
    }
  }
  return all;
}

// visible[i][j] of one sequence, by the definition.
std::vector<std::vector<bool>> visible_pairs(const MaskSpec& spec, const MaskExtent& extent) {
  std::vector<std::vector<bool>> visible(static_cast<std::size_t>(extent.q_tokens));
  for (dim_t i = 0; i < extent.q_tokens; ++i) {
    for (dim_t j = 0; j < extent.kv_tokens; ++j) {
      visible[static_cast<std::size_t>(i)].push_back(spec.visible(0, 0, i, j));
    }
  }
  return visible;
}

// Everything that is said by position of the tile of queries [i, i_end) and keys [j, j_end).
void expect_tile(const BoundMask& bound, const std::vector<std::vector<bool>>& visible, dim_t i,
                 dim_t i_end, dim_t j, dim_t j_end, const std::string& name) {
  std::vector<std::uint64_t> by_query(static_cast<std::size_t>(j_end - j), ~std::uint64_t{0});
  bound.position_bits(0, i, i_end, j, j_end, by_query.data());
  bool some = false, all = true;
  for (dim_t y = i; y < i_end; ++y) {
    const std::uint64_t by_key = bound.key_bits(0, y, j, j_end);
    ASSERT_EQ(by_key >> (j_end - j), 0U) << name;
    for (dim_t x = j; x < j_end; ++x) {
      const bool seen = visible[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)];
      some = some || seen;
      all = all && seen;
      ASSERT_EQ((by_key >> (x - j) & 1) != 0, seen) << name;
      ASSERT_EQ((by_query[static_cast<std::size_t>(x - j)] >> (y - i) & 1) != 0, seen) << name;
    }
  }
  for (const std::uint64_t word : by_query) ASSERT_EQ(word >> (i_end - i), 0U) << name;
  ASSERT_EQ(bound.tile_by_position(0, i, i_end, j, j_end),
            all ? Tile::visible : (some ? Tile::mixed : Tile::hidden))
      << name;
}

TEST(MaskTest, a_span_is_exactly_what_positions_leave_to_a_query) {
  int masks = 0;
  for (const MaskExtent extent :
       {MaskExtent{1, 1, 1, 1}, MaskExtent{1, 1, 4, 3}, MaskExtent{1, 1, 2, 5}}) {
    for (const testing::PositionalParts& parts : positional_parts(extent)) {
      const MaskSpec spec = make_mask_spec(parts, extent);
      const BoundMask bound(spec.mask, extent, "test");
      const auto visible = visible_pairs(spec, extent);
      ++masks;
      for (dim_t i = 0; i < extent.q_tokens; ++i) {
        const auto [begin, end] = bound.span(0, i);
        ASSERT_TRUE(0 <= begin && begin <= end && end <= extent.kv_tokens) << spec.name;
        for (dim_t j = 0; j < extent.kv_tokens; ++j) {
          const bool seen = visible[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
          ASSERT_EQ(begin <= j && j < end, seen) << spec.name << " query " << i << " key " << j;
          ASSERT_EQ(bound.visible(0, 0, i, j), seen) << spec.name;
        }
      }
    }
  }
  EXPECT_GT(masks, 20000);
}

TEST(MaskTest, ranges_tiles_and_bits_follow_from_spans) {
  const MaskExtent extent{1, 1, 3, 4};
  for (const testing::PositionalParts& parts : positional_parts(extent)) {
    const MaskSpec spec = make_mask_spec(parts, extent);
    const BoundMask bound(spec.mask, extent, "test");
    const auto visible = visible_pairs(spec, extent);
    for (dim_t i = 0; i < extent.q_tokens; ++i) {
      for (dim_t i_end = i + 1; i_end <= extent.q_tokens; ++i_end) {
        dim_t first = extent.kv_tokens, last = -1;
        for (dim_t y = i; y < i_end; ++y) {
          for (dim_t x = 0; x < extent.kv_tokens; ++x) {
            if (!visible[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)]) continue;
            first = std::min(first, x);
            last = std::max(last, x);
          }
        }
        const auto [begin, end] = bound.key_range(0, i, i_end);
        ASSERT_EQ(begin, last < 0 ? 0 : first) << spec.name;
        ASSERT_EQ(end, last + 1) << spec.name;
        for (dim_t j = 0; j < extent.kv_tokens; ++j) {
          for (dim_t j_end = j + 1; j_end <= extent.kv_tokens; ++j_end) {
            ASSERT_NO_FATAL_FAILURE(expect_tile(bound, visible, i, i_end, j, j_end, spec.name));
          }
        }
      }
    }
  }
}

TEST(MaskTest, the_bits_of_a_full_tile_are_all_there) {
  const MaskExtent extent{1, 1, 64, 64};
  const Mask mask = causal() & window(40, 0);
  const BoundMask bound(mask, extent, "test");
  std::vector<std::uint64_t> words(64);
  bound.position_bits(0, 0, 64, 0, 64, words.data());
  for (dim_t i = 0; i < 64; ++i) {
    const std::uint64_t row = bound.key_bits(0, i, 0, 64);
    for (dim_t j = 0; j < 64; ++j) {
      const bool seen = j <= i && j >= i - 40;
      ASSERT_EQ((row >> j & 1) != 0, seen) << i << ", " << j;
      ASSERT_EQ((words[static_cast<std::size_t>(j)] >> i & 1) != 0, seen) << i << ", " << j;
    }
  }
}

TEST(MaskTest, causal_is_bottom_right_aligned) {
  const Mask mask = causal();
  const BoundMask bound(mask, {1, 1, 2, 5}, "test");
  EXPECT_TRUE(bound.visible(0, 0, 0, 3));
  EXPECT_FALSE(bound.visible(0, 0, 0, 4));
  EXPECT_TRUE(bound.visible(0, 0, 1, 4));
  const Mask top_left = causal() & positions(Align::top_left);
  EXPECT_FALSE(BoundMask(top_left, {1, 1, 2, 5}, "test").visible(0, 0, 0, 1));
}

TEST(MaskTest, prefixes_are_one_for_all_or_one_per_batch) {
  const Mask mask = causal({2, 0});
  const BoundMask bound(mask, {2, 1, 4, 4}, "test");
  EXPECT_TRUE(bound.visible(0, 0, 0, 1));
  EXPECT_FALSE(bound.visible(1, 0, 0, 1));
}

TEST(MaskTest, what_hides_intersects) {
  EXPECT_EQ((causal(5) & causal(3)).to_string(), "causal(3)");
  EXPECT_EQ((window(3, 9) & window(7, 2)).to_string(), "window(3, 2)");
  EXPECT_EQ((window(3, unlimited) & causal()).to_string(), "causal() & window(3, unlimited)");
}

TEST(MaskTest, a_mask_prints_itself) {
  const Tensor flags = Tensor::zeros({4, 4}, DType::boolean);
  const Tensor ids = Tensor::zeros({4}, DType::i32);
  EXPECT_EQ(Mask().to_string(), "none");
  EXPECT_EQ((causal() & window(127, 0)).to_string(), "causal() & window(127, 0)");
  EXPECT_EQ((keep(flags) & drop(flags)).to_string(), "keep([4, 4]) & drop([4, 4])");
  EXPECT_EQ((lengths({3, 4}, {1, 2}) & positions(Align::top_left, 2)).to_string(),
            "positions(top_left, 2) & lengths([3, 4], [1, 2])");
  EXPECT_EQ((documents(ids) & alibi({0.5F})).to_string(), "documents([1, 4]) & alibi([0.5])");
}

TEST(MaskTest, a_mask_draws_itself) {
  EXPECT_EQ((causal() & window(1, 0)).draw(3, 4),
            "causal() & window(1, 0), 3 queries x 4 keys\n"
            "     0  # # . .\n"
            "     1  . # # .\n"
            "     2  . . # #\n");
  const std::string large = causal().draw(1000, 1000);
  EXPECT_NE(large.find("16 x 16 pairs a cell"), std::string::npos);
  EXPECT_NE(large.find("     0  + . ."), std::string::npos);
}

TEST(MaskTest, drawing_knows_how_many_sequences_the_parts_speak_of) {
  EXPECT_EQ(lengths({1}, {1, 2}).draw(2, 2, 0, 1),
            "lengths([1], [1, 2]), 2 queries x 2 keys\n     0  # .\n     1  # .\n");
  EXPECT_EQ(error_of([] { static_cast<void>(causal().draw(2, 2, -1)); }),
            "draw: head (-1) and batch (0) must be >= 0");
}

TEST(MaskTest, a_temporary_tensor_moves_into_the_mask) {
  Mask mask;
  {
    Tensor flags = Tensor::zeros({2, 2}, DType::boolean);
    flags.set({0, 1}, 1);
    mask = keep(std::move(flags));
  }
  const BoundMask bound(mask, {1, 1, 2, 2}, "test");
  EXPECT_TRUE(bound.visible(0, 0, 0, 1));
  EXPECT_FALSE(bound.visible(0, 0, 0, 0));
}

TEST(MaskTest, alibi_slopes_are_the_papers) {
  const std::vector<float> eight = alibi_slopes(8);
  for (int h = 0; h < 8; ++h)
    EXPECT_FLOAT_EQ(eight[static_cast<std::size_t>(h)], std::ldexp(1.0F, -h - 1));
  // Twelve heads: those of eight, then every second one of sixteen.
  const std::vector<float> twelve = alibi_slopes(12);
  const std::vector<float> sixteen = alibi_slopes(16);
  for (std::size_t h = 0; h < 4; ++h) EXPECT_FLOAT_EQ(twelve[8 + h], sixteen[2 * h]);
}

TEST(MaskTest, alibi_slopes_of_more_heads_than_any_model_has_are_refused_at_once) {
  EXPECT_EQ(alibi_slopes(dim_t{1} << 20).size(), std::size_t{1} << 20);
  for (const dim_t heads : {dim_t{1} << 33, std::numeric_limits<dim_t>::max()}) {
    EXPECT_EQ(error_of([&] { alibi_slopes(heads); }),
              format_text("alibi_slopes: num_heads ({}) must be at most 1048576", heads));
  }
}

TEST(MaskTest, misuse_is_refused_by_name) {
  const Tensor flags = Tensor::zeros({4, 4}, DType::boolean);
  const Tensor numbers = Tensor::zeros({4, 4});
  const Tensor ids = Tensor::zeros({4}, DType::i64);
  const MaskExtent extent{2, 3, 4, 5};
  EXPECT_EQ(error_of([&] { lengths({1}) & lengths({2}); }),
            "mask: two lengths() in one mask; join them into one");
  EXPECT_EQ(error_of([&] { documents(ids) & documents(ids); }),
            "mask: two documents() in one mask; join their ids into one");
  EXPECT_EQ(error_of([&] { positions(Align::top_left) & positions(Align::top_left, 1); }),
            "mask: two different position maps in one mask: positions(top_left, 0) and "
            "positions(top_left, 1)");
  EXPECT_EQ(error_of([&] { keep(numbers); }),
            "keep: float32 is neither bool nor an integer type; to add numbers to the scores use "
            "bias(t)");
  EXPECT_EQ(error_of([&] { bias(flags); }),
            "bias: bool is not a floating-point type; for a boolean mask use keep(t) or drop(t)");
  EXPECT_EQ(error_of([&] { window(-1, 0); }),
            "window: left (-1) and right (0) must be >= 0; use unlimited for no bound");
  EXPECT_EQ(error_of([&] { causal(-1); }), "causal: prefix (-1) must be >= 0");
  EXPECT_EQ(error_of([&] { alibi({-1.0F}); }), "alibi: slope (-1) must be >= 0 and finite");
  const auto bind = [&](const Mask& mask) {
    return error_of([&] { BoundMask(mask, extent, "attend"); });
  };
  EXPECT_EQ(bind(keep(flags)),
            "attend: keep([4, 4]) does not broadcast to [batch, heads, q, k] = [2, 3, 4, 5]; a "
            "mask of three dimensions is [heads, q, k]");
  EXPECT_EQ(bind(lengths({6, 1})), "attend: lengths kv[0] (6) must be in [0, 5] (kv_tokens)");
  EXPECT_EQ(bind(lengths({1, 2, 3})), "attend: lengths(kv) has 3 entries, batch is 2");
  EXPECT_EQ(bind(documents(ids)),
            "attend: documents(ids) needs q_tokens (4) equal to kv_tokens (5); use "
            "documents(q_ids, kv_ids)");
  EXPECT_EQ(bind(alibi({1.0F})), "attend: alibi has 1 slopes, num_heads is 3");
}

}  // namespace
}  // namespace cephalo
