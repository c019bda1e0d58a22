#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A guided exercise: multi-head attention (rung 5) written by the reader, one step at a time, on
// one small layer. Its sizes all differ, so that an axis in the wrong place shows.
struct Exercise {
  dim_t batch = 2;
  dim_t tokens = 5;
  dim_t d_in = 6;
  dim_t d_out = 12;
  dim_t num_heads = 3;
  dim_t head_dim = 4;
  std::uint64_t seed = 123;
  Tensor x;           // [batch, tokens, d_in]
  Tensor W_query;     // [d_out, d_in], as W_key and W_value: q = linear(x, W_query)
  Tensor W_key;       //
  Tensor W_value;     //
  Tensor out_weight;  // [d_out, d_out]
  Tensor out_bias;    // [d_out]
};
Exercise exercise();

// One step of the exercise, in the order in which they are written.
struct ExerciseStep {
  const char* name;  // "split"
  const char* axes;  // "batch, tokens, num_heads, head_dim"
  const char* task;  // what to write
};
const std::vector<ExerciseStep>& exercise_steps();
std::size_t exercise_step_number(const std::string& step);  // an error that lists the steps

// What a step gives, as the layer computes it.
Tensor exercise_answer(const std::string& step);

// What the checker says about an answer: that it is right and what comes next, or which axis or
// which mistake makes it wrong.
struct Verdict {
  bool right = false;
  std::string text;
};

// answer: the array of that step, in the shape that exercise_steps names; an empty one is not done
// yet. An unknown step is an error that lists them.
Verdict check(const std::string& step, const TensorView& answer);

}  // namespace cephalo
#pragma GCC visibility pop
