#pragma once

#include "cephalo/core/random.h"
#include "cephalo/learn/quiz.h"

// Inside the library only: each draws its sizes, computes, and asks.
namespace cephalo {

QuizQuestion ask_heads_shape(TorchGenerator& generator);
QuizQuestion ask_scores_shape(TorchGenerator& generator);
QuizQuestion ask_which_mask(TorchGenerator& generator);
QuizQuestion ask_visible_pairs(TorchGenerator& generator);
QuizQuestion ask_no_scale(TorchGenerator& generator);
QuizQuestion ask_mask_after_softmax(TorchGenerator& generator);
QuizQuestion ask_changed_token(TorchGenerator& generator);
QuizQuestion ask_swapped_tokens(TorchGenerator& generator);
QuizQuestion ask_parameters(TorchGenerator& generator);
QuizQuestion ask_longer_text(TorchGenerator& generator);

}  // namespace cephalo
