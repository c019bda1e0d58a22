#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/core/format.h"
#include "cephalo/core/ops.h"
#include "cephalo/learn/quiz_draft.h"
#include "cephalo/learn/quiz_questions.h"

namespace cephalo {
namespace {

// One head on random q, k and v: [tokens, head_dim] -> weights [tokens, tokens]
Tensor weights_of(const Tensor& q, const Tensor& k, const Mask& mask,
                  std::optional<double> scale = {}) {
  return attend(q, k, k, mask,
                {.scale = scale, .return_weights = true, .engine = Engine::reference})
      .weights;
}

dim_t visible_pairs(const Mask& mask, dim_t tokens) {
  const Tensor alike = Tensor::full({tokens, 1}, 0.0);
  const Tensor weights = weights_of(alike, alike, mask);
  dim_t pairs = 0;
  for (dim_t i = 0; i < tokens; ++i) {
    for (dim_t j = 0; j < tokens; ++j) pairs += weights.at({i, j}) > 0.0 ? 1 : 0;
  }
  return pairs;
}

double mean_largest(const TensorView& weights) {
  double sum = 0.0;
  for (dim_t i = 0; i < weights.dim(0); ++i) {
    double largest = 0.0;
    for (dim_t j = 0; j < weights.dim(1); ++j) largest = std::max(largest, weights.at({i, j}));
    sum += largest;
  }
  return sum / static_cast<double>(weights.dim(0));
}

// The mask drawn, without the line that says what it is.
std::string picture_of(const Mask& mask, dim_t tokens) {
  const std::string drawn = mask.draw(tokens, tokens);
  return drawn.substr(drawn.find('\n') + 1);
}

}  // namespace

QuizQuestion ask_which_mask(TorchGenerator& generator) {
  const dim_t tokens = generator.randint(5, 8);
  const dim_t left = generator.randint(1, 3);
  const std::vector<Mask> masks = {causal(), causal() & window(left, 0), window(left, left),
                                   causal(2)};
  const Mask& drawn = masks[static_cast<std::size_t>(generator.randint(0, std::ssize(masks)))];
  const auto counted = [&](const Mask& mask) {
    return format_text("{} shows {} of the {} pairs", mask.to_string(), visible_pairs(mask, tokens),
                       tokens * tokens);
  };
  QuizDraft question(
      "masks",
      format_text("Rows are queries, columns are keys, # may be looked at. Which mask "
                  "is this?\n{}",
                  picture_of(drawn, tokens)),
      counted(drawn) + ".");
  for (const Mask& mask : masks) {
    const std::string picture = picture_of(mask, tokens);
    question.choice(mask.to_string(), picture == picture_of(drawn, tokens),
                    format_text("{}:\n{}", counted(mask), picture));
  }
  return question.shuffled(generator);
}

QuizQuestion ask_visible_pairs(TorchGenerator& generator) {
  const dim_t tokens = generator.randint(5, 10);
  const dim_t computed = visible_pairs(causal(), tokens);
  QuizDraft question(
      "masks",
      format_text(
          "A causal head reads {0} tokens. How many of its {0} x {0} weights can be other than "
          "0?",
          tokens),
      format_text(
          "Counted: {} pairs are visible to a causal head. Query i looks at i + 1 keys, itself "
          "included.",
          computed));
  const auto add = [&](const Mask& mask, const char* note) {
    const dim_t pairs = visible_pairs(mask, tokens);
    question.choice(std::to_string(pairs), pairs == computed,
                    format_text("{} pairs are visible {}.", pairs, note));
  };
  add(causal(), "");
  add({}, "where nothing is hidden");
  add(positions(Align::bottom_right, -1) & causal(), "where a token may not look at itself");
  add(window(0, 0), "where a token looks at itself alone");
  return question.shuffled(generator);
}

QuizQuestion ask_no_scale(TorchGenerator& generator) {
  constexpr dim_t kTokens = 16;
  constexpr double kSame = 0.02;
  const dim_t head_dim = dim_t{1} << generator.randint(5, 8);
  const Tensor q = generator.randn({kTokens, head_dim});
  const Tensor k = generator.randn({kTokens, head_dim});
  const double with = mean_largest(weights_of(q, k, {}));
  const double without = mean_largest(weights_of(q, k, {}, 1.0));
  QuizDraft question(
      "scale",
      format_text("q and k are random, {0} tokens of width {1}, and nothing is hidden. What does "
                  "softmax give when the scores are not divided by sqrt({1})?",
                  kTokens, head_dim),
      format_text(
          "The largest weight of a row is {:.2f} on average with the scale and {:.2f} without "
          "it.",
          with, without));
  question.choice("rows in which one key has nearly all the weight", without > with + kSame,
                  "The scores would have to lie further apart.");
  question.choice(
      "rows in which all keys have nearly the same weight", without < with - kSame,
      format_text("All {} weights would be {:.2f}, and the scores would have to be close "
                  "together: that is what the scale is for.",
                  kTokens, 1.0 / kTokens));
  question.choice("the same weights: softmax undoes any factor", std::abs(without - with) <= kSame,
                  "Softmax undoes what is added to all scores, not what they are multiplied by.");
  return question.shuffled(generator);
}

QuizQuestion ask_mask_after_softmax(TorchGenerator& generator) {
  const dim_t tokens = generator.randint(5, 9);
  const Tensor q = generator.randn({tokens, 8});
  const Tensor k = generator.randn({tokens, 8});
  const Tensor future = triu(Tensor::full({tokens, tokens}, 1.0), 1);
  const Tensor after = masked_fill(weights_of(q, k, {}), future, 0.0);
  double sum = 0.0;
  for (dim_t j = 0; j < tokens; ++j) sum += after.at({0, j});
  const std::string computed = format_text("{:.3f}", sum);
  QuizDraft question(
      "masks",
      format_text(
          "{} tokens. Somebody hides the future by putting 0 into the weights after softmax, "
          "not -inf into the scores before it. The weights of the first query then sum to",
          tokens),
      format_text("Softmax shared 1 out among {} keys, and {:.3f} of it was taken away again; with "
                  "-inf before softmax the first query gives itself {:.3f}.",
                  tokens, 1.0 - sum, weights_of(q, k, causal()).at({0, 0})));
  question.choice(computed, true, "");
  question.choice("1.000", computed == "1.000", "That is what -inf before softmax would give.");
  question.choice("0.000", computed == "0.000", "The first query may still look at itself.");
  return question.shuffled(generator);
}

}  // namespace cephalo
