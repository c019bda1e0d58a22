#include "cephalo/learn/quiz_draft.h"

#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"

namespace cephalo {

QuizDraft::QuizDraft(const char* topic, std::string text, std::string computed) {
  question_.topic = topic;
  question_.text = std::move(text);
  question_.computed = std::move(computed);
}

void QuizDraft::choice(std::string text, bool right, std::string note) {
  for (const QuizChoice& other : question_.choices) {
    if (other.text == text) return;
  }
  right_.push_back(right);
  question_.choices.push_back({std::move(text), right ? "" : std::move(note)});
}

QuizQuestion QuizDraft::shuffled(TorchGenerator& generator) {
  const auto right = std::count(right_.begin(), right_.end(), true);
  require(right == 1, "quiz: {} choices are right in \"{}\"", right, question_.text);
  QuizQuestion mixed{question_.topic, question_.text, {}, 0, question_.computed};
  for (const std::int64_t from : generator.randperm(std::ssize(question_.choices))) {
    const auto at = static_cast<std::size_t>(from);
    if (right_[at]) mixed.right = mixed.choices.size();
    mixed.choices.push_back(std::move(question_.choices[at]));
  }
  return mixed;
}

QuizSizes draw_sizes(TorchGenerator& generator) {
  const dim_t batch = generator.randint(2, 4);
  const dim_t num_heads = generator.randint(4, 6);
  const dim_t tokens = generator.randint(6, 8);
  return {batch, num_heads, tokens, generator.randint(4, 6) * 2};
}

std::string in_words(const QuizSizes& sizes) {
  return format_text("{} sequences of {} tokens, {} heads of width {}", sizes.batch, sizes.tokens,
                     sizes.num_heads, sizes.head_dim);
}

MultiHeadAttention draw_layer(const QuizSizes& sizes, TorchGenerator& generator, bool causal) {
  MultiHeadAttention layer({.d_in = sizes.d_out(),
                            .d_out = sizes.d_out(),
                            .num_heads = sizes.num_heads,
                            .causal = causal,
                            .seed = generator.random64() >> 1});
  layer.eval();
  return layer;
}

}  // namespace cephalo
