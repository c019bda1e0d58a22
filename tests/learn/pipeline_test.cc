#include "cephalo/learn/pipeline.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cephalo/core/random.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::same_bits;

PipelineOptions small_options() {
  PipelineOptions options;
  options.layer = {.d_in = 8, .d_out = 12, .context_length = 10, .num_heads = 3};
  return options;
}

TEST(PipelineTest, rung_8_goes_from_text_to_context_vectors) {
  const Pipeline run = pipeline("The cat sat on the mat", small_options());
  EXPECT_EQ(run.embedded.tokens,
            (std::vector<std::string>{"The", "cat", "sat", "on", "the", "mat"}));
  EXPECT_EQ(run.embedded.ids.shape(), (Shape{1, 6}));
  EXPECT_EQ(run.embedded.ids.at({0, 0}), 0);  // "The" sorts before all others
  EXPECT_EQ(run.embedded.x.shape(), (Shape{1, 6, 8}));
  EXPECT_EQ(run.context.shape(), (Shape{1, 6, 12}));
  for (dim_t t = 0; t < 6; ++t) {
    EXPECT_FLOAT_EQ(static_cast<float>(run.embedded.x.at({0, t, 3})),
                    static_cast<float>(run.embedded.token_embeddings.at({0, t, 3})) +
                        static_cast<float>(run.embedded.position_embeddings.at({t, 3})));
  }
}

TEST(PipelineTest, its_trace_has_every_step) {
  const Pipeline run = pipeline("The cat sat on the mat", small_options());
  const Trace trace = run.trace();
  std::vector<std::string> numbers;
  for (std::size_t k = 0; k < 5; ++k) numbers.push_back(trace.steps[k].number);
  EXPECT_EQ(numbers, (std::vector<std::string>{"0a", "0b", "0c", "0d", "1"}));
  EXPECT_TRUE(same_bits(trace.at("x").value, run.embedded.x));
  EXPECT_TRUE(same_bits(trace.at("ids").value, run.embedded.ids));
  EXPECT_LE(largest_difference(trace.at("output").value, run.context), 1e-5);
  for (const Step& step : trace) EXPECT_NE(std::string(explain(step.name).what), "");
}

TEST(PipelineTest, the_seed_is_one_stream_for_embeddings_and_layer) {
  const Pipeline run = pipeline("a b a", small_options());
  TorchGenerator generator(123);
  EXPECT_TRUE(same_bits(run.embedded.token_embeddings[0][1], generator.randn({2, 8})[1]));
  generator.randn({10, 8});
  MultiHeadAttentionOptions options = small_options().layer;
  options.generator = &generator;
  EXPECT_TRUE(same_bits(run.layer.parameter("W_key.weight"),
                        MultiHeadAttention(options).parameter("W_key.weight")));
}

TEST(PipelineTest, texts_without_words_or_with_too_many_are_refused) {
  EXPECT_EQ(error_of([] { pipeline(" ", small_options()); }),
            "embed_text: there is no word in the text");
  EXPECT_EQ(error_of([] { pipeline("1 2 3 4 5 6 7 8 9 10 11", small_options()); }),
            "embed_text: tokens (11) exceed context_length (10)");
}

}  // namespace
}  // namespace cephalo
