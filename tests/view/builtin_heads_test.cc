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

// From "The Wonderful Wizard of Oz" (L. Frank Baum, 1900): the last book of the corpus, of which
// training saw nothing.
std::string held_out_page() {
  return testing::read_bytes(std::string(CEPHALO_SOURCE_DIR) + "/tests/view/held_out_page.txt");
}

// The page again, each sentence said twice.
std::string each_sentence_twice(const std::string& page) {
  std::string twice;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find_first_of(".!?", begin), page.size() - 1) + 1;
    const std::string sentence = page.substr(begin, end - begin);
    twice += sentence + (sentence.starts_with(' ') ? "" : " ") + sentence;
    begin = end;
  }
  return twice;
}

using Pick = Score HeadMetrics::*;

// The best head of all by one metric, a mean over windows of the text as long as the context.
struct BestHead {
  dim_t layer = 0, head = 0;
  double score = 0.0;
};
BestHead best_head(const TextModel& model, const std::string& text, Pick metric) {
  const std::vector<std::int64_t> ids = model.encode(text, false);
  const GptOptions& o = model.gpt.options();
  const dim_t length = o.context_length - 1;
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
            (heads[static_cast<std::size_t>(h)].*metric).value;
      }
    }
  }
  EXPECT_GE(windows, 2);
  const auto best = std::max_element(scores.begin(), scores.end());
  const auto place = std::distance(scores.begin(), best);
  return {place / o.num_heads, place % o.num_heads, *best / static_cast<double>(windows)};
}

void report(const BestHead& best, const std::string& what) {
  testing::report("built-in model: layer " + std::to_string(best.layer) + " head " +
                  std::to_string(best.head) + " " + what + ": " + std::to_string(best.score));
}

constexpr std::uint64_t kProbeSeed = 123;  // the card's

std::vector<std::vector<ProbeScores>> probe_of(const TextModel& model) {
  return probe_heads(model.gpt,
                     {.length = 50, .seed = kProbeSeed, .bos_token_id = model.first_token()});
}

TEST(BuiltinHeadsTest, one_head_looks_at_the_token_before_on_a_page_it_never_saw) {
  const BestHead best = best_head(builtin_model(), held_out_page(), &HeadMetrics::previous);
  report(best, "looks at the token before on a held-out page");
  EXPECT_GE(best.score, 0.9);
}

TEST(BuiltinHeadsTest, one_head_finds_what_followed_when_sentences_return) {
  const BestHead best =
      best_head(builtin_model(), each_sentence_twice(held_out_page()), &HeadMetrics::induction);
  report(best, "finds what followed in a held-out page, each sentence twice");
  EXPECT_GE(best.score, 0.3);
}

TEST(BuiltinHeadsTest, a_sentence_that_returns_is_continued_as_before) {
  const TextModel model = builtin_model();
  const auto continued_by = [&](const char* text, const char* next) {
    const Recording recording(model.gpt, model.encode(text, true));
    const auto likeliest = recording.predictions(3);
    return std::any_of(likeliest.begin(), likeliest.end(), [&](const auto& prediction) {
      return prediction.id == *model.tokenizer.find(next);
    });
  };
  EXPECT_TRUE(continued_by("The cat sat on the mat. The cat sat on the", " mat"));
  EXPECT_TRUE(continued_by("Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter", " Rabbit"));
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
