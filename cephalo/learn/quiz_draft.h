#pragma once

// Inside the library only: what the questions of the quiz are made with.
#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/random.h"
#include "cephalo/learn/quiz.h"

namespace cephalo {

// A question as it is put together: which choice is right follows from what was computed.
class QuizDraft {
 public:
  QuizDraft(const char* topic, std::string text, std::string computed);

  // note: why it is wrong, if it is. A choice that is there already, because drawn sizes made two
  // the same, is left out.
  void choice(std::string text, bool right, std::string note);
  // The choices in a drawn order. Exactly one has to be right.
  QuizQuestion shuffled(TorchGenerator& generator);

 private:
  QuizQuestion question_;
  std::vector<bool> right_;
};

// Sizes that all differ, so that a shape says which axis is which.
struct QuizSizes {
  dim_t batch, num_heads, tokens, head_dim;
  dim_t d_out() const { return num_heads * head_dim; }
};

QuizSizes draw_sizes(TorchGenerator& generator);
std::string in_words(const QuizSizes& sizes);
// In eval mode, d_out wide on both sides.
MultiHeadAttention draw_layer(const QuizSizes& sizes, TorchGenerator& generator,
                              bool causal = true);

}  // namespace cephalo
