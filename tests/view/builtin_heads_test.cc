// What the built-in model is there for: heads whose patterns can be seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cephalo/model/builtin.h"
#include "cephalo/view/head_metrics.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

// The last pages of "Alice's Adventures in Wonderland" (Lewis Carroll, 1865): training left out the
// last part of each book.
std::string validation_text() {
  return testing::read_bytes(std::string(CEPHALO_SOURCE_DIR) + "/tests/view/validation.txt");
}

constexpr std::uint64_t kProbeSeed = 123;  // the card's

std::vector<std::vector<ProbeScores>> probe_of(const TextModel& model) {
  return probe_heads(model.gpt,
                     {.length = 50, .seed = kProbeSeed, .bos_token_id = model.first_token()});
}

TEST(BuiltinHeadsTest, one_head_looks_at_the_token_before_on_the_validation_text) {
  const TextModel model = builtin_model();
  const std::vector<std::int64_t> ids = model.encode(validation_text(), false);
  const dim_t length = model.gpt.options().context_length - 1;
  const GptOptions& o = model.gpt.options();
  std::vector<double> scores(static_cast<std::size_t>(o.num_layers * o.num_heads), 0.0);
  dim_t windows = 0;
  for (dim_t begin = 0; begin + length <= std::ssize(ids); begin += length, ++windows) {
    std::vector<std::int64_t> window{*model.first_token()};
    window.insert(window.end(), ids.begin() + begin, ids.begin() + begin + length);
    const Recording recording(model.gpt, window);
    for (dim_t layer = 0; layer < o.num_layers; ++layer) {
      const auto heads = head_metrics(recording, layer);
      for (dim_t h = 0; h < o.num_heads; ++h) {
        scores[static_cast<std::size_t>(layer * o.num_heads + h)] +=
            heads[static_cast<std::size_t>(h)].previous.value;
      }
    }
  }
  ASSERT_GE(windows, 2);
  const auto best = std::max_element(scores.begin(), scores.end());
  const auto place = std::distance(scores.begin(), best);
  const double score = *best / static_cast<double>(windows);
  testing::report("built-in model: layer " + std::to_string(place / o.num_heads) + " head " +
                  std::to_string(place % o.num_heads) + " looks at the token before: " +
                  std::to_string(score) + " on the validation text");
  EXPECT_GE(score, 0.9);
}

TEST(BuiltinHeadsTest, one_head_finds_what_followed_before_on_the_probe) {
  const TextModel model = builtin_model();
  const auto probe = probe_of(model);
  double best = 0.0;
  std::string place;
  for (std::size_t layer = 0; layer < probe.size(); ++layer) {
    for (std::size_t h = 0; h < probe[layer].size(); ++h) {
      if (probe[layer][h].induction.value <= best) continue;
      best = probe[layer][h].induction.value;
      place = "layer " + std::to_string(layer) + " head " + std::to_string(h);
    }
  }
  testing::report("built-in model: " + place + " scores " + std::to_string(best) +
                  " for induction on the probe");
  EXPECT_GE(best, 0.5);
}

TEST(BuiltinHeadsTest, short_sentences_show_both_labels) {
  const TextModel model = builtin_model();
  const auto probe = probe_of(model);
  for (const char* text :
       {"The cat sat on the mat",
        "The cat sat on the mat and the dog sat on the rug. The cat sat on the mat.",
        "Once upon a time there was a king. Once upon a time there was a queen."}) {
    const Recording recording(model.gpt, model.encode(text, true));
    int previous = 0;
    int induction = 0;
    for (const HeadReport& head : report_heads(recording, probe)) {
      for (const LabelScore& label : head.labels) {
        previous += label.label == HeadLabel::previous ? 1 : 0;
        induction += label.label == HeadLabel::induction ? 1 : 0;
      }
    }
    EXPECT_GE(previous, 1) << text;
    EXPECT_GE(induction, 1) << text;
  }
}

}  // namespace
}  // namespace cephalo
