#include <array>
#include <string_view>
#include <utility>

#include "cephalo/attention/reference/trace.h"
#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr std::array<std::pair<std::string_view, Explanation>, 22> kExplanations = {{
    {"TOKENIZE",
     {"the text is cut into words, and each word becomes a number",
      "a table can be asked for row 3, not for the word cat",
      "whole numbers without a meaning of their own: 4 is not twice 2"}},
    {"EMBED",
     {"each number picks its row of a learned table",
      "numbers in a row can be learned; the same word gets the same row",
      "a vector for each token, wherever it stands in the text"}},
    {"POSITION",
     {"each place in the text has a learned row as well",
      "attention sees a set of tokens: without this order would not matter",
      "added to the token's row, so the same word differs between places"}},
    {"INPUT",
     {"one row of numbers for each token",
      "attention works on vectors, so tokens arrive as their embeddings",
      "rows do not know of each other yet: token 5 holds nothing of token 0"}},
    {"PROJECT",
     {"each row is multiplied by three learned matrices: query, key, value",
      "what a token looks for, offers and hands over are three things",
      "three tensors of the same shape; no row has seen another row yet"}},
    {"PROJECT EACH HEAD",
     {"each head multiplies every row by three learned matrices of its own",
      "what a token looks for, offers and hands over are three things",
      "a small q, k and v for each head: there is nothing to split"}},
    {"SPLIT",
     {"the width is seen as heads side by side",
      "each head gets its own part of every query, key and value",
      "a view: the shape changes, not one number moves"}},
    {"ROTATE",
     {"pairs of numbers in q and k are turned by an angle set by position",
      "the product of two turned vectors depends on their distance",
      "lengths stay the same; only directions change"}},
    {"TRANSPOSE",
     {"the head axis moves before the token axis",
      "a batched product works on the last two axes: tokens, head width",
      "a view: two strides are exchanged, the order of reading changes"}},
    {"SCORES",
     {"every query is multiplied with every key of its head",
      "a large product means that this key is what the query looks for",
      "one number for each pair of tokens: tokens x tokens for each head"}},
    {"SCORES OF ROWS",
     {"every token's row is multiplied with every token's row",
      "a large product means that two rows point the same way",
      "one number for each pair of tokens: tokens x tokens"}},
    {"MASK",
     {"scores a query may not see become -inf",
      "when predicting the next token, the future must not be known",
      "exp(-inf) is 0, so a hidden token gets the weight 0 exactly"}},
    {"NO MASK",
     {"nothing is hidden: every query may look at every token",
      "a text that is read as a whole has no future to hide", "the scores stay as they are"}},
    {"SCALE",
     {"scores are divided by the square root of the head width",
      "a sum of d products is sqrt(d) large: softmax would pick one token",
      "scores of ordinary size: softmax stays soft and can be trained"}},
    {"NO SCALE",
     {"nothing happens: this rung does not divide the scores",
      "without learned matrices the bare idea is easier to see",
      "harmless for rows of 3 numbers; with 768 each token picks itself"}},
    {"SOFTMAX",
     {"each row becomes positive numbers that sum to 1",
      "weights must be shares: how much of each token goes into the mix",
      "the largest score gets the largest share, and no share is negative"}},
    {"DROPOUT",
     {"in training some weights become 0, the others grow by 1 / (1 - p)",
      "no token may come to rely on one other token alone",
      "the expected sum stays 1; outside of training nothing happens"}},
    {"VALUES",
     {"each query takes the mean of the values, weighted by its row",
      "this is where information moves from one token to another",
      "one vector for each token and head, made of what it looked at"}},
    {"MEAN OF ROWS",
     {"each token takes the mean of all rows, weighted by its row of weights",
      "this is where information moves from one token to another",
      "one vector for each token, made of what it looked at"}},
    {"CONCAT",
     {"the heads' results are laid side by side again",
      "the next layer wants one row for each token",
      "the one copy on the way: transposed memory cannot be viewed as rows"}},
    {"CONCAT A LIST",
     {"the heads' results are laid side by side", "the next layer wants one row for each token",
      "a copy: each head's result lay in memory of its own"}},
    {"PROJECT OUT",
     {"one more learned matrix mixes the heads", "until here the heads did not know of each other",
      "a row for each token, as wide as the layer: the context vectors"}},
}};

}  // namespace

Explanation explain(const std::string& step_name) {
  for (const auto& [name, explanation] : kExplanations) {
    if (name == step_name) return explanation;
  }
  fail(Error::Kind::value, "explain: there is no step named {}", step_name);
}

Explanation explain(const Step& step) {
  return explain(step.topic.empty() ? step.name : step.topic);
}

}  // namespace cephalo
