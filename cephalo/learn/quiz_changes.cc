#include <cmath>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/learn/quiz_draft.h"
#include "cephalo/learn/quiz_questions.h"

namespace cephalo {
namespace {

// Which rows of [tokens, width] differ.
std::vector<dim_t> rows_that_differ(const TensorView& a, const TensorView& b) {
  std::vector<dim_t> rows;
  for (dim_t i = 0; i < a.dim(0); ++i) {
    for (dim_t d = 0; d < a.dim(1); ++d) {
      if (std::abs(a.at({i, d}) - b.at({i, d})) <= 1e-5) continue;
      rows.push_back(i);
      break;
    }
  }
  return rows;
}

std::string in_words(const std::vector<dim_t>& rows) {
  if (rows.empty()) return "none";
  if (rows.size() == 1) return format_text("row {} alone", rows[0]);
  const bool run = rows.back() - rows.front() + 1 == std::ssize(rows);
  if (run) return format_text("rows {} to {}", rows.front(), rows.back());
  std::vector<std::string> numbers;
  for (const dim_t row : rows) numbers.push_back(std::to_string(row));
  const std::string last = numbers.back();
  numbers.pop_back();
  return format_text("rows {} and {}", joined(numbers, ", "), last);
}

std::vector<dim_t> range(dim_t begin, dim_t end) {
  std::vector<dim_t> rows;
  for (dim_t i = begin; i < end; ++i) rows.push_back(i);
  return rows;
}

// x: [tokens, width], two rows exchanged
Tensor swapped_rows(const TensorView& x, dim_t a, dim_t b) {
  Tensor copy = Tensor::copy(x);
  copy.mutable_view()[a].copy_from(x[b]);
  copy.mutable_view()[b].copy_from(x[a]);
  return copy;
}

}  // namespace

QuizQuestion ask_changed_token(TorchGenerator& generator) {
  const QuizSizes s = draw_sizes(generator);
  const MultiHeadAttention layer = draw_layer(s, generator);
  const Tensor x = generator.randn({s.tokens, s.d_out()});
  const dim_t changed = generator.randint(2, s.tokens - 1);
  Tensor other = Tensor::copy(x);
  generator.normal(other.mutable_view()[changed]);
  const std::vector<dim_t> computed = rows_that_differ(layer(x), layer(other));
  QuizDraft question(
      "masks",
      format_text(
          "{} tokens go through a causal layer. Then token {} is replaced by another one. Which "
          "rows of the output change?",
          s.tokens, changed),
      format_text("Computed both times: {} changed, those of the tokens that may look at token {}.",
                  in_words(computed), changed));
  const auto add = [&](const std::vector<dim_t>& rows, const char* note) {
    question.choice(in_words(rows), rows == computed, note);
  };
  add(range(changed, s.tokens), "");
  add({changed}, "Later tokens look at it, too.");
  add(range(0, s.tokens), "Earlier tokens never see it: the mask hides what comes later.");
  add(range(0, changed + 1), "It is the later ones that look back at it.");
  return question.shuffled(generator);
}

QuizQuestion ask_swapped_tokens(TorchGenerator& generator) {
  const QuizSizes s = draw_sizes(generator);
  const MultiHeadAttention layer = draw_layer(s, generator, false);
  const Tensor x = generator.randn({s.tokens, s.d_out()});
  const dim_t a = generator.randint(0, s.tokens - 2);
  const dim_t b = generator.randint(a + 1, s.tokens);
  const Tensor y = layer(x);
  const Tensor of_swapped = layer(swapped_rows(x, a, b));
  const std::vector<dim_t> changed = rows_that_differ(y, of_swapped);
  const bool only_swapped = rows_that_differ(of_swapped, swapped_rows(y, a, b)).empty();
  QuizDraft question(
      "positions",
      format_text(
          "A layer without a mask reads {} tokens, to which no positions were added. Tokens {} "
          "and {} change places. What happens to the output?",
          s.tokens, a, b),
      format_text("Computed both times: {} changed{}", in_words(changed),
                  only_swapped
                      ? ", and putting them back gives the old output. Attention sees a set, "
                        "not an order."
                      : "."));
  question.choice(format_text("rows {} and {} change places, the others stay", a, b),
                  only_swapped && !changed.empty(), "The others would have to see the same set.");
  question.choice("nothing: every row stays as it was", changed.empty(),
                  "Each token takes its own row along.");
  question.choice("every row gets other numbers", std::ssize(changed) == s.tokens,
                  "What the other tokens look at is the same set as before.");
  return question.shuffled(generator);
}

}  // namespace cephalo
