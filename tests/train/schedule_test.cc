#include "cephalo/train/schedule.h"

#include <gtest/gtest.h>

#include "cephalo/train/history.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

TEST(ScheduleTest, rises_to_the_rate_and_falls_to_the_floor) {
  const Schedule s{.learning_rate = 2.0, .warmup = 4, .steps = 104, .min_lr_share = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 3), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 4), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 54), 0.2 + 0.9);  // half way down
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 104), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1000), 0.2);
  for (std::int64_t step = 4; step < 104; ++step) {
    EXPECT_LT(learning_rate_at(s, step + 1), learning_rate_at(s, step));
  }
}

TEST(ScheduleTest, without_warm_up_it_begins_with_the_full_rate) {
  EXPECT_DOUBLE_EQ(learning_rate_at({.learning_rate = 0.5, .warmup = 0, .steps = 10}, 0), 0.5);
}

TEST(ScheduleTest, a_warm_up_longer_than_the_run_only_rises) {
  const Schedule s{.learning_rate = 1.0, .warmup = 10, .steps = 5};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 4), 0.5);
}

TEST(ScheduleTest, numbers_that_make_no_sense_are_refused) {
  EXPECT_EQ(error_of([] { learning_rate_at({.min_lr_share = 1.5}, 0); }),
            "learning_rate_at: min_lr_share (1.5) must be in [0, 1]");
  EXPECT_EQ(error_of([] { learning_rate_at({.learning_rate = -1}, 0); }),
            "learning_rate_at: learning_rate (-1) must be >= 0");
}

TEST(HistoryTest, csv_has_a_line_for_each_step) {
  const TrainingHistory history{{{1, 5.5, 0.1, 2.25, false}, {2, 1.0 / 3.0, 0.1, 1.0, true}},
                                {{2, 4.0}}};
  EXPECT_EQ(loss_csv(history),
            "step,loss,learning_rate,gradient_norm,skipped,validation_loss\n"
            "1,5.5,0.1,2.25,0,\n"
            "2,0.3333333333333333,0.1,1,1,4\n");
}

TEST(HistoryTest, svg_draws_what_there_is) {
  TrainingHistory history;
  EXPECT_NE(loss_svg(history, "nothing").find("</svg>"), std::string::npos);
  for (int step = 1; step <= 5000; ++step) history.steps.push_back({step, 9.0 / step});
  history.validation = {{2500, 1.0}, {5000, 0.5}};
  const std::string svg = loss_svg(history, "a <b> & c");
  EXPECT_NE(svg.find("a &lt;b> &amp; c"), std::string::npos);
  EXPECT_LT(svg.size(), 20000U);  // thinned
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace cephalo
