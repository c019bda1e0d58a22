#include "cephalo/learn/exercise_help.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/learn/exercise.h"

namespace cephalo {
namespace {

using Lines = std::vector<std::string>;

Lines project_hints(const Exercise& e) {
  return {
      format_text("One product for each token: the last axis of x, d_in = {}, becomes d_out = "
                  "{}; batch and tokens stay as they are.",
                  e.d_in, e.d_out),
      format_text("W_query is stored out x in, {}, as PyTorch stores it. The last axis of x has "
                  "to meet its axis of {}.",
                  to_tuple_string(e.W_query.shape()), e.d_in),
      format_text("x {} times W_query transposed ({}, {}): only the transposed one fits.",
                  to_tuple_string(e.x.shape()), e.d_in, e.d_out)};
}

Lines split_hints(const Exercise& e) {
  return {"No number moves: q has the heads side by side already. Its last axis is cut in two.",
          format_text("{} = {} heads x {}, and a head is {} neighbours: head 0 is the numbers 0 to "
                      "{} of a row. So which of the two new axes comes last?",
                      e.d_out, e.num_heads, e.head_dim, e.head_dim, e.head_dim - 1),
          format_text("The new shape is batch, tokens, num_heads, head_dim = ({}, {}, {}, {}).",
                      e.batch, e.tokens, e.num_heads, e.head_dim)};
}

Lines transpose_hints(const Exercise& e) {
  return {
      "Each head needs a matrix of its own, tokens x head_dim: its axis has to come before that "
      "of the tokens.",
      "A view (reshape) keeps the numbers in their order, so it would mix up the heads. What you "
      "need exchanges two axes.",
      format_text("Axes 1 and 2 change places: ({0}, {1}, {2}, {3}) becomes ({0}, {2}, {1}, {3}).",
                  e.batch, e.tokens, e.num_heads, e.head_dim)};
}

Lines scores_hints(const Exercise& e) {
  return {
      "One number for each query and each key: their numbers multiplied pairwise and summed.",
      format_text("A matrix product does it for all pairs: tokens x {0} times {0} x tokens. Which "
                  "of q and k has to be turned for that?",
                  e.head_dim),
      "k, and only its last two axes, 2 and 3; batch and heads stay in front. The scale comes "
      "later."};
}

Lines mask_hints(const Exercise&) {
  return {
      "A query may look at itself and at what came before it. Which half of the matrix is the "
      "future?",
      "future marks it: the keys after the query, above the diagonal. Softmax takes exp of what "
      "you put there, and that has to be 0.",
      "exp(-inf) is 0: -inf where future is true, the scores as they are elsewhere."};
}

Lines softmax_hints(const Exercise& e) {
  return {
      "Two things: one factor for all scores, then numbers above 0 that sum to 1 in every row.",
      format_text("The factor is that of one head: divide the masked scores by sqrt(head_dim) = "
                  "sqrt({}) = {}. -inf stays -inf.",
                  e.head_dim, std::sqrt(static_cast<double>(e.head_dim))),
      "Then softmax over the keys, the last axis: the weights of one query sum to 1."};
}

Lines values_hints(const Exercise& e) {
  return {
      "The weights of a query say how much it takes of each value: its context is a mix of the "
      "rows of v.",
      format_text("A matrix product again: {0} x {0} weights times the {0} x {1} values of the "
                  "head.",
                  e.tokens, e.head_dim),
      "weights times the heads of v, in this order, and nothing is transposed."};
}

Lines concat_hints(const Exercise& e) {
  return {
      "Steps 3 and 2 backwards: tokens before heads again, then the heads side by side in one "
      "row.",
      "After the transpose the numbers of a token are not neighbours in memory, so a copy comes "
      "before the view (NumPy's reshape makes it by itself).",
      format_text("Axes 1 and 2 change places, ({0}, {1}, {2}, {3}), and then the rows are ({0}, "
                  "{1}, {4}).",
                  e.batch, e.tokens, e.num_heads, e.head_dim, e.d_out)};
}

Lines output_hints(const Exercise& e) {
  return {"One more projection, as in step 1: until now no head has seen another.",
          format_text("out_weight is out x in, {}, as the others are.",
                      to_tuple_string(e.out_weight.shape())),
          "context times out_weight transposed, plus out_bias, which is added to every row."};
}

struct StepHelp {
  const char* step;
  Lines (*hints)(const Exercise& e);
  Lines python;
  Lines cpp;
};

const std::vector<StepHelp>& all_help() {
  static const std::vector<StepHelp> help = {
      {"project",
       project_hints,
       {"q = e.x @ e.W_query.T", "k = e.x @ e.W_key.T", "v = e.x @ e.W_value.T"},
       {"q = linear(e.x, e.W_query)", "k = linear(e.x, e.W_key)", "v = linear(e.x, e.W_value)"}},
      {"split",
       split_hints,
       {"q_split = q.reshape(e.batch, e.tokens, e.num_heads, e.head_dim)",
        "k_split = k.reshape(e.batch, e.tokens, e.num_heads, e.head_dim)",
        "v_split = v.reshape(e.batch, e.tokens, e.num_heads, e.head_dim)"},
       {"q_split = view(q, {e.batch, e.tokens, e.num_heads, e.head_dim})",
        "k_split = view(k, {e.batch, e.tokens, e.num_heads, e.head_dim})",
        "v_split = view(v, {e.batch, e.tokens, e.num_heads, e.head_dim})"}},
      {"transpose",
       transpose_hints,
       {"q_heads = q_split.transpose(0, 2, 1, 3)", "k_heads = k_split.transpose(0, 2, 1, 3)",
        "v_heads = v_split.transpose(0, 2, 1, 3)"},
       {"q_heads = transpose(q_split, 1, 2)", "k_heads = transpose(k_split, 1, 2)",
        "v_heads = transpose(v_split, 1, 2)"}},
      {"scores",
       scores_hints,
       {"scores = q_heads @ k_heads.swapaxes(2, 3)"},
       {"scores = matmul(q_heads, transpose(k_heads, 2, 3))"}},
      {"mask",
       mask_hints,
       {"masked = np.where(future, -np.inf, scores)"},
       {"masked = masked_fill(scores, future, -std::numeric_limits<double>::infinity())"}},
      {"softmax",
       softmax_hints,
       {"weights = softmax(masked / np.sqrt(e.head_dim))"},
       {"weights = softmax(multiply(masked, 1.0 / std::sqrt(static_cast<double>(e.head_dim))))"}},
      {"values",
       values_hints,
       {"context_heads = weights @ v_heads"},
       {"context_heads = matmul(weights, v_heads)"}},
      {"concat",
       concat_hints,
       {"context = context_heads.transpose(0, 2, 1, 3).reshape(e.batch, e.tokens, e.d_out)"},
       {"swapped = Tensor::copy(transpose(context_heads, 1, 2))",
        "context = view(swapped, {e.batch, e.tokens, e.d_out})"}},
      {"output",
       output_hints,
       {"output = context @ e.out_weight.T + e.out_bias"},
       {"output = linear(context, e.out_weight, e.out_bias)"}}};
  return help;
}

const StepHelp& help_of(const std::string& step) {
  return all_help()[exercise_step_number(step)];
}

}  // namespace

std::vector<std::string> exercise_hints(const std::string& step) {
  return help_of(step).hints(exercise());
}

ExerciseSolution exercise_solution(const std::string& step) {
  const StepHelp& help = help_of(step);
  return {help.python, help.cpp, exercise_answer(step)};
}

std::string to_text(const std::string& step, const ExerciseSolution& solution, bool cpp) {
  constexpr dim_t kNumbers = 4;
  std::string text = step + ":\n";
  for (const std::string& line : cpp ? solution.cpp : solution.python) text += "  " + line + "\n";
  TensorView row = solution.answer;
  while (row.rank() > 1) row = row[row.dim(0) - 1];
  text += format_text("gives [{}] = {}\nand the last row begins with",
                      exercise_steps()[exercise_step_number(step)].axes,
                      to_tuple_string(solution.answer.shape()));
  for (dim_t d = 0; d < std::min(kNumbers, row.dim(0)); ++d) {
    text += format_text(" {:.4f}", row.at({d}));
  }
  return text + "\n";
}

}  // namespace cephalo
