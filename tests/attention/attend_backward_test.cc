#include "cephalo/attention/attend_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/train/gradcheck.h"
#include "tests/support/backward_engines.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_finite;
using testing::all_zero;
using testing::error_of;
using testing::largest_difference;
using testing::normal;
using testing::same_bits;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class AttendBackwardTest : public ::testing::TestWithParam<Engine> {
 protected:
  AttendOptions options() const { return {.return_lse = true, .engine = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Engines, AttendBackwardTest,
                         ::testing::ValuesIn(testing::kBackwardEngines),
                         [](const auto& engine) { return std::string(name(engine.param)); });

// Forward and back, with dcontext and dlse of seeds 4 and 5 in q's type and that of its sums.
AttendGradients gradients_of(const TensorView& q, const TensorView& k, const TensorView& v,
                             const Mask& mask, const AttendOptions& options) {
  const AttendResult r = attend(q, k, v, mask, options);
  const Tensor dcontext = normal(r.context.shape(), 4, q.dtype());
  const Tensor dlse = normal(r.lse.shape(), 5, compute_type(q.dtype()));
  return attend_backward({r.context, r.lse, dcontext, dlse}, q, k, v, mask, options, true);
}

bool same_gradients(const AttendGradients& a, const AttendGradients& b) {
  bool same = same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv) &&
              a.dbias.size() == b.dbias.size();
  for (std::size_t n = 0; same && n < a.dbias.size(); ++n) same = same_bits(a.dbias[n], b.dbias[n]);
  return same;
}

TEST_P(AttendBackwardTest, two_keys_by_hand) {
  const double ln3 = std::numbers::ln2_v<double> * std::log2(3.0);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double near = dtype == DType::f32 ? 1e-6 : 1e-14;
    const Tensor q = Tensor::of({{1}}, dtype);
    const Tensor k = Tensor::of({{0}, {ln3}}, dtype);
    const Tensor v = Tensor::of({{1}, {5}}, dtype);
    const AttendResult r = attend(q, k, v, {}, options());  // weights 1/4 and 3/4
    EXPECT_NEAR(r.context.at({0, 0}), 4.0, 10 * near);
    const Tensor dcontext = Tensor::of({{2}}, dtype);
    const AttendPass pass{r.context, r.lse, dcontext};
    const AttendGradients g = attend_backward(pass, q, k, v, {}, options());
    // dweights are 2 and 10, their mean under the weights 8: dscores are -1.5 and 1.5.
    EXPECT_NEAR(g.dv.at({0, 0}), 0.5, 10 * near);
    EXPECT_NEAR(g.dv.at({1, 0}), 1.5, 10 * near);
    EXPECT_NEAR(g.dk.at({0, 0}), -1.5, 10 * near);
    EXPECT_NEAR(g.dk.at({1, 0}), 1.5, 10 * near);
    EXPECT_NEAR(g.dq.at({0, 0}), 1.5 * ln3, 10 * near);
    EXPECT_TRUE(g.dbias.empty());
    // d lse / d score is the weight: 4 of it add 1 and 3.
    const Tensor dlse = Tensor::of({4}, dtype);
    const AttendGradients with_lse =
        attend_backward({r.context, r.lse, dcontext, dlse}, q, k, v, {}, options());
    EXPECT_NEAR(with_lse.dk.at({0, 0}), -0.5, 10 * near);
    EXPECT_NEAR(with_lse.dk.at({1, 0}), 4.5, 10 * near);
    EXPECT_TRUE(same_bits(with_lse.dv, g.dv));
  }
}

TEST_P(AttendBackwardTest, equals_pytorch_on_every_mask_and_grouping) {
  int compared = 0;
  const auto golden = testing::read_golden("attend.json");
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") == "rotary" || !c.contains("gradients")) continue;
    const auto dim = [&](const char* key) { return c.at(key).get<dim_t>(); };
    const Shape q_shape{dim("batch"), dim("num_heads"), dim("q_tokens"), dim("head_dim")};
    const Shape k_shape{dim("batch"), dim("num_kv_heads"), dim("kv_tokens"), dim("head_dim")};
    const Shape v_shape{dim("batch"), dim("num_kv_heads"), dim("kv_tokens"), dim("v_dim")};
    AttendOptions with = options();
    if (c.contains("scale")) with.scale = c.at("scale").get<double>();
    if (c.contains("softcap") && !c.at("softcap").is_null()) with.softcap = c.at("softcap");
    const Mask mask = testing::golden_mask(c);
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Tensor q = normal(q_shape, 1, dtype);
      const Tensor k = normal(k_shape, 2, dtype);
      const Tensor v = normal(v_shape, 3, dtype);
      const AttendResult r = attend(q, k, v, mask, with);
      const Tensor dcontext = normal(r.context.shape(), 4, dtype);
      const AttendGradients g = attend_backward({r.context, r.lse, dcontext}, q, k, v, mask, with);
      for (const auto& [key, ours] :
           {std::pair{"q", &g.dq}, std::pair{"k", &g.dk}, std::pair{"v", &g.dv}}) {
        const auto& theirs = c.at("gradients").at(key);
        const double bound =
            (dtype == DType::f64 ? 1e-12 : 1e-5) * std::max(1.0, testing::golden_magnitude(theirs));
        EXPECT_LE(testing::golden_difference(theirs, *ours), bound)
            << c.at("case") << " d" << key << " " << name(dtype);
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 2 * 30);
}

// Central differences of every element agree.
void expect_gradients(const TensorView& q, const TensorView& k, const TensorView& v,
                      const Mask& mask, const AttendOptions& options) {
  const GradcheckReport report = gradcheck(q, k, v, mask, options);
  EXPECT_TRUE(report.passed()) << report.to_string();
}

TEST_P(AttendBackwardTest, a_bias_gets_its_gradient_in_its_own_shape) {
  const dim_t batch = 2, heads = 2, q_tokens = 3, kv_tokens = 5;
  const Tensor q = normal({batch, heads, q_tokens, 4}, 1, DType::f64);
  const Tensor k = normal({batch, 1, kv_tokens, 4}, 2, DType::f64);
  const Tensor v = normal({batch, 1, kv_tokens, 3}, 3, DType::f64);
  for (const Shape& shape :
       {Shape{q_tokens, kv_tokens}, Shape{1, kv_tokens}, Shape{1, 1},
        Shape{heads, q_tokens, kv_tokens}, Shape{heads, 1, 1}, Shape{batch, 1, 1, kv_tokens},
        Shape{1, heads, q_tokens, 1}, Shape{batch, heads, q_tokens, kv_tokens}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor added = normal(shape, 6, DType::f64);
    const Mask mask = bias(added) & window(2, 1);
    expect_gradients(q, k, v, mask, options());
    const AttendGradients g = gradients_of(q, k, v, mask, options());
    ASSERT_EQ(g.dbias.size(), 1U);
    EXPECT_EQ(g.dbias[0].shape(), shape);
  }
}

TEST_P(AttendBackwardTest, biases_keep_their_order_and_what_hides_has_no_gradient) {
  const Tensor q = normal({2, 3, 4}, 1);
  const Tensor k = normal({2, 5, 4}, 2);
  Tensor hiding = normal({3, 5}, 3);
  hiding.set({1, 2}, -kInfinity);
  const Tensor by_head = normal({2, 1, 1}, 4);
  const Mask mask = bias(by_head) & causal() & keep(Tensor::full({3, 5}, 1, DType::boolean)) &
                    bias(hiding) & alibi({0.5F, 0.25F});
  const AttendGradients g = gradients_of(q, k, k, mask, options());
  ASSERT_EQ(g.dbias.size(), 2U);
  EXPECT_EQ(g.dbias[0].shape(), by_head.shape());
  EXPECT_EQ(g.dbias[1].shape(), hiding.shape());
  EXPECT_EQ(g.dbias[1].at({1, 2}), 0.0);  // by -inf
  EXPECT_EQ(g.dbias[1].at({0, 4}), 0.0);  // by causal, from all heads
  EXPECT_NE(g.dbias[1].at({1, 1}), 0.0);
  expect_gradients(q, k, k, mask, options());
}

TEST_P(AttendBackwardTest, the_gradient_of_a_repeated_bias_is_the_sum_of_the_whole_one) {
  const Tensor q = normal({2, 4, 9, 8}, 1, DType::f64);
  const Tensor small = normal({4, 1, 9}, 2, DType::f64);
  const Tensor whole = Tensor::copy(broadcast_to(small, {2, 4, 9, 9}));
  const Mask repeated = causal() & bias(small);
  const Mask full = causal() & bias(whole);
  const AttendGradients a = gradients_of(q, q, q, repeated, options());
  const AttendGradients b = gradients_of(q, q, q, full, options());
  for (dim_t h = 0; h < 4; ++h) {
    for (dim_t j = 0; j < 9; ++j) {
      double sum = 0.0;
      for (dim_t n = 0; n < 18; ++n) sum += b.dbias[0].at({n / 9, h, n % 9, j});
      EXPECT_NEAR(a.dbias[0].at({h, 0, j}), sum, 1e-13);
    }
  }
  EXPECT_LE(largest_difference(a.dq, b.dq), 1e-13);
}

TEST_P(AttendBackwardTest, softcap_scale_and_dropout_are_gone_through_backwards) {
  const Tensor q = normal({1, 2, 4, 5}, 1);
  const Tensor k = normal({1, 2, 6, 5}, 2);
  const Tensor v = normal({1, 2, 6, 3}, 3);
  AttendOptions with = options();
  with.softcap = 0.8;
  expect_gradients(q, k, v, causal(), with);
  expect_gradients(q, k, v, causal() & bias(normal({2, 4, 6}, 4)), with);  // added to capped ones
  with.scale = -1.5;
  expect_gradients(q, k, v, causal() & alibi({0.5F, 0.1F}), with);
  with.dropout = 0.4;
  with.seed = 11;
  expect_gradients(q, k, v, causal() & positions(Align::bottom_right, -1), with);
  with.scale = 0.0;
  expect_gradients(q, k, v, {}, with);
}

TEST(AttendBackwardTorchStreamTest, dropout_is_drawn_again_from_where_the_forward_began) {
  const Tensor q = normal({2, 2, 3, 4}, 1);
  for (const DropoutStream stream : {DropoutStream::torch, DropoutStream::torch_mkl}) {
    for (const bool in_turn : {false, true}) {
      TorchGenerator generator(9);
      generator.random();
      const AttendOptions with{.dropout = 0.5,
                               .dropout_stream = stream,
                               .generator = &generator,
                               .heads_draw_in_turn = in_turn};
      expect_gradients(q, q, q, causal(), with);
      EXPECT_EQ(generator.draws(), 1U);
    }
  }
}

TEST_P(AttendBackwardTest, a_shared_key_head_collects_from_its_query_heads) {
  const Tensor q = normal({2, 6, 5, 4}, 1, DType::f64);
  const Tensor k = normal({2, 2, 7, 4}, 2, DType::f64);
  const Tensor v = normal({2, 2, 7, 3}, 3, DType::f64);
  const AttendGradients shared = gradients_of(q, k, v, causal(), options());
  const auto grown = [](const Tensor& t) {
    Tensor all = Tensor::empty({2, 6, 7, t.dim(3)}, DType::f64);
    for (dim_t b = 0; b < 2; ++b) {
      for (dim_t h = 0; h < 6; ++h) all.mutable_view()[b][h].copy_from(t[b][h / 3]);
    }
    return all;
  };
  const AttendGradients each = gradients_of(q, grown(k), grown(v), causal(), options());
  EXPECT_LE(largest_difference(shared.dq, each.dq), 1e-14);
  for (const auto& [ours, theirs] :
       {std::pair{&shared.dk, &each.dk}, std::pair{&shared.dv, &each.dv}}) {
    for (dim_t n = 0; n < ours->numel(); ++n) {
      const dim_t dim = ours->dim(3);
      const Dims at{n / dim / 7 / 2, n / dim / 7 % 2, n / dim % 7, n % dim};
      double sum = 0.0;
      for (dim_t g = 0; g < 3; ++g) sum += theirs->at({at[0], at[1] * 3 + g, at[2], at[3]});
      EXPECT_NEAR(ours->at(at), sum, 1e-13);
    }
  }
}

TEST_P(AttendBackwardTest, a_query_that_may_look_at_nothing_has_no_gradient) {
  const Tensor q = normal({1, 2, 4, 8}, 1);
  const Tensor k = normal({1, 2, 2, 8}, 2);
  const AttendGradients g = gradients_of(q, k, k, causal(), options());  // positions -2, -1, 0, 1
  for (dim_t i = 0; i < 4; ++i) EXPECT_EQ(all_zero(g.dq[0][0][i]), i < 2);
  EXPECT_TRUE(all_finite(g.dk));
  const AttendGradients none = gradients_of(q, k, k, lengths({0}), options());
  EXPECT_TRUE(all_zero(none.dq) && all_zero(none.dk) && all_zero(none.dv));
}

// q, k, v, bias, context, lse and dcontext of one call; some rows of them are hidden.
struct Hidden {
  Tensor q, k, v, added, context, lse, dcontext, dlse;
};

TEST_P(AttendBackwardTest, what_is_hidden_reaches_no_gradient_not_even_as_nan) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const dim_t batch = 2, heads = 4, q_tokens = 9, kv_tokens = 11;
    const Mask hide = lengths({7, 10}, {6, 8});  // the rows behind: of all tensors
    AttendOptions with = options();
    with.softcap = 3.0;
    with.dropout = 0.2;
    const auto gradients_with = [&](double filler) {
      const auto fill_behind = [&](Tensor& t, const std::vector<dim_t>& valid) {
        for (dim_t b = 0; b < batch; ++b) {
          const dim_t first = valid[static_cast<std::size_t>(b)];
          t.mutable_view()[b].slice(1, first, t.dim(2)).fill(filler);
        }
      };
      Hidden x{normal({batch, heads, q_tokens, 8}, 1, dtype),
               normal({batch, 2, kv_tokens, 8}, 2, dtype),
               normal({batch, 2, kv_tokens, 5}, 3, dtype),
               normal({batch, 1, q_tokens, 1}, 6, dtype),
               {},
               {},
               normal({batch, heads, q_tokens, 5}, 4, dtype),
               normal({batch, heads, q_tokens}, 5, dtype)};
      fill_behind(x.q, {6, 8});
      fill_behind(x.k, {7, 10});
      fill_behind(x.v, {7, 10});
      fill_behind(x.added, {6, 8});
      const Mask mask = hide & bias(x.added);
      AttendResult r = attend(x.q, x.k, x.v, mask, with);
      fill_behind(r.context, {6, 8});
      fill_behind(x.dcontext, {6, 8});
      fill_behind(x.dlse, {6, 8});
      return attend_backward({r.context, r.lse, x.dcontext, x.dlse}, x.q, x.k, x.v, mask, with,
                             true);
    };
    const AttendGradients clean = gradients_with(0.0);
    EXPECT_TRUE(all_finite(clean.dq) && all_finite(clean.dk) && all_finite(clean.dv));
    EXPECT_TRUE(all_zero(clean.dk[0].slice(1, 7, kv_tokens)));
    EXPECT_TRUE(all_zero(clean.dq[1].slice(1, 8, q_tokens)));
    for (const double filler : {kNan, kInfinity, -kInfinity, 1e30}) {
      EXPECT_TRUE(same_gradients(gradients_with(filler), clean)) << filler;
    }
  }
}

TEST_P(AttendBackwardTest, a_nan_stays_with_those_who_see_it) {
  const dim_t tokens = 70;
  const Tensor q = normal({1, 1, tokens, 8}, 1);
  Tensor k = normal({1, 1, tokens, 8}, 2);
  Tensor v = normal({1, 1, tokens, 8}, 3);
  const AttendGradients clean = gradients_of(q, k, v, causal(), options());
  for (Tensor* t : {&k, &v}) {
    const Tensor before = Tensor::copy(*t);
    t->set({0, 0, tokens - 1, 3}, kNan);  // the last query alone looks at it
    const AttendGradients g = gradients_of(q, k, v, causal(), options());
    EXPECT_TRUE(same_bits(g.dq.slice(2, 0, tokens - 1), clean.dq.slice(2, 0, tokens - 1)));
    EXPECT_FALSE(all_finite(g.dq.slice(2, tokens - 1, tokens)));
    t->mutable_view().copy_from(before);
  }
}

TEST_P(AttendBackwardTest, any_strides_and_ranks_give_the_same_bits) {
  const Tensor packed = normal({2, 5, 3, 4, 6}, 1);  // batch, tokens, q|k|v, heads, dim
  const auto part = [&](dim_t which) { return transpose(packed.select(2, which), 1, 2); };
  const Tensor q = Tensor::copy(part(0));
  const Tensor k = Tensor::copy(part(1));
  const Tensor v = Tensor::copy(part(2));
  const Tensor added = normal({5, 5}, 7);
  const Mask mask = causal() & bias(added);
  const AttendGradients dense = gradients_of(q, k, v, mask, options());

  // Inputs where they lie, results into [batch, tokens, heads, dim] inside a larger tensor.
  const AttendResult r = attend(q, k, v, mask, options());
  const Tensor dcontext = normal(r.context.shape(), 4);
  const Tensor dlse = normal(r.lse.shape(), 5);
  const Tensor apart = Tensor::copy(permute(dcontext, {3, 2, 1, 0}));
  const Tensor lse_apart = Tensor::copy(permute(dlse, {2, 1, 0}));
  const Tensor context_apart = Tensor::copy(transpose(r.context, 1, 2));
  const AttendPass pass{transpose(context_apart, 1, 2), r.lse, permute(apart, {3, 2, 1, 0}),
                        permute(lse_apart, {2, 1, 0})};
  Tensor memory = Tensor::full({2, 5, 4, 4, 6}, 77.0);
  Tensor bias_memory = Tensor::full({5, 6, 2}, 77.0);
  const auto place = [&](dim_t which) -> MutableTensorView {
    const MutableTensorView at = memory.mutable_view().select(2, which);
    const Strides& s = at.strides();
    return {at.mutable_data(), at.dtype(), {2, 4, 5, 6}, {s[0], s[2], s[1], s[3]}};
  };
  const MutableTensorView dbias = bias_memory.mutable_view().select(2, 0).slice(1, 0, 5);
  attend_backward_into({place(0), place(1), place(2), {dbias}}, pass, part(0), part(1), part(2),
                       mask, options());
  EXPECT_TRUE(same_bits(place(0), dense.dq));
  EXPECT_TRUE(same_bits(place(1), dense.dk));
  EXPECT_TRUE(same_bits(place(2), dense.dv));
  EXPECT_TRUE(same_bits(dbias, dense.dbias[0]));
  const Tensor untouched = Tensor::full({2, 5, 4, 6}, 77.0);
  EXPECT_TRUE(same_bits(memory.select(2, 3), untouched));
  EXPECT_TRUE(same_bits(bias_memory.select(2, 1), Tensor::full({5, 6}, 77.0)));

  // No batch, and one head: the results have the rank of q.
  const AttendGradients three = attend_backward({r.context[1], r.lse[1], dcontext[1], dlse[1]},
                                                q[1], k[1], v[1], mask, options());
  EXPECT_TRUE(same_bits(three.dq, dense.dq[1]) && same_bits(three.dk, dense.dk[1]));
  const AttendGradients two =
      attend_backward({r.context[1][2], r.lse[1][2], dcontext[1][2], dlse[1][2]}, q[1][2], k[1][2],
                      v[1][2], mask, options());
  EXPECT_TRUE(same_bits(two.dv, dense.dv[1][2]) && same_bits(two.dq, dense.dq[1][2]));
}

TEST_P(AttendBackwardTest, the_same_bits_for_any_number_of_threads) {
  const Tensor q = normal({2, 4, 150, 24}, 1);
  const Tensor k = normal({2, 2, 150, 24}, 2);
  const Tensor added = normal({4, 1, 150}, 3);
  AttendOptions with = options();
  with.dropout = 0.1;
  with.threads = 1;
  const AttendGradients one = gradients_of(q, k, k, causal() & bias(added), with);
  for (const int threads : {2, 3, 7}) {
    with.threads = threads;
    EXPECT_TRUE(same_gradients(gradients_of(q, k, k, causal() & bias(added), with), one))
        << threads;
  }
}

TEST_P(AttendBackwardTest, empty_sizes_have_zero_gradients) {
  const auto run = [&](const Shape& q_shape, const Shape& k_shape, dim_t v_dim) {
    const Tensor q = normal(q_shape, 1);
    const Tensor k = normal(k_shape, 2);
    const Tensor v = normal({k_shape[0], k_shape[1], k_shape[2], v_dim}, 3);
    const Tensor added = normal({1, 1}, 4);
    return gradients_of(q, k, v, causal() & bias(added), options());
  };
  const AttendGradients no_keys = run({2, 4, 3, 5}, {2, 2, 0, 5}, 6);
  EXPECT_TRUE(all_zero(no_keys.dq));
  EXPECT_EQ(no_keys.dq.shape(), (Shape{2, 4, 3, 5}));
  EXPECT_EQ(no_keys.dv.shape(), (Shape{2, 2, 0, 6}));
  EXPECT_TRUE(all_zero(no_keys.dbias[0]));
  const AttendGradients no_queries = run({2, 4, 0, 5}, {2, 2, 3, 5}, 6);
  EXPECT_TRUE(all_zero(no_queries.dk) && all_zero(no_queries.dv) && all_zero(no_queries.dbias[0]));
  EXPECT_EQ(no_queries.dk.shape(), (Shape{2, 2, 3, 5}));
  const AttendGradients no_batch = run({0, 4, 3, 5}, {0, 2, 3, 5}, 6);
  EXPECT_EQ(no_batch.dk.shape(), (Shape{0, 2, 3, 5}));
  EXPECT_TRUE(all_zero(no_batch.dbias[0]));
  const AttendGradients no_width = run({2, 4, 3, 5}, {2, 2, 3, 5}, 0);
  EXPECT_EQ(no_width.dv.shape(), (Shape{2, 2, 3, 0}));
  EXPECT_FALSE(all_zero(no_width.dq));  // of lse
  EXPECT_TRUE(all_finite(no_width.dq));
}

// Keys in several chunks, rows and tiles with tails.
TEST_P(AttendBackwardTest, nan_in_a_hidden_row_of_16_bits_reaches_nothing) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor q = normal({1, 4, 131, 9}, 1, dtype);
    Tensor k = normal({1, 2, 203, 9}, 2, dtype), v = normal({1, 2, 203, 7}, 3, dtype);
    const Mask mask = causal() & lengths({200});
    const AttendGradients before = gradients_of(q, k, v, mask, options());
    for (dim_t h = 0; h < 2; ++h) {
      k.mutable_view()[0][h].slice(0, 200, 203).fill(kNan);
      v.mutable_view()[0][h].slice(0, 200, 203).fill(kInfinity);
    }
    const AttendGradients after = gradients_of(q, k, v, mask, options());
    EXPECT_TRUE(same_bits(after.dq, before.dq) && same_bits(after.dk, before.dk) &&
                same_bits(after.dv, before.dv));
    EXPECT_TRUE(all_finite(after.dq) && !all_zero(after.dq));
    EXPECT_TRUE(all_zero(after.dk[0][1].slice(0, 200, 203)));
  }
}

TEST_P(AttendBackwardTest, wrong_shapes_and_types_are_named) {
  const Tensor q = normal({2, 4, 3, 8}, 1);
  const Tensor k = normal({2, 2, 5, 8}, 2);
  const Tensor v = normal({2, 2, 5, 6}, 3);
  const Tensor added = normal({3, 5}, 4);
  const Mask mask = bias(added);
  const AttendResult r = attend(q, k, v, mask, options());
  const Tensor dcontext = normal(r.context.shape(), 4);
  const auto error_with = [&](const AttendPass& pass) {
    return error_of([&] { attend_backward(pass, q, k, v, mask, options()); });
  };
  EXPECT_EQ(error_with({r.context, r.lse, dcontext[0]}),
            "attend_backward: dcontext is [4, 3, 6], expected [2, 4, 3, 6]");
  EXPECT_EQ(error_with({q, r.lse, dcontext}),
            "attend_backward: context is [2, 4, 3, 8], expected [2, 4, 3, 6]");
  EXPECT_EQ(error_with({r.context, r.lse[0], dcontext}),
            "attend_backward: lse is [4, 3], expected [2, 4, 3]");
  EXPECT_EQ(error_with({r.context, r.lse, dcontext, r.lse[1]}),
            "attend_backward: dlse is [4, 3], expected [2, 4, 3]");
  EXPECT_EQ(error_with({r.context, r.lse, Tensor::copy(dcontext, DType::f64)}),
            "attend_backward: dcontext is float64, q is float32; they must be the same");
  const Tensor half = Tensor::copy(q, DType::bf16);
  EXPECT_EQ(error_of([&] {
              attend_backward({half, half, half}, half, half, half);
            }),
            "attend_backward: lse is bfloat16, float32 is needed");
  EXPECT_EQ(error_of([&] {
              const Tensor half_k = Tensor::copy(k, DType::f16);
              const Tensor half_v = Tensor::copy(v, DType::f16);
              attend_backward({r.context, r.lse, dcontext}, q, half_k, half_v);
            }),
            "attend_backward: q is float32 but k and v are float16; they must be the same");
  Tensor dq = Tensor::empty(q.shape()), dk = Tensor::empty(k.shape()),
         dv = Tensor::empty(v.shape());
  Tensor dbias = Tensor::empty({3, 5}, DType::f64);
  const auto into = [&](const AttendGradientViews& gradients) {
    return error_of([&] {
      attend_backward_into(gradients, {r.context, r.lse, dcontext}, q, k, v, mask, options());
    });
  };
  EXPECT_EQ(into({dq, dv, dk}), "attend_backward: dk is [2, 2, 5, 6], expected [2, 2, 5, 8]");
  EXPECT_EQ(into({dq, dk, dv, {dbias}}), "attend_backward: dbias is float64, float32 is needed");
  EXPECT_EQ(
      into({dq, dk, dv, {dbias, dbias}}),
      "attend_backward: 2 gradients for the 1 biases of the mask; pass one for each, or none");
  EXPECT_EQ(into({dq, dk, dv}), "");
}

}  // namespace
}  // namespace cephalo
