#include "cephalo/learn/pipeline.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/embed/embedding.h"
#include "cephalo/text/words.h"

namespace cephalo {
namespace {

Step step_of(const char* number, const char* name, const char* key, const std::string& formula,
             const TensorView& value, const std::string& note) {
  return {
      number, name, key, formula, value.shape(), value.strides(), true, note, Tensor::copy(value)};
}

// The first few: "0 1 5 3 ..."
std::string ids_note(const TensorView& ids) {
  constexpr dim_t kShown = 8;
  std::string note;
  for (dim_t i = 0; i < std::min(kShown, ids.dim(1)); ++i) {
    note += format_text("{}{}", i > 0 ? " " : "", ids.at({0, i}));
  }
  return ids.dim(1) > kShown ? note + " ..." : note;
}

}  // namespace

EmbeddedText embed_text(const std::string& text, dim_t width, dim_t context_length,
                        TorchGenerator& generator) {
  EmbeddedText embedded;
  embedded.tokens = split_words(text);
  const dim_t count = std::ssize(embedded.tokens);
  require(count > 0, "embed_text: there is no word in the text");
  require(count <= context_length, "embed_text: tokens ({}) exceed context_length ({})", count,
          context_length);
  const WordVocabulary vocabulary(embedded.tokens);
  const Embedding tokens(vocabulary.size(), width, generator);
  const Embedding positions(context_length, width, generator);
  embedded.ids = vocabulary.encode(embedded.tokens).reshaped({1, count});
  embedded.token_embeddings = tokens(embedded.ids);
  embedded.position_embeddings = Tensor::copy(positions.table().slice(0, 0, count));
  embedded.x = embed_tokens(tokens, positions, embedded.ids);
  return embedded;
}

void prepend_embedding(const EmbeddedText& embedded, Trace& trace) {
  const dim_t count = std::ssize(embedded.tokens);
  std::vector<Step> steps;
  steps.push_back(
      step_of("0a", "TOKENIZE", "ids", "vocabulary[word]", embedded.ids, ids_note(embedded.ids)));
  steps.push_back(
      step_of("0b", "EMBED", "token_embeddings", "tokens[ids]", embedded.token_embeddings, ""));
  steps.push_back(step_of("0c", "POSITION", "position_embeddings",
                          format_text("positions[:{}]", count), embedded.position_embeddings, ""));
  for (Step& step : trace.steps) {
    if (step.key != "x") continue;
    step.number = "0d";
    step.formula = "x = token + position";
  }
  trace.steps.insert(trace.steps.begin(), std::make_move_iterator(steps.begin()),
                     std::make_move_iterator(steps.end()));
}

Pipeline pipeline(const std::string& text, const PipelineOptions& options) {
  TorchGenerator generator(options.seed);
  EmbeddedText embedded =
      embed_text(text, options.layer.d_in, options.layer.context_length, generator);
  MultiHeadAttentionOptions layer_options = options.layer;
  layer_options.seed.reset();
  layer_options.generator = &generator;
  MultiHeadAttention layer(layer_options);
  layer.eval();
  Tensor context = layer(embedded.x);
  return {std::move(embedded), std::move(layer), std::move(context)};
}

Trace Pipeline::trace() const {
  Trace trace = layer.trace(embedded.x);
  prepend_embedding(embedded, trace);
  return trace;
}

}  // namespace cephalo
