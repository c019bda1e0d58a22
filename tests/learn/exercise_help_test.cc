#include "cephalo/learn/exercise_help.h"

#include <gtest/gtest.h>

#include "cephalo/learn/exercise.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

TEST(ExerciseHelpTest, every_step_has_three_hints_and_a_solution_in_both_languages) {
  for (const ExerciseStep& step : exercise_steps()) {
    EXPECT_EQ(exercise_hints(step.name).size(), 3U) << step.name;
    const ExerciseSolution solution = exercise_solution(step.name);
    EXPECT_FALSE(solution.python.empty()) << step.name;
    EXPECT_FALSE(solution.cpp.empty()) << step.name;
    EXPECT_TRUE(check(step.name, solution.answer).right) << step.name;
  }
}

// Sizes in hints are those of the exercise.
TEST(ExerciseHelpTest, the_last_hint_of_the_split_says_the_shape) {
  EXPECT_NE(exercise_hints("split").back().find("(2, 5, 3, 4)"), std::string::npos);
  EXPECT_EQ(exercise_answer("split").shape(), (Shape{2, 5, 3, 4}));
}

TEST(ExerciseHelpTest, a_solution_in_words_has_lines_shape_and_numbers) {
  const ExerciseSolution solution = exercise_solution("split");
  const std::string text = to_text("split", solution);
  EXPECT_NE(text.find("q_split = q.reshape(e.batch, "), std::string::npos);
  EXPECT_NE(text.find("[batch, tokens, num_heads, head_dim] = (2, 5, 3, 4)"), std::string::npos);
  const std::string number =
      std::to_string(solution.answer.at({1, 4, 2, 0})).substr(0, 6);  // of the last row
  EXPECT_NE(text.find(number), std::string::npos) << text;
  EXPECT_NE(to_text("split", solution, true).find("view(q, {e.batch, "), std::string::npos);
}

TEST(ExerciseHelpTest, an_unknown_step_is_refused_with_the_list) {
  const std::string message = error_of([] { static_cast<void>(exercise_hints("attend")); });
  EXPECT_EQ(message.substr(0, 66),
            "exercise: there is no step \"attend\"; the steps are project, split,");
  EXPECT_EQ(error_of([] { static_cast<void>(exercise_solution("attend")); }), message);
}

}  // namespace
}  // namespace cephalo
