#include "cephalo/learn/exercise.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/error.h"
#include "cephalo/core/ops.h"
#include "cephalo/learn/exercise_mistakes.h"

namespace cephalo {
namespace {

constexpr const char* kKeys[] = {"q",       "q_split",       "q_heads", "scores", "scores_masked",
                                 "weights", "context_heads", "context", "output"};

struct ExerciseTest : testing::Test {
  Exercise e = exercise();
  Trace trace = [this] {
    MultiHeadAttention layer({.d_in = e.d_in,
                              .d_out = e.d_out,
                              .context_length = e.tokens,
                              .num_heads = e.num_heads,
                              .seed = e.seed});
    layer.eval();
    return layer.trace(e.x);
  }();

  TensorView answer(const std::string& step) const {
    for (std::size_t i = 0; i < exercise_steps().size(); ++i) {
      if (step == exercise_steps()[i].name) return trace.at(kKeys[i]).value;
    }
    throw std::logic_error(step);
  }
};

// What check says of a wrong answer holds these words.
void expect_named(const std::string& step, const TensorView& wrong, const std::string& words) {
  const Verdict verdict = check(step, wrong);
  EXPECT_FALSE(verdict.right) << step;
  EXPECT_NE(verdict.text.find(words), std::string::npos) << verdict.text << "\nlacks: " << words;
}

TEST_F(ExerciseTest, the_layers_own_steps_are_right_in_all_element_types) {
  for (const ExerciseStep& step : exercise_steps()) {
    for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
      const Verdict verdict = check(step.name, Tensor::copy(answer(step.name), dtype));
      EXPECT_TRUE(verdict.right) << verdict.text;
    }
  }
}

TEST_F(ExerciseTest, an_empty_answer_is_told_what_to_do) {
  for (const ExerciseStep& step : exercise_steps()) {
    expect_named(step.name, {}, std::string("to do: ") + step.task);
  }
}

TEST_F(ExerciseTest, every_likely_mistake_is_told_apart_from_all_others) {
  for (const ExerciseStep& step : exercise_steps()) {
    const std::vector<Mistake> mistakes = mistakes_of(step.name, trace, e);
    EXPECT_GE(mistakes.size(), 2u) << step.name;
    for (const Mistake& mistake : mistakes) expect_named(step.name, mistake.value, mistake.text);
  }
}

TEST_F(ExerciseTest, a_wrong_axis_is_named) {
  expect_named("project", Tensor::zeros({2, 5, 6}), "axis 2 (d_out) is 6, it should be 12");
  expect_named("split", Tensor::zeros({2, 5, 4, 3}),
               "axis 2 (num_heads) is 4, it should be 3; axis 3 (head_dim) is 3, it should be 4");
  expect_named("concat", Tensor::zeros({2, 5, 3, 4}),
               "it has 4 axes, (2, 5, 3, 4); it should have 3, [batch, tokens, d_out]");
}

TEST_F(ExerciseTest, a_transposed_answer_is_named) {
  expect_named("split", answer("transpose"),
               "yours is [batch, num_heads, tokens, head_dim], it should be "
               "[batch, tokens, num_heads, head_dim]");
  expect_named("scores", transpose(answer("scores"), 2, 3),
               "yours is [batch, num_heads, kv_tokens, q_tokens]");
}

TEST_F(ExerciseTest, the_scale_and_the_mask_are_missed_where_they_belong) {
  const TensorView masked = trace.at("scores_masked").value;
  expect_named("softmax", softmax(masked), "the scale was forgotten");
  expect_named("mask", trace.at("scores").value, "nothing is hidden yet");
  const Tensor future = triu(Tensor::full({e.tokens, e.tokens}, 1.0), 1);
  const Tensor unmasked = softmax(multiply(trace.at("scores").value, 0.5));
  expect_named("softmax", masked_fill(unmasked, future, 0.0), "mask was applied after softmax");
}

TEST_F(ExerciseTest, a_large_negative_number_hides_too) {
  const Tensor future = triu(Tensor::full({e.tokens, e.tokens}, 1.0), 1);
  EXPECT_TRUE(check("mask", masked_fill(trace.at("scores").value, future, -1e9)).right);
}

TEST_F(ExerciseTest, any_other_number_is_pointed_at) {
  Tensor wrong = Tensor::copy(answer("output"));
  wrong.set({1, 2, 3}, std::numeric_limits<double>::quiet_NaN());
  expect_named("output", wrong, "= (1, 2, 3) it is nan, not");
}

TEST_F(ExerciseTest, the_answer_of_another_step_is_recognised) {
  expect_named("project", answer("output"), "this is the answer of the step \"output\"");
}

TEST_F(ExerciseTest, an_unknown_step_is_an_error_that_lists_them) {
  try {
    check("attend", answer("output"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the steps are project, split"), std::string::npos);
  }
}

}  // namespace
}  // namespace cephalo
