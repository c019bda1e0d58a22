#include "cephalo/effects/patching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/effects/plain_gpt.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::lively_model;
using testing::lively_options;
using testing::plain_logits;
using testing::some_ids;

constexpr dim_t kTokens = 12;

// Two texts that differ at positions 4 and 9, and the two tokens whose logits tell them apart best.
class PatchingTest : public ::testing::Test {
 protected:
  PatchingTest() : model_(lively_model(lively_options(PositionKind::rotary, DType::f64))) {
    clean_ids_ = some_ids(kTokens, 23, 5);
    corrupt_ids_ = clean_ids_;
    corrupt_ids_[4] = (corrupt_ids_[4] + 1) % 23;
    corrupt_ids_[9] = (corrupt_ids_[9] + 5) % 23;
    const Tensor clean = plain_logits(model_, clean_ids_, {});
    const Tensor corrupt = plain_logits(model_, corrupt_ids_, {});
    std::vector<double> change;
    for (dim_t t = 0; t < 23; ++t) {
      change.push_back(clean.at({kTokens - 1, t}) - corrupt.at({kTokens - 1, t}));
    }
    answer_ = std::max_element(change.begin(), change.end()) - change.begin();
    wrong_ = std::min_element(change.begin(), change.end()) - change.begin();
  }

  double difference(const std::vector<std::int64_t>& ids, const Changes& changes) const {
    const Tensor logits = plain_logits(model_, ids, changes, {clean_ids_, nullptr});
    return logits.at({kTokens - 1, answer_}) - logits.at({kTokens - 1, wrong_});
  }

  Gpt model_;
  std::vector<std::int64_t> clean_ids_, corrupt_ids_;
  std::int64_t answer_ = 0;
  std::int64_t wrong_ = 0;
};

TEST_F(PatchingTest, each_entry_is_the_share_of_the_answer_that_comes_back) {
  const KeptPass clean(model_, clean_ids_);
  const KeptPass corrupt(clean.steps(), corrupt_ids_);
  const Patching found = patch_each(clean, corrupt, answer_, wrong_);
  const double d_clean = difference(clean_ids_, {});
  const double d_corrupt = difference(corrupt_ids_, {});
  EXPECT_NEAR(found.clean, d_clean, 1e-12);
  EXPECT_NEAR(found.corrupt, d_corrupt, 1e-12);
  ASSERT_TRUE(found.divided);
  for (dim_t layer = 0; layer < 3; ++layer) {
    for (dim_t position = 0; position < kTokens; ++position) {
      const double d = difference(corrupt_ids_, {{.section = ModelSection::stream,
                                                  .layer = layer,
                                                  .kind = ChangeKind::patch,
                                                  .position = position}});
      EXPECT_NEAR(found.positions.at({layer, position}), (d - d_corrupt) / (d_clean - d_corrupt),
                  1e-11);
    }
    for (dim_t head = 0; head < 4; ++head) {
      const double d =
          difference(corrupt_ids_, {{.layer = layer, .head = head, .kind = ChangeKind::patch}});
      EXPECT_NEAR(found.heads.at({layer, head}), (d - d_corrupt) / (d_clean - d_corrupt), 1e-11);
    }
  }
}

TEST_F(PatchingTest, everything_brings_back_all_and_nothing_nothing) {
  const KeptPass clean(model_, clean_ids_);
  const KeptPass corrupt(clean.steps(), corrupt_ids_);
  const Measures measures{.logits = {answer_, wrong_}};
  const SweepOptions from_clean{.patch_from = &clean};
  const Measured wanted = measure(clean, {}, measures);
  for (const char* layer : {"L0.stream", "L1.stream", "L2.stream"}) {
    const Measured found =
        measure(corrupt, parse_changes(layer, ChangeKind::patch), measures, from_clean);
    EXPECT_NEAR(found.logits[0], wanted.logits[0], 1e-12);
    EXPECT_NEAR(found.logits[1], wanted.logits[1], 1e-12);
  }
  const Patching found = patch_each(clean, corrupt, answer_, wrong_);
  for (dim_t position = 0; position < kTokens; ++position) {
    if (position == 4 || position == 9) continue;
    EXPECT_EQ(found.positions.at({0, position}), 0.0) << "the tokens are equal there";
  }
  for (dim_t layer = 0; layer < 3; ++layer) {
    for (dim_t position = 0; position < 4; ++position) {
      EXPECT_NEAR(found.positions.at({layer, position}), 0.0, 1e-12) << "before any difference";
    }
  }
}

TEST_F(PatchingTest, two_that_differ_by_little_are_not_divided) {
  const KeptPass clean(model_, clean_ids_);
  const Patching found = patch_each(clean, clean, answer_, wrong_);
  EXPECT_FALSE(found.divided);
  EXPECT_EQ(found.clean, found.corrupt);
  EXPECT_NEAR(found.heads.at({1, 1}), found.clean, 1e-12);
  EXPECT_NEAR(found.positions.at({2, 5}), found.clean, 1e-12);
}

TEST_F(PatchingTest, what_was_not_done_is_not_a_number) {
  const KeptPass clean(model_, clean_ids_);
  const KeptPass corrupt(clean.steps(), corrupt_ids_);
  SweepOptions options;
  options.memory = 0;  // one at a time
  options.progress = [](std::size_t done, std::size_t all) {
    EXPECT_EQ(all, 3U * 4U + 3U * 12U);
    return done <= 12 + 4;  // until position 4 is done, and equal tokens after it
  };
  const Patching found = patch_each(clean, corrupt, answer_, wrong_, options);
  EXPECT_FALSE(std::isnan(found.heads.at({2, 3})));
  EXPECT_FALSE(std::isnan(found.positions.at({0, 8})));
  EXPECT_TRUE(std::isnan(found.positions.at({0, 9})));
}

TEST_F(PatchingTest, A15_texts_have_as_many_tokens) {
  const KeptPass clean(model_, clean_ids_);
  const KeptPass shorter(clean.steps(), some_ids(9, 23, 1));
  EXPECT_EQ(
      error_of([&] { patch_each(clean, shorter, answer_, wrong_); }),
      "patch_each: the clean text has 12 tokens, the corrupt one 9; positions must correspond");
}

}  // namespace
}  // namespace cephalo
