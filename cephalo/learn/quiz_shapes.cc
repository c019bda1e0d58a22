#include "cephalo/core/format.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/printable.h"
#include "cephalo/learn/quiz_draft.h"
#include "cephalo/learn/quiz_questions.h"

namespace cephalo {
namespace {

// "(2, 5, 6, 8) is batch, num_heads, tokens, head_dim."
std::string shape_is(const Shape& shape, const char* what) {
  return format_text("{} is {}.", to_tuple_string(shape), what);
}

void add_shape(QuizDraft& question, const Shape& shape, const Shape& computed, const char* what) {
  question.choice(to_tuple_string(shape), shape == computed, shape_is(shape, what));
}

}  // namespace

QuizQuestion ask_heads_shape(TorchGenerator& generator) {
  const QuizSizes s = draw_sizes(generator);
  const MultiHeadAttention layer = draw_layer(s, generator);
  const Trace trace = layer.trace(generator.randn({s.batch, s.tokens, s.d_out()}));
  const Shape computed = trace.at("q_heads").shape;
  QuizDraft question(
      "shapes",
      format_text(
          "{}. What is the shape of q once it is split and transposed, ready for attention?",
          in_words(s)),
      shape_is(computed, "batch, num_heads, tokens, head_dim: each head has a matrix of its own"));
  add_shape(question, computed, computed, "");
  add_shape(question, trace.at("q_split").shape, computed,
            "q after the split, before axes 1 and 2 change places");
  add_shape(question, trace.at("q").shape, computed, "q before the split, all heads side by side");
  add_shape(question, transpose(trace.at("k_heads").value, 2, 3).shape(), computed,
            "k turned for the product, head_dim before tokens");
  return question.shuffled(generator);
}

QuizQuestion ask_scores_shape(TorchGenerator& generator) {
  const QuizSizes s = draw_sizes(generator);
  const MultiHeadAttention layer = draw_layer(s, generator);
  const Trace trace = layer.trace(generator.randn({s.batch, s.tokens, s.d_out()}));
  const Shape computed = trace.at("scores").shape;
  const TensorView q = trace.at("q_heads").value;
  const TensorView k = trace.at("k_heads").value;
  QuizDraft question(
      "shapes",
      format_text("{}. What is the shape of the scores, q times k transposed?", in_words(s)),
      shape_is(computed, "one number for each query and key, in each head of each sequence"));
  add_shape(question, computed, computed, "");
  add_shape(question, matmul(transpose(q, 2, 3), k).shape(), computed,
            "q transposed times k, which compares numbers of a head instead of tokens");
  add_shape(question, matmul(trace.at("q").value, transpose(trace.at("k").value, 1, 2)).shape(),
            computed, "what q and k give before they are split: one head");
  add_shape(question, trace.at("context_heads").shape, computed, "what weights times v give");
  return question.shuffled(generator);
}

QuizQuestion ask_parameters(TorchGenerator& generator) {
  const dim_t heads = generator.randint(2, 5);
  const dim_t width = heads * 2 * 2 * generator.randint(4, 9);
  const auto count = [](dim_t num_heads, dim_t d_out) {
    return parameter_count(
        MultiHeadAttentionOptions{.d_in = d_out, .d_out = d_out, .num_heads = num_heads});
  };
  const dim_t before = count(heads, width);
  const dim_t computed = count(heads * 2, width);
  const dim_t wider = count(heads * 2, width * 2);
  QuizDraft question(
      "parameters",
      format_text(
          "A layer of width {} with {} heads has {} parameters. How many does it have with {} "
          "heads?",
          width, heads, with_commas(before), heads * 2),
      format_text(
          "Counted: {} with {} heads, {} with {}. The matrices are {} wide however that width "
          "is cut; heads are {} wide instead of {}.",
          with_commas(before), heads, with_commas(computed), heads * 2, width, width / heads / 2,
          width / heads));
  const auto add = [&](dim_t parameters, const char* note) {
    question.choice(with_commas(parameters), parameters == computed, note);
  };
  add(before, "");
  add(before * 2, "Heads share the width: each gets less of it, and none adds a matrix.");
  add(before / 2, "Narrower heads, but more of them: the matrices do not get smaller.");
  question.choice(with_commas(wider), wider == computed,
                  format_text("That is what a layer of width {} has.", width * 2));
  return question.shuffled(generator);
}

QuizQuestion ask_longer_text(TorchGenerator& generator) {
  const QuizSizes s = draw_sizes(generator);
  const MultiHeadAttention layer = draw_layer(s, generator);
  const dim_t factor = generator.randint(2, 4);
  const auto scores = [&](dim_t tokens) {
    return layer.trace(generator.randn({tokens, s.d_out()})).at("scores").value.numel();
  };
  const dim_t before = scores(s.tokens);
  const dim_t after = scores(s.tokens * factor);
  QuizDraft question(
      "cost",
      format_text("A text gets {} times as long, {} tokens instead of {}. How many times as many "
                  "scores are there?",
                  factor, s.tokens * factor, s.tokens),
      format_text(
          "Counted: {} heads have {} scores for {} tokens and {} for {}, one for each pair of "
          "tokens.",
          s.num_heads, with_commas(before), s.tokens, with_commas(after), s.tokens * factor));
  for (const dim_t times : {dim_t{1}, factor, factor * factor, factor * factor * factor}) {
    question.choice(
        std::to_string(times), before * times == after,
        format_text("{} times as many would be {}.", times, with_commas(before * times)));
  }
  return question.shuffled(generator);
}

}  // namespace cephalo
