// A plan says what will run, and what does not run is refused by name.
#include <gtest/gtest.h>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/random.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;
using testing::same_bits;

const std::string kWhy =
    "dropout from a torch stream draws for the whole weights matrix in its memory order; the "
    "counter stream can be drawn tile by tile";

struct PlanTest : ::testing::Test {
  Tensor q = normal({2, 4, 10, 8}, 1);
  Tensor k = normal({2, 2, 12, 8}, 2);
  Tensor v = normal({2, 2, 12, 6}, 3);
  TorchGenerator generator{1};
  AttendOptions torch_dropout(DropoutStream stream = DropoutStream::torch) {
    return {.dropout = 0.5, .dropout_stream = stream, .generator = &generator};
  }
};

TEST_F(PlanTest, the_fused_engine_is_picked_and_its_instruction_set_named) {
  const Plan p = plan(q, k, v);
  EXPECT_EQ(p.engine, Engine::fused);
  EXPECT_EQ(p.isa, current_isa());
  EXPECT_TRUE(p.refused.empty());
  EXPECT_GT(p.scratch, 0U);
  EXPECT_EQ(p.to_string().find(std::string("fused engine on ") + name(p.isa) + ": "), 0U);
}

TEST_F(PlanTest, flops_count_the_pairs_that_positions_allow) {
  const double per_pair = 2.0 * (8 + 6);
  EXPECT_EQ(plan(q, k, v).flops, per_pair * 2 * 4 * 10 * 12);
  // Bottom right: query i sees i + 3 keys.
  EXPECT_EQ(plan(q, k, v, causal()).flops, per_pair * 2 * 4 * (10 * 3 + 45));
  EXPECT_EQ(plan(q, k, v, causal() & window(1, 0)).flops, per_pair * 2 * 4 * 10 * 2);
  EXPECT_EQ(plan(q, k, v, lengths({0, 12})).flops, per_pair * 4 * 10 * 12);
  EXPECT_EQ(plan(q, k, v).bytes, 4.0 * (2 * 4 * 10 * (8 + 6) + 2 * 2 * 12 * (8 + 6)));
}

TEST_F(PlanTest, scratch_of_the_fused_engine_does_not_grow_with_the_square) {
  const Tensor long_q = normal({1, 1, 4096, 8}, 1);
  const Plan fused = plan(long_q, long_q, long_q, causal());
  const Plan reference = plan(long_q, long_q, long_q, causal(), {.engine = Engine::reference});
  EXPECT_EQ(reference.engine, Engine::reference);
  EXPECT_GE(reference.scratch, 4096U * 4096U * 4U);
  const Tensor short_q = normal({1, 1, 1024, 8}, 1);
  EXPECT_LE(fused.scratch, 4 * plan(short_q, short_q, short_q, causal()).scratch + 4096);
}

TEST_F(PlanTest, what_is_refused_is_told_with_the_reason) {
  for (const DropoutStream stream : {DropoutStream::torch, DropoutStream::torch_mkl}) {
    const Plan p = plan(q, k, v, {}, torch_dropout(stream));
    EXPECT_EQ(p.engine, Engine::reference);
    ASSERT_EQ(p.refused.size(), 1U);
    EXPECT_EQ(p.refused[0].engine, Engine::fused);
    EXPECT_EQ(p.refused[0].reason, kWhy);
    EXPECT_NE(p.to_string().find("fused refuses: " + kWhy), std::string::npos) << p.to_string();
    EXPECT_EQ(p.to_string().substr(0, 17), "reference engine:");
  }
  AttendOptions none = torch_dropout();
  none.dropout = 0.0;  // nothing is drawn
  EXPECT_EQ(plan(q, k, v, {}, none).engine, Engine::fused);
  EXPECT_EQ(plan(q, k, v, {}, {.dropout = 0.5}).engine, Engine::fused);
}

TEST_F(PlanTest, a_plan_draws_nothing_and_throws_what_attend_throws) {
  plan(q, k, v, {}, torch_dropout());
  EXPECT_EQ(generator.draws(), 0U);
  EXPECT_EQ(error_of([&] { plan(q, v, k); }),
            "plan: head_dim of q (8) and k (6) differ: q [2, 4, 10, 8], k [2, 2, 12, 6]");
  EXPECT_EQ(error_of([&] {
              plan(q, k, v, alibi({1, 2}));
            }),
            "plan: alibi has 2 slopes, num_heads is 4");
}

TEST_F(PlanTest, automatic_falls_back_to_the_reference_engine_for_torch_dropout) {
  TorchGenerator other(1);
  AttendOptions reference = torch_dropout();
  reference.engine = Engine::reference;
  reference.generator = &other;
  const Tensor fallen = attend(q, k, v, causal(), torch_dropout()).context;
  EXPECT_TRUE(same_bits(fallen, attend(q, k, v, causal(), reference).context));
  EXPECT_GT(generator.draws(), 0U);
}

TEST_F(PlanTest, the_fused_engine_asked_for_by_name_refuses_torch_dropout) {
  AttendOptions options = torch_dropout();
  options.engine = Engine::fused;
  EXPECT_EQ(error_of([&] { attend(q, k, v, {}, options); }),
            "attend: the fused engine refuses: " + kWhy);
  EXPECT_EQ(error_of([&] { plan(q, k, v, {}, options); }),
            "plan: the fused engine refuses: " + kWhy);
  EXPECT_EQ(generator.draws(), 0U);
}

TEST_F(PlanTest, require_throws_the_reason_instead_of_falling_back) {
  AttendOptions options = torch_dropout();
  options.require = Engine::fused;
  EXPECT_EQ(error_of([&] { attend(q, k, v, {}, options); }),
            "attend: fused is required, but it refuses: " + kWhy);
  EXPECT_EQ(error_of([&] {
              attend(q, k, v, {}, {.engine = Engine::reference, .require = Engine::fused});
            }),
            "attend: fused is required, but engine = reference was asked for");
  EXPECT_EQ(error_of([&] { attend(q, k, v, {}, {.require = Engine::reference}); }),
            "attend: reference is required, but engine = automatic picks fused");
  EXPECT_EQ(error_of([&] {
              attend(q, k, v, {}, {.engine = Engine::fused, .require = Engine::reference});
            }),
            "attend: reference is required, but engine = fused was asked for");
  EXPECT_EQ(error_of([&] { attend(q, k, v, {}, {.require = Engine::fused}); }), "");
  Tensor context = Tensor::empty({2, 4, 10, 6});
  EXPECT_EQ(error_of([&] { attend_into({context}, q, k, v, {}, options); }),
            "attend_into: fused is required, but it refuses: " + kWhy);
}

TEST_F(PlanTest, a_layer_passes_engine_and_require_on) {
  MultiHeadAttention layer({.d_in = 8,
                            .d_out = 8,
                            .dropout = 0.5,
                            .num_heads = 2,
                            .seed = 1,
                            .dropout_stream = DropoutStream::torch});
  const Tensor x = normal({1, 5, 8}, 1);
  EXPECT_EQ(error_of([&] { layer(x, {.generator = &generator, .require = Engine::fused}); }),
            "MultiHeadAttention: fused is required, but it refuses: " + kWhy);
  EXPECT_EQ(error_of([&] { layer(x, {.generator = &generator, .engine = Engine::fused}); }),
            "MultiHeadAttention: the fused engine refuses: " + kWhy);
  EXPECT_EQ(error_of([&] { layer(x, {.generator = &generator}); }), "");
  layer.eval();  // no dropout, no reason
  EXPECT_EQ(error_of([&] { layer(x, {.require = Engine::fused}); }), "");
}

}  // namespace
}  // namespace cephalo
