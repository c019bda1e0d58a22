#include "cephalo/attention/reference/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cephalo/core/ops.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::normal;
using testing::same_bits;

std::vector<std::string> keys_of(const Trace& trace) {
  std::vector<std::string> keys;
  for (const Step& step : trace) keys.push_back(step.key);
  return keys;
}

TEST(TraceTest, a_multi_head_trace_has_the_steps_in_order) {
  MultiHeadAttention layer(
      {.d_in = 8, .d_out = 8, .context_length = 16, .num_heads = 2, .seed = 1});
  const Trace trace = layer.trace(normal({2, 4, 8}, 1));
  EXPECT_EQ(keys_of(trace),
            (std::vector<std::string>{"x", "q", "k", "v", "q_split", "k_split", "v_split",
                                      "q_heads", "k_heads", "v_heads", "scores", "scores_masked",
                                      "scores_scaled", "weights", "weights_dropped",
                                      "context_heads", "context", "output"}));
  EXPECT_TRUE(trace.mask_first);
  EXPECT_EQ(trace.title, "MultiHeadAttention: 2 heads x 4 = 8");
  EXPECT_EQ(trace.at("q_split").formula, "q.view(2, 4, 2, 4)");
  EXPECT_EQ(trace.at("scores_masked").note, "16 x 16 cut to 4 x 4");
  EXPECT_EQ(trace.at("context").note, "256 bytes copied");
}

TEST(TraceTest, it_tells_where_memory_moved) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  const Trace trace = layer.trace(normal({2, 4, 8}, 1));
  EXPECT_FALSE(trace.at("q_split").moved);
  EXPECT_FALSE(trace.at("v_heads").moved);
  EXPECT_TRUE(trace.at("context").moved);
  EXPECT_TRUE(trace.at("scores").moved);
  EXPECT_EQ(trace.at("q_heads").strides, (Strides{32, 4, 8, 1}));
  // One token: transposing moves nothing, so concat has nothing to copy.
  EXPECT_FALSE(layer.trace(normal({1, 1, 8}, 1)).at("context").moved);
}

TEST(TraceTest, its_values_are_those_of_the_call) {
  for (const double dropout : {0.0, 0.4}) {
    MultiHeadAttention layer(
        {.d_in = 8, .d_out = 8, .dropout = dropout, .num_heads = 2, .seed = 1});
    const Tensor x = normal({2, 5, 8}, 1);
    const Trace trace = layer.trace(x, {.call = 3});
    EXPECT_TRUE(
        same_bits(trace.at("output").value, layer(x, {.call = 3, .engine = Engine::reference})));
    EXPECT_TRUE(same_bits(trace.at("x").value, x));
    const Tensor scaled = multiply(trace.at("scores_masked").value, 0.5);
    EXPECT_TRUE(same_bits(trace.at("scores_scaled").value, scaled));
    EXPECT_TRUE(same_bits(trace.at("weights").value, softmax(scaled)));
    EXPECT_EQ(same_bits(trace.at("weights").value, trace.at("weights_dropped").value),
              dropout == 0.0);
    EXPECT_TRUE(same_bits(trace.at("context_heads").value,
                          matmul(trace.at("weights_dropped").value, trace.at("v_heads").value)));
  }
}

TEST(TraceTest, with_a_bias_the_order_is_that_of_attend) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor x = normal({1, 4, 8}, 1);
  const Trace trace = layer.trace(x, {.mask = alibi({0.5F, 0.25F})});
  EXPECT_FALSE(trace.mask_first);
  EXPECT_NEAR(trace.at("scores_masked").value.at({0, 0, 3, 1}),
              trace.at("scores_scaled").value.at({0, 0, 3, 1}) - 1.0, 1e-6);
  EXPECT_TRUE(std::isinf(trace.at("scores_masked").value.at({0, 0, 0, 3})));
}

TEST(TraceTest, every_rung_can_be_traced) {
  const Tensor x = normal({2, 5, 6}, 1);
  EXPECT_EQ(keys_of(trace_simple_attention(x)),
            (std::vector<std::string>{"x", "scores", "scores_masked", "scores_scaled", "weights",
                                      "weights_dropped", "context"}));
  EXPECT_TRUE(
      same_bits(trace_simple_attention(x).at("context").value, simple_attention(x).context));
  SelfAttention self({.d_in = 6, .d_out = 4, .seed = 1});
  EXPECT_EQ(keys_of(self.trace(x)),
            (std::vector<std::string>{"x", "q", "k", "v", "scores", "scores_masked",
                                      "scores_scaled", "weights", "weights_dropped", "context"}));
  CausalAttention causal_head({.d_in = 6, .d_out = 4, .context_length = 5, .seed = 1});
  EXPECT_TRUE(same_bits(causal_head.trace(x).at("context").value,
                        causal_head(x, {.engine = Engine::reference})));
  HeadWrapper wrapper({.d_in = 6, .d_out = 4, .context_length = 5, .num_heads = 3, .seed = 1});
  EXPECT_TRUE(
      same_bits(wrapper.trace(x).at("context").value, wrapper(x, {.engine = Engine::reference})));
  EasyMultiHeadAttention easy({.d_model = 6, .num_heads = 2, .seed = 1});
  EXPECT_TRUE(same_bits(easy.trace(x).at("output").value, easy(x, {.engine = Engine::reference})));
  EXPECT_EQ(easy.trace(x).at("scores_masked").formula, "nothing hidden");
  FastMultiHeadAttention fast({.d_model = 6, .num_heads = 2, .seed = 1});
  EXPECT_TRUE(same_bits(fast.trace(x).at("output").value, fast(x, {.engine = Engine::reference})));
  EXPECT_EQ(fast.trace(x).at("v").formula, "v = qkv_proj(x).chunk(3)[2]");
}

TEST(TraceTest, cross_attention_and_empty_rows_are_told) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor memory = normal({1, 2, 8}, 2);
  const TensorView kv = memory;
  const Trace trace = layer.trace(normal({1, 4, 8}, 1), {.kv = &kv});
  EXPECT_EQ(trace.at("q").formula, "q = x W_query");
  EXPECT_EQ(trace.at("k").formula, "k = kv W_key");
  EXPECT_EQ(trace.at("weights").note, "rows sum to 1, empty ones to 0");
}

TEST(TraceTest, every_step_is_explained) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .rotary = Rotary{}, .seed = 1});
  for (const Step& step : layer.trace(normal({1, 3, 8}, 1))) {
    EXPECT_NE(std::string(explain(step.name).what), "") << step.name;
    EXPECT_NE(std::string(explain(step.name).why), "") << step.name;
    EXPECT_NE(std::string(explain(step.name).effect), "") << step.name;
  }
}

TEST(TraceTest, a_list_of_heads_projects_each_head_and_splits_nothing) {
  HeadWrapper wrapper({.d_in = 6, .d_out = 4, .context_length = 5, .num_heads = 3, .seed = 1});
  const Trace trace = wrapper.trace(normal({2, 5, 6}, 1));
  EXPECT_EQ(keys_of(trace),
            (std::vector<std::string>{"x", "q_heads", "k_heads", "v_heads", "scores",
                                      "scores_masked", "scores_scaled", "weights",
                                      "weights_dropped", "context_heads", "context"}));
  const Step& q = trace.at("q_heads");
  EXPECT_EQ(q.number + " " + q.name, "1 PROJECT");
  EXPECT_EQ(q.formula, "q = x W_query[h]");
  EXPECT_EQ(q.note, "3 of (2, 5, 4)");
  EXPECT_EQ(q.strides, q.value.strides());
  EXPECT_TRUE(q.moved);
  EXPECT_TRUE(same_bits(q.value.select(1, 2),
                        linear(trace.at("x").value, wrapper.parameter("heads.2.W_query.weight"))));
  EXPECT_EQ(trace.at("scores").formula, "q @ k.transpose(1, 2)");
  EXPECT_EQ(trace.at("context").formula, "cat(heads, dim=-1)");
  EXPECT_EQ(wrapper.trace(normal({5, 6}, 1)).at("scores").note, "3 of (5, 5)");
}

TEST(TraceTest, a_step_that_a_rung_does_not_take_is_not_explained_as_if_it_did) {
  const Tensor x = normal({1, 3, 8}, 1);
  const auto what = [](const Trace& trace, const char* key) {
    return std::string(explain(trace.at(key)).what);
  };
  EasyMultiHeadAttention easy({.d_model = 8, .num_heads = 2, .seed = 1});
  MultiHeadAttention multi({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  HeadWrapper wrapper({.d_in = 8, .d_out = 4, .context_length = 5, .num_heads = 2, .seed = 1});
  EXPECT_NE(what(multi.trace(x), "scores_masked").find("-inf"), std::string::npos);
  for (const Trace& trace : {easy.trace(x), trace_simple_attention(x)}) {
    EXPECT_EQ(what(trace, "scores_masked"),
              "nothing is hidden: every query may look at every token");
  }
  EXPECT_EQ(what(trace_simple_attention(x), "scores_scaled"),
            "nothing happens: this rung does not divide the scores");
  EXPECT_EQ(what(wrapper.trace(x), "context"), "the heads' results are laid side by side");
  for (const Trace& trace : {trace_simple_attention(x), wrapper.trace(x)}) {
    for (const Step& step : trace) EXPECT_NE(std::string(explain(step).effect), "") << step.name;
  }
}

TEST(TraceTest, an_unknown_key_lists_the_known_ones) {
  const Trace trace = trace_simple_attention(normal({2, 3}, 1));
  EXPECT_EQ(testing::error_of([&] { trace.at("q"); }),
            "trace: there is no step q; this trace has x, scores, scores_masked, scores_scaled, "
            "weights, weights_dropped, context");
}

}  // namespace
}  // namespace cephalo
