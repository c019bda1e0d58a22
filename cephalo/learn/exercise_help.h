#pragma once

#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Help with a step of the exercise, for who asks. An unknown step is an error that lists them.

// The later, the nearer to the answer; the last one all but says it.
std::vector<std::string> exercise_hints(const std::string& step);

// The lines that solve a step, and what they give.
struct ExerciseSolution {
  std::vector<std::string> python;  // in the names of docs/exercise.ipynb
  std::vector<std::string> cpp;     // in those of examples/exercise.cc
  Tensor answer;                    // as the layer computes it
};
ExerciseSolution exercise_solution(const std::string& step);
// In words: the lines of one language, the shape and the first numbers.
std::string to_text(const std::string& step, const ExerciseSolution& solution, bool cpp = false);

}  // namespace cephalo
#pragma GCC visibility pop
