// The induction circuit of the built-in model: what its card says, found again.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/effects/circuits.h"
#include "cephalo/effects/patching.h"
#include "cephalo/effects/run.h"
#include "cephalo/model/builtin.h"
#include "cephalo/view/head_metrics.h"
#include "tests/support/files.h"

namespace cephalo {
namespace {

constexpr dim_t kLength = 50;  // of a copy
constexpr HeadPlace kInduction{3, 0};
constexpr HeadPlace kSecondInduction{3, 1};
constexpr HeadPlace kPrevious{2, 3};
constexpr HeadPlace kDuplicate{1, 2};
constexpr HeadPlace kSecondDuplicate{1, 1};

using Ids = std::vector<std::int64_t>;

// The draws that probe_heads makes: first token, 50 random tokens, twice.
std::vector<Ids> probe_texts(const TextModel& model) {
  const ProbeOptions options{.length = kLength, .bos_token_id = model.first_token()};
  TorchGenerator generator(options.seed);
  std::vector<Ids> texts;
  for (dim_t draw = 0; draw < options.draws; ++draw) {
    texts.push_back(probe_ids(model.gpt.options().vocab_size, options, generator));
  }
  return texts;
}

Changes without(const std::vector<HeadPlace>& heads) {
  Changes changes;
  for (const HeadPlace& place : heads)
    changes.push_back({.layer = place.layer, .head = place.head});
  return changes;
}

// Mean loss of the tokens that the first copy foretells: all of the second but its first. In nats.
double repeated_loss(const TextModel& model, const std::vector<HeadPlace>& removed) {
  double sum = 0.0;
  for (const Ids& ids : probe_texts(model)) {
    const KeptPass text(model.gpt, ids);
    const std::vector<double> losses = measure(text, without(removed), {.losses = true}).losses;
    for (std::size_t i = kLength + 1; i < losses.size(); ++i) sum += losses[i];
  }
  return sum / (4.0 * (kLength - 1));
}

enum class Copy { first, second, both };

// The induction score of a head of layer 3 on the probe, some heads being removed in one copy
// alone.
double induction_score(const TextModel& model, const HeadPlace& of,
                       const std::vector<HeadPlace>& removed, Copy where = Copy::both) {
  const dim_t begin = where == Copy::second ? kLength + 1 : 0;
  const dim_t end = where == Copy::first ? kLength + 1 : 2 * kLength + 1;
  const std::string weights = "layer." + std::to_string(of.layer) + ".weights";
  ModelRunOptions options{.keep = {weights}};
  for (const HeadPlace& place : removed) {
    options.replace.push_back({"layer." + std::to_string(place.layer) + ".context",
                               [=](const MutableTensorView& context) {
                                 context.select(1, place.head).slice(1, begin, end).fill(0.0);
                               }});
  }
  double sum = 0.0;
  for (const Ids& ids : probe_texts(model)) {
    const RunResult run = run_model(model.gpt, TensorView(ids.data(), {std::ssize(ids)}), options);
    const TensorView head = run.at(weights).select(1, of.head);  // [batch, queries, keys]
    for (dim_t i = kLength + 1; i <= 2 * kLength; ++i) sum += head.at({0, i, i - kLength + 1});
  }
  return sum / (4.0 * kLength);
}

// The line of the model's card that begins so has this number, and it is what was found.
void expect_on_card(const std::string& begin, const std::string& number, double found) {
  static const std::string card =
      testing::read_bytes(std::string(CEPHALO_SOURCE_DIR) + "/models/cephalo-small/README.md");
  const std::size_t at = card.find("\n" + begin);
  ASSERT_NE(at, std::string::npos) << begin;
  const std::string line = card.substr(at + 1, card.find('\n', at + 1) - at - 1);
  EXPECT_NE(line.find(number), std::string::npos) << line << ": " << number;
  EXPECT_NEAR(found, std::stod(number), 0.01) << line;
}

TEST(BuiltinCircuitTest, the_probe_finds_the_heads_of_the_card) {
  const TextModel model = builtin_model();
  const auto probe =
      probe_heads(model.gpt, {.length = kLength, .bos_token_id = model.first_token()});
  for (dim_t layer = 0; layer < 4; ++layer) {
    for (dim_t h = 0; h < 8; ++h) {
      const double score =
          probe[static_cast<std::size_t>(layer)][static_cast<std::size_t>(h)].induction.value;
      const bool named = layer == 3 && h < 2;
      EXPECT_TRUE(named ? score > 0.7 : score < 0.1) << layer << h;
    }
  }
  // As the probe computes it, and as this file does.
  EXPECT_NEAR(probe[3][0].induction.value, induction_score(model, kInduction, {}), 1e-4);
  EXPECT_NEAR(probe[3][1].induction.value, induction_score(model, kSecondInduction, {}), 1e-4);
}

TEST(BuiltinCircuitTest, without_its_induction_heads_what_repeats_is_a_surprise_again) {
  const TextModel model = builtin_model();
  const double whole = repeated_loss(model, {});
  const auto rise = [&](const std::vector<HeadPlace>& removed) {
    return repeated_loss(model, removed) - whole;
  };
  expect_on_card("| nothing |", "1.23", whole);
  expect_on_card("| L3H0,", "+4.00", rise({kInduction}));
  expect_on_card("| L3H1,", "+2.49", rise({kSecondInduction}));
  // More than both by themselves: each makes up for the other.
  expect_on_card("| both |", "+12.92", rise({kInduction, kSecondInduction}));
}

TEST(BuiltinCircuitTest, without_its_previous_token_head_induction_is_gone) {
  const TextModel model = builtin_model();
  expect_on_card("| nothing |", "0.78", induction_score(model, kInduction, {}));
  expect_on_card("| nothing |", "0.75", induction_score(model, kSecondInduction, {}));
  expect_on_card("| L2H3, ", "0.16", induction_score(model, kInduction, {kPrevious}));
  expect_on_card("| L2H3, ", "0.13", induction_score(model, kSecondInduction, {kPrevious}));
  const double rise = repeated_loss(model, {kPrevious}) - repeated_loss(model, {});
  expect_on_card("| L2H3, ", "+8.33", rise);
}

TEST(BuiltinCircuitTest, keys_need_the_previous_token_head_and_queries_the_duplicate_heads) {
  const TextModel model = builtin_model();
  const std::vector<HeadPlace> previous{kPrevious};
  const std::vector<HeadPlace> duplicates{kDuplicate, kSecondDuplicate};
  const auto score = [&](const HeadPlace& of, const std::vector<HeadPlace>& removed, Copy where) {
    return induction_score(model, of, removed, where);
  };
  expect_on_card("| L2H3 in", "0.18", score(kInduction, previous, Copy::first));
  expect_on_card("| L2H3 in", "0.16", score(kSecondInduction, previous, Copy::first));
  expect_on_card("| L1H1 and", "0.08", score(kInduction, duplicates, Copy::second));
  expect_on_card("| L1H1 and", "0.12", score(kSecondInduction, duplicates, Copy::second));
  EXPECT_GT(score(kInduction, previous, Copy::second), 0.75);
  EXPECT_GT(score(kInduction, duplicates, Copy::first), 0.74);
}

// a b … x y … a: b follows. Where a and x change places in the first copy, y does; what the
// previous-token head said there brings b back.
TEST(BuiltinCircuitTest, patching_the_previous_token_head_brings_induction_back) {
  const TextModel model = builtin_model();
  constexpr dim_t kA = 11;
  constexpr dim_t kX = 31;
  double clean = 0.0;
  double corrupt = 0.0;
  double patched = 0.0;
  double largest_other = 0.0;
  for (Ids ids : probe_texts(model)) {
    ids.resize(kLength + kA + 1);
    Ids swapped = ids;
    std::swap(swapped[kA], swapped[kX]);
    const Patching found = patch_each(KeptPass(model.gpt, ids), KeptPass(model.gpt, swapped),
                                      ids[kA + 1], ids[kX + 1]);
    ASSERT_TRUE(found.divided);
    clean += found.clean;
    corrupt += found.corrupt;
    patched += found.corrupt + found.heads.at({2, 3}) * (found.clean - found.corrupt);
    for (dim_t layer = 0; layer < 3; ++layer) {
      for (dim_t h = 0; h < 8; ++h) {
        if (layer == 2 && h == 3) continue;
        largest_other = std::max(largest_other, found.heads.at({layer, h}));
      }
    }
  }
  const double recovered = (patched - corrupt) / (clean - corrupt);
  expect_on_card("patching L2H3 alone", "0.87", recovered);
  EXPECT_LT(largest_other, 0.3);
}

TEST(BuiltinCircuitTest, induction_heads_read_their_keys_from_the_previous_token_head) {
  const CompositionScores keys = composition(builtin_model().gpt, Composition::key);
  expect_on_card("head, and ", "0.06", keys.baseline);
  for (const dim_t induction : {0, 1}) {
    const double score = keys.scores.at({2, 3, 3, induction});
    expect_on_card("where the queries are.", "0.23", score);
    for (dim_t layer = 0; layer < 3; ++layer) {
      for (dim_t h = 0; h < 8; ++h) {
        if (layer == 2 && h == 3) continue;
        EXPECT_LT(keys.scores.at({layer, h, 3, induction}), 0.7 * score) << layer << h;
      }
    }
  }
}

}  // namespace
}  // namespace cephalo
