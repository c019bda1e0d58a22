#include "cephalo/learn/exercise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/indices.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/learn/exercise_mistakes.h"

namespace cephalo {
namespace {

// Wide enough for float16, far below what any mistake changes.
constexpr double kTolerance = 1e-3;
// -1e9 hides as well as -inf does; float16 ends at -65504.
constexpr double kAsGoodAsHidden = -1e4;

struct Key {
  const char* step;
  const char* key;  // of the trace
};
constexpr Key kKeys[] = {{"project", "q"},
                         {"split", "q_split"},
                         {"transpose", "q_heads"},
                         {"scores", "scores"},
                         {"mask", "scores_masked"},
                         {"softmax", "weights"},
                         {"values", "context_heads"},
                         {"concat", "context"},
                         {"output", "output"}};

MultiHeadAttention exercise_layer(const Exercise& e) {
  MultiHeadAttention layer({.d_in = e.d_in,
                            .d_out = e.d_out,
                            .context_length = e.tokens,
                            .num_heads = e.num_heads,
                            .seed = e.seed});
  layer.eval();
  return layer;
}

bool close(double found, double wanted) {
  if (std::isinf(wanted)) return found <= kAsGoodAsHidden;
  return std::abs(found - wanted) <= kTolerance;
}

// found and wanted: the same shape -> whether they are equal; else `where` they first differ
bool equal(const TensorView& found, const TensorView& wanted, Dims& where) {
  if (!(found.shape() == wanted.shape())) return false;
  where = origin(wanted.shape());
  do {
    if (!close(found.at(where), wanted.at(where))) return false;
  } while (advance(where, wanted.shape()));
  return true;
}

bool equal(const TensorView& found, const TensorView& wanted) {
  Dims where;
  return equal(found, wanted, where);
}

std::vector<std::string> axis_names(const ExerciseStep& step) {
  std::vector<std::string> names;
  std::istringstream axes(step.axes);
  for (std::string name; std::getline(axes >> std::ws, name, ',');) names.push_back(name);
  return names;
}

// The right numbers with their axes in another order, or "".
std::string other_order(const ExerciseStep& step, const TensorView& answer,
                        const TensorView& wanted) {
  if (answer.rank() != wanted.rank()) return "";
  const std::vector<std::string> names = axis_names(step);
  std::vector<int> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  while (std::next_permutation(order.begin(), order.end())) {
    Dims axes;
    std::string yours;
    for (const int axis : order) {
      axes.push_back(axis);
      yours += (yours.empty() ? "" : ", ") + names[static_cast<std::size_t>(axis)];
    }
    if (equal(answer, permute(wanted, axes))) {
      return format_text("transposed: yours is [{}], it should be [{}]", yours, step.axes);
    }
  }
  return "";
}

std::string wrong_shape(const ExerciseStep& step, const Shape& found, const Shape& wanted) {
  if (found.rank() != wanted.rank()) {
    return format_text("it has {} axes, {}; it should have {}, [{}] = {}", found.rank(),
                       to_tuple_string(found), wanted.rank(), step.axes, to_tuple_string(wanted));
  }
  const std::vector<std::string> names = axis_names(step);
  std::string text;
  for (int axis = 0; axis < wanted.rank(); ++axis) {
    if (found[axis] == wanted[axis]) continue;
    text += format_text("{}axis {} ({}) is {}, it should be {}", text.empty() ? "" : "; ", axis,
                        names[static_cast<std::size_t>(axis)], found[axis], wanted[axis]);
  }
  return text;
}

std::string wrong_values(const ExerciseStep& step, const TensorView& answer,
                         const TensorView& wanted) {
  Dims where;
  if (equal(answer, wanted, where)) return "";
  return format_text(
      "the shape is right, the numbers are not: at [{}] = {} it is {:.4f}, not {:.4f}", step.axes,
      to_tuple_string(where), answer.at(where), wanted.at(where));
}

// Why an answer that is not right is wrong: the most telling reason first.
std::string reason(const ExerciseStep& step, const TensorView& answer, const TensorView& wanted,
                   const Trace& trace, const Exercise& e) {
  std::string text = other_order(step, answer, wanted);
  if (!text.empty()) return text;
  for (const Mistake& mistake : mistakes_of(step.name, trace, e)) {
    if (equal(answer, mistake.value)) return mistake.text;
  }
  for (const Key& other : kKeys) {
    if (step.name != std::string(other.step) && equal(answer, trace.at(other.key).value)) {
      return format_text("this is the answer of the step \"{}\"; now {}", other.step, step.task);
    }
  }
  if (!(answer.shape() == wanted.shape())) return wrong_shape(step, answer.shape(), wanted.shape());
  return wrong_values(step, answer, wanted);
}

std::string what_next(std::size_t number) {
  if (number + 1 == exercise_steps().size()) return "That was the last step.";
  const ExerciseStep& next = exercise_steps()[number + 1];
  return format_text("Next, {}: {}", next.name, next.task);
}

}  // namespace

const std::vector<ExerciseStep>& exercise_steps() {
  static const std::vector<ExerciseStep> steps = {
      {"project", "batch, tokens, d_out", "q = x times W_query transposed (k and v likewise)"},
      {"split", "batch, tokens, num_heads, head_dim", "view q with d_out cut into heads"},
      {"transpose", "batch, num_heads, tokens, head_dim", "exchange axes 1 and 2 of the split q"},
      {"scores", "batch, num_heads, q_tokens, kv_tokens",
       "q times k transposed, head by head, not scaled yet"},
      {"mask", "batch, num_heads, q_tokens, kv_tokens", "-inf wherever the key is after the query"},
      {"softmax", "batch, num_heads, q_tokens, kv_tokens",
       "divide by sqrt(head_dim), then softmax over the keys"},
      {"values", "batch, num_heads, tokens, head_dim", "weights times v, head by head"},
      {"concat", "batch, tokens, d_out", "transpose back, make it contiguous, view as rows"},
      {"output", "batch, tokens, d_out", "context times out_weight transposed, plus out_bias"}};
  return steps;
}

std::size_t exercise_step_number(const std::string& wanted) {
  std::string known;
  for (std::size_t i = 0; i < exercise_steps().size(); ++i) {
    if (wanted == exercise_steps()[i].name) return i;
    known += (i == 0 ? "" : ", ") + std::string(exercise_steps()[i].name);
  }
  fail(Error::Kind::value, "exercise: there is no step \"{}\"; the steps are {}", wanted, known);
}

Tensor exercise_answer(const std::string& step) {
  const char* key = kKeys[exercise_step_number(step)].key;
  const Exercise e = exercise();
  return Tensor::copy(exercise_layer(e).trace(e.x).at(key).value);
}

Exercise exercise() {
  Exercise e;
  const MultiHeadAttention layer = exercise_layer(e);
  e.x = TorchGenerator(e.seed).randn({e.batch, e.tokens, e.d_in});
  e.W_query = Tensor::copy(layer.parameter("W_query.weight"));
  e.W_key = Tensor::copy(layer.parameter("W_key.weight"));
  e.W_value = Tensor::copy(layer.parameter("W_value.weight"));
  e.out_weight = Tensor::copy(layer.parameter("out_proj.weight"));
  e.out_bias = Tensor::copy(layer.parameter("out_proj.bias"));
  return e;
}

Verdict check(const std::string& step, const TensorView& answer) {
  const std::size_t number = exercise_step_number(step);
  const ExerciseStep& known = exercise_steps()[number];
  if (answer.numel() == 0) return {false, format_text("{}: to do: {}", step, known.task)};
  const Exercise e = exercise();
  const Trace trace = exercise_layer(e).trace(e.x);
  const TensorView wanted = trace.at(kKeys[number].key).value;
  if (equal(answer, wanted)) {
    const std::string shape = to_tuple_string(wanted.shape());
    return {true,
            format_text("{}: right, [{}] = {}. {}", step, known.axes, shape, what_next(number))};
  }
  return {false, format_text("{}: {}", step, reason(known, answer, wanted, trace, e))};
}

}  // namespace cephalo
