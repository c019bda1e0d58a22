#include "cephalo/attention/ring/attend_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cephalo/attention/ring/ring_help.h"
#include "cephalo/attention/ring/ring_units.h"
#include "tests/attention/ring/ring_claims.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_world.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;

TEST(RingShareTest, every_token_has_one_place_and_late_ones_go_with_early_ones) {
  for (const int size : {1, 2, 3, 8}) {
    for (const dim_t tokens : {0, 1, 5, 16, 97}) {
      std::vector<int> count(static_cast<std::size_t>(tokens));
      for (int r = 0; r < size; ++r) {
        const RingShare share = ring_share(tokens, r, size);
        EXPECT_LE(share.early.end, share.late.begin);
        for (const Share& s : {share.early, share.late}) {
          for (dim_t t = s.begin; t < s.end; ++t) ++count[static_cast<std::size_t>(t)];
        }
      }
      EXPECT_EQ(std::count(count.begin(), count.end(), 1), tokens);
    }
  }
}

using Claim = std::pair<std::string, testing::WorldClaim>;
class AttendRingTest : public ::testing::TestWithParam<std::tuple<Claim, int>> {};

TEST_P(AttendRingTest, holds) {
  testing::run_in_threads(std::get<1>(GetParam()), std::get<0>(GetParam()).second);
}

INSTANTIATE_TEST_SUITE_P(Threads, AttendRingTest,
                         ::testing::Combine(::testing::ValuesIn(testing::ring_claims()),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& each) {
                           return std::get<0>(each.param).first + "_" +
                                  std::to_string(std::get<1>(each.param));
                         });

TEST(RingUnitsTest, units_of_any_size_are_all_of_the_work) {
  const auto world = world_of_one();
  const dim_t tokens = 7000;
  const Tensor q = Tensor::zeros({1, 6, tokens, 2});
  const Tensor k = Tensor::zeros({1, 3, tokens, 2});
  const Mask none;
  const RingCall call(*world, tokens, q, k, k, none, {}, "attend_ring");
  for (const UnitSize& size : {UnitSize{}, UnitSize{1e12, true}, UnitSize{1e8, true},
                               UnitSize{1.0, true}, UnitSize{1e8, false}}) {
    UnitQueue units(ring_units(call, 0, size));
    const std::size_t count = units.left();
    EXPECT_EQ(count == 4, size.flops == 0.0 || size.flops == 1e12) << count;
    dim_t pairs = 0;
    for (std::size_t most = 1; const auto run = units.take_run(most); ++most) {
      pairs += run->q_rows.whole.count() * run->kv_rows.whole.count() * run->kv_heads.count();
    }
    EXPECT_EQ(pairs, tokens * tokens * 3) << count;
    EXPECT_EQ(units.left(), 0U);
  }
}

// Keys of one piece in units of all heads, those of the next in units of one.
TEST(RingUnitsTest, no_unit_overtakes_an_earlier_one_of_its_rows) {
  const RingPiece rows{0, {0, 100}}, other_rows{100, {100, 200}};
  const RingPiece early{0, {0, 50}}, late{50, {50, 100}};
  UnitQueue units({{rows, early, {0, 4}},
                   {rows, late, {0, 1}},
                   {rows, late, {1, 2}},
                   {other_rows, late, {1, 2}}});
  const auto later_heads = [](const RingUnit& unit) { return unit.kv_heads.begin > 0; };
  const std::optional<RingUnit> taken = units.take_first(later_heads);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->q_rows.whole.begin, 100);
  EXPECT_FALSE(units.take_first(later_heads).has_value());
  EXPECT_EQ(units.left(), 3U);
}

TEST(RingUnitsTest, cuts_fall_between_rows_that_are_computed_together) {
  const auto world = world_of_one();
  const dim_t tokens = 10013;
  const Tensor q = Tensor::zeros({1, 1, tokens, 2});
  const Mask none;
  const RingCall call(*world, tokens, q, q, q, none, {}, "attend_ring");
  dim_t cut = 0;
  for (const RingUnit& unit : ring_units(call, 0, {1.0, true})) {
    const dim_t begin = unit.q_rows.begin - (unit.q_rows.begin < 5007 ? 0 : 5007);
    EXPECT_EQ(begin % 64, 0) << unit.q_rows.begin;
    cut += begin > 0 ? 1 : 0;
  }
  EXPECT_GT(cut, 0);
}

TEST(MessageMemoryTest, is_used_again_by_messages_of_about_the_same_length) {
  MessageMemory memory;
  Tensor block = memory.take(1000);
  const void* const there = block.data();
  memory.give_back(std::move(block));
  block = memory.take(600);
  EXPECT_EQ(block.data(), there);
  EXPECT_GE(block.numel(), 600);
  const Tensor other = memory.take(600);
  EXPECT_NE(other.data(), there);
  memory.give_back(std::move(block));
  EXPECT_EQ(memory.spare_bytes(), 1000U);
}

TEST(MessageMemoryTest, never_holds_more_than_messages_had_at_once) {
  MessageMemory memory;
  Tensor first = memory.take(1000);
  Tensor second = memory.take(1000);
  memory.give_back(std::move(first));
  memory.give_back(std::move(second));
  EXPECT_EQ(memory.spare_bytes(), 2000U);
  Tensor shorter = memory.take(400);  // would hold more than twice what it needs
  EXPECT_EQ(shorter.numel(), 400);
  EXPECT_EQ(memory.spare_bytes(), 1000U);
  const Tensor longer = memory.take(1001);
  EXPECT_EQ(memory.spare_bytes(), 0U);
  memory.give_back(std::move(shorter));
  EXPECT_EQ(memory.spare_bytes(), 400U);
}

TEST(AttendRingErrorTest, names_what_a_process_should_bring) {
  const auto world = world_of_one();
  const Tensor x = normal({1, 2, 5, 4}, 1);
  EXPECT_NE(error_of([&] { attend_ring(*world, 6, x, x, x); }).find("6 of 6 tokens"),
            std::string::npos);
  const Tensor three = normal({1, 3, 5, 4}, 1);
  EXPECT_NE(error_of([&] { attend_ring(*world, 5, three, x, x); }).find("a multiple of"),
            std::string::npos);
  EXPECT_NE(error_of([&] { attend_ring(*world, 5, three, three, x); }).find("v has 2"),
            std::string::npos);
  const AttendOptions options{.return_weights = true};
  EXPECT_NE(error_of([&] { attend_ring(*world, 5, x, x, x, {}, options); }).find("whole rows"),
            std::string::npos);
}

}  // namespace
}  // namespace cephalo
