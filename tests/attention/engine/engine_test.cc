// An engine is an entry in a list: a third one is chosen, refused, planned and required like the
// two that are there.
#include "cephalo/attention/engine/engine.h"

#include <gtest/gtest.h>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/plan.h"
#include "tests/support/fake_device.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;
using testing::same_bits;

// Attends to 7 queries of width 3, by giving 5 to everybody; it does nothing else.
const EngineEntry kCorner{
    .engine = static_cast<Engine>(77),
    .name = "corner",
    .refuses = [](const AttendProblem& p, Job) -> const char* {
      return p.q.dim(2) == 7 && p.q.dim(3) == 3 ? nullptr : "only 7 queries of width 3";
    },
    .attend =
        [](const AttendProblem&, const AttendOutput& output) {
          output.context.fill(5.0);
          if (output.lse.numel() > 0) output.lse.fill(0.0);
        },
};

void expect_close(const TensorView& a, const TensorView& b, double most) {
  EXPECT_LE(testing::largest_difference(a, b), most);
}

struct EngineTest : ::testing::Test {
  ScopedEngine corner{kCorner};
  Tensor q = normal({2, 4, 7, 3}, 1);
  Tensor other = normal({2, 4, 8, 3}, 2);
};

TEST_F(EngineTest, it_is_chosen_for_what_it_can_do) {
  EXPECT_EQ(attend(q, q, q).context.at({0, 0, 0, 0}), 5.0);
  EXPECT_EQ(plan(q, q, q).engine, kCorner.engine);
  EXPECT_EQ(plan(q, q, q).to_string().find("corner engine: "), 0U);
}

TEST_F(EngineTest, it_is_passed_over_where_it_refuses_and_the_plan_says_why) {
  EXPECT_EQ(plan(other, other, other).engine, Engine::fused);
  EXPECT_NE(plan(other, other, other).to_string().find("corner refuses: only 7 queries of width 3"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { attend(other, other, other, {}, {.engine = kCorner.engine}); }),
            "attend: the corner engine refuses: only 7 queries of width 3");
}

TEST_F(EngineTest, it_can_be_required_or_ruled_out) {
  EXPECT_EQ(attend(q, q, q, {}, {.require = kCorner.engine}).context.at({0, 0, 0, 0}), 5.0);
  EXPECT_EQ(error_of([&] { attend(other, other, other, {}, {.require = kCorner.engine}); }),
            "attend: corner is required, but it refuses: only 7 queries of width 3");
  EXPECT_EQ(error_of([&] { attend(q, q, q, {}, {.require = Engine::fused}); }),
            "attend: fused is required, but engine = automatic picks corner");
}

TEST_F(EngineTest, jobs_that_it_lacks_go_to_the_next_one_by_name) {
  const AttendOptions all{
      .return_lse = true, .return_weights = true, .return_scores = ScoresTap::scaled};
  const Plan p = plan(q, q, q, {}, all);
  ASSERT_EQ(p.others.size(), 2U);
  EXPECT_EQ(p.others[0].job, "weights");
  EXPECT_EQ(p.others[0].engine, Engine::fused);
  EXPECT_EQ(p.others[1].job, "scores");
  EXPECT_EQ(p.others[1].engine, Engine::reference);
  EXPECT_EQ(attend(q, q, q, {}, all).weights.dim(3), 7);
  EXPECT_EQ(error_of([&] {
              weights(q, q, Tensor::zeros({2, 4, 7}), {}, {.engine = kCorner.engine});
            }),
            "weights: the corner engine refuses: it does not do this job");
}

TEST_F(EngineTest, a_layer_attends_with_it_unless_gradients_are_wanted) {
  const MultiHeadAttention layer({.d_in = 12, .d_out = 12, .num_heads = 4, .seed = 1});
  const Tensor x = normal({2, 7, 12}, 3);
  const Tensor by_corner = layer(x);
  EXPECT_TRUE(same_bits(by_corner, layer(x, {.engine = kCorner.engine})));
  EXPECT_FALSE(same_bits(by_corner, layer(x, {.engine = Engine::fused})));
  EXPECT_TRUE(same_bits(layer.forward_train(x).y, layer(x, {.engine = Engine::fused})));
}

TEST_F(EngineTest, every_language_knows_its_name) {
  EXPECT_STREQ(name(kCorner.engine), "corner");
  EXPECT_STREQ(named_engines().back().name, "corner");
}

// An engine of a device that computes nothing, and counts how often.
int calls_elsewhere = 0;
const EngineEntry kElsewhere{
    .engine = static_cast<Engine>(78),
    .name = "elsewhere",
    .device = DeviceKind::cuda,
    .absent = [](Device device) -> const char* {
      return device.index == 1 ? nullptr : "there is no such device";
    },
    .refuses = [](const AttendProblem&, Job) -> const char* { return nullptr; },
    .attend = [](const AttendProblem&, const AttendOutput&) { ++calls_elsewhere; },
};

struct EngineOfDeviceTest : ::testing::Test {
  testing::FakeDevice device;  // cuda:1
  ScopedEngine elsewhere{kElsewhere};
  Tensor there = device.empty({1, 2, 3, 4});
  Tensor here = normal({1, 2, 3, 4}, 1);
};

TEST_F(EngineOfDeviceTest, it_is_chosen_where_its_tensors_are) {
  calls_elsewhere = 0;
  const AttendResult r = attend(there, there, there, causal(), {.return_lse = true});
  EXPECT_EQ(calls_elsewhere, 1);
  EXPECT_EQ(r.context.device(), device.device());
  EXPECT_EQ(r.lse.device(), device.device());
  EXPECT_EQ(attend(here, here, here).context.device(), Device{});
  EXPECT_EQ(calls_elsewhere, 1);
}

TEST_F(EngineOfDeviceTest, the_plan_says_who_computes_elsewhere) {
  const Plan p = plan(there, there, there);
  EXPECT_EQ(p.engine, kElsewhere.engine);
  EXPECT_NE(p.to_string().find("fused refuses: q, k and v do not lie on the host"),
            std::string::npos);
  EXPECT_NE(plan(here, here, here).to_string().find("elsewhere refuses: there is no such device"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { attend(there, there, there, {}, {.engine = Engine::fused}); }),
            "attend: the fused engine refuses: q, k and v do not lie on the host");
}

TEST_F(EngineOfDeviceTest, two_devices_in_one_call_are_refused_with_both_names) {
  const Tensor added = Tensor::zeros({3, 3});
  EXPECT_EQ(error_of([&] { attend(there, there, there, bias(added)); }),
            "attend: bias of the mask lies on host, the problem on cuda:1");
  Tensor context = Tensor::zeros({1, 2, 3, 4});
  EXPECT_EQ(error_of([&] { attend_into({context}, there, there, there); }),
            "attend_into: q lies on cuda:1, context on host");
}

TEST(EngineListTest, weights_maps_and_sums_obey_the_options_too) {
  const Tensor q = normal({1, 2, 9, 4}, 1);
  const Tensor lse = attend(q, q, q, causal(), {.return_lse = true}).lse;
  const AttendOptions reference{.engine = Engine::reference};
  const std::string why = "but engine = reference was asked for";
  const AttendOptions both{.engine = Engine::reference, .require = Engine::fused};
  EXPECT_EQ(error_of([&] { weights(q, q, lse, causal(), both); }),
            "weights: fused is required, " + why);
  EXPECT_EQ(error_of([&] { pooled_weights(q, q, lse, 3, 0, 0, causal(), both); }),
            "pooled_weights: fused is required, " + why);
  EXPECT_EQ(error_of([&] { row_sums(q, q, lse, {}, causal(), both); }),
            "row_sums: fused is required, " + why);
  // And the textbook gives the same numbers, rounded otherwise.
  expect_close(weights(q, q, lse, causal(), reference), weights(q, q, lse, causal()), 1e-6);
  expect_close(row_sums(q, q, lse, {}, causal(), reference), row_sums(q, q, lse, {}, causal()),
               1e-5);
  expect_close(pooled_weights(q, q, lse, 3, 1, 0, causal(), reference).mean,
               pooled_weights(q, q, lse, 3, 1, 0, causal()).mean, 1e-6);
}

}  // namespace
}  // namespace cephalo
