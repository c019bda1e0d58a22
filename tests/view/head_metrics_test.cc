#include "cephalo/view/head_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/core/random.h"
#include "cephalo/view/head_links.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::same_bits;
using Matrix = std::vector<std::vector<double>>;

// Metrics of a causal head that looks as A says: scores are 0, and a bias makes the weights. What
// is 0 there is next to nothing here, because a hidden key would not count as one it may see.
HeadMetrics metrics_of(const Matrix& a, const std::vector<std::int64_t>& ids) {
  const auto tokens = static_cast<dim_t>(a.size());
  Tensor logs = Tensor::zeros({tokens, tokens}, DType::f64);
  for (dim_t i = 0; i < tokens; ++i) {
    for (dim_t j = 0; j <= i; ++j) {
      const double weight = a[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
      logs.set({i, j}, std::log(std::max(weight, 1e-30)));
    }
  }
  const Tensor zeros = Tensor::zeros({1, 1, tokens, 2}, DType::f64);
  const Mask mask = causal() & bias(logs);
  const auto pass = attend(zeros, zeros, zeros, mask, {.return_lse = true});
  const Tensor sums = row_sums(zeros, zeros, pass.lse, TensorView(ids.data(), {tokens}), mask);
  return head_metrics(sums[0][0]);
}

Matrix uniform_head(dim_t tokens) {
  const auto n = static_cast<std::size_t>(tokens);
  Matrix a(n, std::vector<double>(n, 0.0));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) a[i][j] = 1.0 / static_cast<double>(i + 1);
  }
  return a;
}

std::vector<std::int64_t> counting(dim_t tokens) {
  std::vector<std::int64_t> ids;
  for (dim_t i = 0; i < tokens; ++i) ids.push_back(i);
  return ids;
}

std::vector<std::int64_t> word_ids(const std::string& text) {
  std::map<std::string, std::int64_t> known;
  std::vector<std::int64_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    ids.push_back(known.emplace(word, static_cast<std::int64_t>(known.size())).first->second);
  }
  return ids;
}

double harmonic(dim_t n) {
  double sum = 0.0;
  for (dim_t k = 1; k <= n; ++k) sum += 1.0 / static_cast<double>(k);
  return sum;
}

Gpt small_model(dim_t context_length = 256) {
  Gpt model({.vocab_size = 90,
             .context_length = context_length,
             .d_model = 24,
             .num_heads = 3,
             .num_layers = 2,
             .positions = PositionKind::rotary,
             .seed = 5});
  // Sharper than a new model: weights that differ.
  model.update_all([](std::size_t, const std::string& name, const MutableTensorView& p) {
    if (!name.ends_with("c_attn.weight")) return;
    float* x = p.mutable_data_as<float>();
    for (dim_t k = 0; k < p.numel(); ++k) x[k] *= 30.0F;
  });
  return model;
}

std::vector<std::int64_t> random_ids(dim_t tokens, dim_t vocab_size) {
  TorchGenerator generator(9);
  std::vector<std::int64_t> ids;
  for (dim_t i = 0; i < tokens; ++i) ids.push_back(generator.randint(0, vocab_size));
  return ids;
}

TEST(HeadMetricsTest, a_uniform_head_scores_what_chance_gives) {
  for (const auto& [tokens, expected] : {std::pair<dim_t, double>{8, 0.24541}, {64, 0.05943}}) {
    const HeadMetrics m = metrics_of(uniform_head(tokens), counting(tokens));
    EXPECT_NEAR(expected, (harmonic(tokens) - 1.0) / static_cast<double>(tokens - 1), 5e-6);
    for (const Score& score : {m.previous, m.first, m.current}) {
      EXPECT_NEAR(score.value, expected, 5e-6);
      EXPECT_NEAR(score.uniform, expected, 5e-6);
      EXPECT_EQ(score.rows, tokens - 1);
    }
    EXPECT_NEAR(m.entropy.value, 1.0, 1e-12);
    EXPECT_NEAR(m.effective_tokens, static_cast<double>(tokens) / 2.0 + 1.0, 1e-9);
    EXPECT_NEAR(m.distance, static_cast<double>(tokens) / 4.0, 1e-12);
    EXPECT_NEAR(m.confidence, expected, 5e-6);
    EXPECT_EQ(m.duplicate.rows, 0);
    EXPECT_EQ(m.induction.rows, 0);
  }
}

TEST(HeadMetricsTest, a_uniform_head_on_the_probe) {
  TorchGenerator generator(1);
  const std::vector<std::int64_t> ids = probe_ids(100, {.length = 25}, generator);
  const HeadMetrics m = metrics_of(uniform_head(51), ids);
  EXPECT_NEAR((harmonic(51) - harmonic(26)) / 25.0, 0.02658, 5e-6);
  for (const Score& score : {m.duplicate, m.induction}) {
    EXPECT_NEAR(score.value, 0.02658, 5e-6);
    EXPECT_NEAR(score.uniform, 0.02658, 5e-6);
    EXPECT_EQ(score.rows, 25);  // of the second copy alone
  }
}

// All of a row on one key: where the rule says, otherwise on the first.
template <typename Rule>
Matrix head_that_looks(dim_t tokens, const Rule& rule) {
  const auto n = static_cast<std::size_t>(tokens);
  Matrix a(n, std::vector<double>(n, 0.0));
  for (dim_t i = 0; i < tokens; ++i) {
    a[static_cast<std::size_t>(i)][static_cast<std::size_t>(rule(i))] = 1.0;
  }
  return a;
}

TEST(HeadMetricsTest, a_perfect_induction_head_scores_1_over_the_rows_that_can) {
  const auto ids = word_ids("the cat sat on the mat and the dog sat on the rug");
  const auto follower = [&](dim_t i) {
    for (dim_t j = i - 1; j >= 1; --j) {
      if (ids[static_cast<std::size_t>(j - 1)] == ids[static_cast<std::size_t>(i)]) return j;
    }
    return dim_t{0};
  };
  const HeadMetrics m = metrics_of(head_that_looks(std::ssize(ids), follower), ids);
  EXPECT_NEAR(m.induction.value, 1.0, 1e-12);
  EXPECT_EQ(m.induction.rows, 5);
}

TEST(HeadMetricsTest, an_immediate_repeat_is_no_induction) {
  const auto looks_back = [](dim_t i) { return std::max<dim_t>(i - 1, 0); };
  const HeadMetrics m = metrics_of(head_that_looks(2, looks_back), word_ids("a a"));
  EXPECT_EQ(m.induction.rows, 0);
  EXPECT_EQ(m.induction.value, 0.0);
  EXPECT_EQ(m.duplicate.rows, 1);
  EXPECT_NEAR(m.duplicate.value, 1.0, 1e-12);
}

TEST(HeadMetricsTest, a_text_of_one_token_has_no_rows) {
  const HeadMetrics m = metrics_of({{1.0}}, {7});
  EXPECT_EQ(m.previous.rows, 0);
  EXPECT_EQ(m.previous.value, 0.0);
  EXPECT_EQ(m.entropy.rows, 0);
  EXPECT_TRUE(head_labels(m, nullptr).empty());
}

// The table of definitions, written down again over the whole matrix.
TEST(HeadMetricsTest, metrics_of_a_recording_are_those_of_its_matrix) {
  const Gpt model = small_model();
  const auto ids = random_ids(150, 40);
  const Recording recording(model, ids);
  for (dim_t layer = 0; layer < 2; ++layer) {
    const Tensor all = recording.weights(layer);
    const std::vector<HeadMetrics> heads = head_metrics(recording, layer);
    for (dim_t h = 0; h < 3; ++h) {
      double previous = 0.0;
      double entropy = 0.0;
      double induction = 0.0;
      double rows = 0.0;
      for (dim_t i = 1; i < 150; ++i) {
        previous += all.at({h, i, i - 1}) / 149.0;
        double row_entropy = 0.0;
        double looked = 0.0;
        bool counts = false;
        for (dim_t j = 0; j <= i; ++j) {
          const double w = all.at({h, i, j});
          if (w > 0.0) row_entropy -= w * std::log(w);
          const bool follows =
              j >= 1 && j < i &&
              ids[static_cast<std::size_t>(j - 1)] == ids[static_cast<std::size_t>(i)];
          if (follows) looked += w;
          counts = counts || follows;
        }
        entropy += row_entropy / std::log(static_cast<double>(i + 1)) / 149.0;
        if (counts) induction += looked;
        if (counts) rows += 1.0;
      }
      const HeadMetrics& m = heads[static_cast<std::size_t>(h)];
      EXPECT_NEAR(m.previous.value, previous, 1e-6);
      EXPECT_NEAR(m.entropy.value, entropy, 1e-6);
      EXPECT_NEAR(m.induction.value, induction / rows, 1e-6);
      EXPECT_EQ(static_cast<double>(m.induction.rows), rows);
    }
  }
}

TEST(HeadMetricsTest, looking_changes_nothing_that_was_recorded) {
  const Gpt model = small_model();
  const Recording recording(model, random_ids(60, 90));
  const Tensor before = recording.weights(1);
  const Tensor norms = recording.value_norms(1);
  const Tensor moved = value_weighted(before, norms);
  const Tensor copy = Tensor::copy(before);
  report_heads(recording, probe_heads(model));
  first_token_share(recording, 1);
  strongest_links(recording, {1, 0}, 5);
  head_divergence(recording, {0, 0}, recording, {1, 1});
  EXPECT_TRUE(same_bits(before, copy));
  EXPECT_TRUE(same_bits(before, recording.weights(1)));
  EXPECT_FALSE(same_bits(Tensor::copy(moved, DType::f32), before));
}

TEST(HeadMetricsTest, the_probe_is_a_beginning_and_different_tokens_twice) {
  TorchGenerator generator(3);
  const auto ids = probe_ids(60, {.length = 30, .bos_token_id = 59}, generator);
  ASSERT_EQ(ids.size(), 61U);
  EXPECT_EQ(ids[0], 59);
  const std::set<std::int64_t> different(ids.begin(), ids.end());
  EXPECT_EQ(different.size(), 31U);
  for (std::size_t i = 1; i <= 30; ++i) EXPECT_EQ(ids[i], ids[i + 30]);
  EXPECT_NE(probe_ids(60, {.length = 30}, generator), ids);
  TorchGenerator again(3);
  EXPECT_EQ(probe_ids(60, {.length = 30, .bos_token_id = 59}, again), ids);
}

TEST(HeadMetricsTest, probes_that_are_too_small_or_too_large_are_refused) {
  const Gpt model = small_model(80);
  EXPECT_EQ(longest_probe(model.options()), 39);
  EXPECT_EQ(longest_probe(small_model(50).options()), 0);
  EXPECT_EQ(probe_heads(model, {.length = 39}).size(), 2U);
  EXPECT_EQ(error_of([&] { probe_heads(model, {.length = 40}); }),
            "probe: 2 x 40 + 1 tokens exceed context_length (80); at most 39 fit");
  EXPECT_EQ(error_of([&] { probe_heads(model, {.length = 24}); }),
            "probe: length (24) must be at least 25");
  EXPECT_EQ(error_of([&] { probe_heads(model, {.length = 30, .draws = 3}); }),
            "probe: draws (3) must be at least 4");
  EXPECT_EQ(error_of([&] { probe_heads(small_model(), {.length = 90}); }),
            "probe: 90 different tokens and one before them are more than vocab_size (90)");
}

TEST(HeadMetricsTest, probe_scores_are_means_over_the_draws) {
  const Gpt model = small_model();
  const ProbeOptions options{.length = 30, .draws = 5, .seed = 8};
  const auto scores = probe_heads(model, options);
  TorchGenerator generator(8);
  double induction = 0.0;
  for (int draw = 0; draw < 5; ++draw) {
    const Recording recording(model, probe_ids(90, options, generator));
    const Tensor weights = recording.weights(1, {.heads = {2}});
    for (dim_t i = 31; i <= 60; ++i) induction += weights.at({0, i, i - 29}) / 150.0;
  }
  EXPECT_NEAR(scores[1][2].induction.value, induction, 1e-6);
  EXPECT_EQ(scores[1][2].induction.rows, 150);
}

// The probe reads the weights that count; head_metrics finds them by the tokens.
TEST(HeadMetricsTest, probe_scores_are_to_the_bit_what_head_metrics_finds_in_its_texts) {
  const Gpt model = small_model();
  const ProbeOptions options{.length = 35, .draws = 4, .seed = 9};
  const auto scores = probe_heads(model, options);
  TorchGenerator generator(9);
  ProbeScores mean;
  for (int draw = 0; draw < 4; ++draw) {
    const Recording recording(model, probe_ids(90, options, generator));
    const HeadMetrics m = head_metrics(recording, 1)[2];
    mean.duplicate.value += 0.25 * m.duplicate.value;
    mean.duplicate.uniform += 0.25 * m.duplicate.uniform;
    mean.induction.value += 0.25 * m.induction.value;
    mean.induction.rows += m.induction.rows;
  }
  EXPECT_EQ(scores[1][2].duplicate.value, mean.duplicate.value);
  EXPECT_EQ(scores[1][2].duplicate.uniform, mean.duplicate.uniform);
  EXPECT_EQ(scores[1][2].induction.value, mean.induction.value);
  EXPECT_EQ(scores[1][2].induction.rows, mean.induction.rows);
}

std::string labels_of(const HeadMetrics& text, const ProbeScores* probe = nullptr) {
  std::string words;
  for (const LabelScore& found : head_labels(text, probe)) {
    words += std::string(words.empty() ? "" : " ") + name(found.label);
  }
  return words;
}

TEST(HeadMetricsTest, labels_follow_the_rule) {
  HeadMetrics m;
  m.previous = {0.39, 50, 0.06};
  EXPECT_EQ(labels_of(m), "");
  m.previous = {0.4, 50, 0.06};
  EXPECT_EQ(labels_of(m), "previous");
  m.previous = {0.7, 7, 0.24541};  // 3 x the uniform value is 0.736
  EXPECT_EQ(labels_of(m), "");
  m.previous = {0.74, 7, 0.24541};
  EXPECT_EQ(labels_of(m), "previous");
  m.previous = {0.8, 3, 0.3611};  // 3 x the uniform value is more than 1: 0.8 does
  EXPECT_EQ(labels_of(m), "previous");
  m.previous = {1.0, 2, 0.4};
  EXPECT_EQ(labels_of(m), "");
  m.first = {0.49, 50, 0.06};
  EXPECT_EQ(labels_of(m), "");
  m.first = {0.5, 50, 0.06};
  m.current = {0.45, 50, 0.06};
  EXPECT_EQ(labels_of(m), "sink current");
  m.entropy = {0.9, 50, 0.06};
  EXPECT_EQ(labels_of(m), "sink current diffuse");
}

TEST(HeadMetricsTest, induction_and_duplicate_are_labelled_by_the_probe_alone) {
  HeadMetrics m;
  m.induction = {1.0, 50, 0.02};
  m.duplicate = {1.0, 50, 0.02};
  EXPECT_EQ(labels_of(m), "");
  ProbeScores probe{.duplicate = {0.1, 200, 0.02}, .induction = {0.5, 200, 0.02}};
  EXPECT_EQ(labels_of(m, &probe), "induction");
  probe.duplicate.value = 0.4;
  EXPECT_EQ(labels_of({}, &probe), "induction duplicate");
}

TEST(HeadMetricsTest, value_weighted_rows_add_up_to_1_and_a_sink_without_value_fades) {
  const Tensor weights = Tensor::of({{{0.8, 0.2, 0.0}, {0.0, 0.0, 0.0}}});
  const Tensor norms = Tensor::of({{0.0, 3.0, 5.0}});
  const Tensor moved = value_weighted(weights, norms);
  EXPECT_DOUBLE_EQ(moved.at({0, 0, 0}), 0.0);
  EXPECT_DOUBLE_EQ(moved.at({0, 0, 1}), 1.0);
  EXPECT_DOUBLE_EQ(moved.at({0, 1, 2}), 0.0);  // a row that sees nothing stays so
  EXPECT_NE(error_of([&] { value_weighted(weights, Tensor::zeros({1, 2})); }), "");
}

// ‖v_j W_out^h‖: what the layer's output gains from v_j through head h.
TEST(HeadMetricsTest, value_norms_are_what_the_output_projection_makes_of_a_value) {
  const Gpt model = small_model();
  const Recording recording(model, {4, 8, 15});
  const Tensor norms = recording.value_norms(0);
  Tensor x;
  GptCall call;
  call.on_attention = [&](dim_t layer, const TensorView& seen) {
    if (layer == 0) x = Tensor::copy(seen);
  };
  model(Tensor::of({4, 8, 15}, DType::i64), call);
  const MultiHeadAttention& layer = model.attention(0);
  const Trace trace = layer.trace(x);
  const TensorView v = trace.at("v_heads").value;
  const TensorView out = layer.parameter("out_proj.weight");
  for (dim_t h = 0; h < 3; ++h) {
    for (dim_t j = 0; j < 3; ++j) {
      double square = 0.0;
      for (dim_t o = 0; o < 24; ++o) {
        double sum = 0.0;
        for (dim_t d = 0; d < 8; ++d) sum += v.at({0, h, j, d}) * out.at({o, h * 8 + d});
        square += sum * sum;
      }
      EXPECT_NEAR(norms.at({h, j}), std::sqrt(square), 1e-5);
    }
  }
}

TEST(HeadMetricsTest, one_head_alone_has_the_numbers_that_it_has_among_all) {
  const Gpt model = small_model();
  const Recording recording(model, random_ids(140, 90));  // more than one block of rows
  const Tensor all = recording.value_norms(1);
  const Tensor two = recording.value_norms(1, {2, 0});
  EXPECT_TRUE(same_bits(Tensor::copy(two[0]), Tensor::copy(all[2])));
  EXPECT_TRUE(same_bits(Tensor::copy(two[1]), Tensor::copy(all[0])));
  const std::vector<double> shares = first_token_share(recording, 1);
  for (dim_t h = 0; h < 3; ++h) {
    EXPECT_EQ(first_token_share(recording, {1, h}), shares[static_cast<std::size_t>(h)]);
  }
  EXPECT_EQ(error_of([&] { recording.value_norms(1, {3}); }), "Recording: head 3 is not in [0, 3)");
}

TEST(HeadMetricsTest, jensen_shannon_is_0_for_equal_rows_and_ln_2_for_disjoint_ones) {
  const Tensor a = Tensor::of({0.25, 0.75, 0.0});
  const Tensor b = Tensor::of({0.0, 0.0, 1.0});
  EXPECT_EQ(jensen_shannon(a, a), 0.0);
  EXPECT_NEAR(jensen_shannon(a, b), std::numbers::ln2, 1e-12);
  EXPECT_NEAR(jensen_shannon(b, a), std::numbers::ln2, 1e-12);
  const Tensor c = Tensor::of({0.5, 0.5, 0.0});
  EXPECT_NEAR(jensen_shannon(a, c), 0.0338221, 1e-6);
}

TEST(HeadMetricsTest, a_head_does_not_differ_from_itself) {
  const Gpt model = small_model();
  const Recording recording(model, random_ids(200, 90));  // more than one block of rows
  EXPECT_EQ(head_divergence(recording, {0, 1}, recording, {0, 1}), 0.0);
  const double apart = head_divergence(recording, {0, 1}, recording, {1, 2});
  EXPECT_GT(apart, 0.001);
  EXPECT_LT(apart, std::numbers::ln2);
  EXPECT_DOUBLE_EQ(apart, head_divergence(recording, {1, 2}, recording, {0, 1}));
  const Recording shorter(model, {1, 2, 3});
  EXPECT_EQ(error_of([&] {
              head_divergence(recording, {0, 0}, shorter, {0, 0});
            }),
            "head_divergence: texts of 200 and 3 tokens cannot be compared");
}

TEST(HeadMetricsTest, strongest_links_are_the_largest_weights_of_their_rows) {
  const Gpt model = small_model();
  const Recording recording(model, random_ids(140, 90));
  const Tensor weights = recording.weights(0, {.heads = {1}});
  const std::vector<Link> links = strongest_links(recording, {0, 1}, 10);
  ASSERT_EQ(links.size(), 10U);
  for (std::size_t k = 0; k < links.size(); ++k) {
    EXPECT_LE(links[k].weight, links[k == 0 ? 0 : k - 1].weight);
    EXPECT_GE(links[k].query, 1);
    for (dim_t j = 0; j < 140; ++j) {
      EXPECT_LE(weights.at({0, links[k].query, j}), links[k].weight + 1e-6);
    }
  }
  EXPECT_EQ(strongest_links(recording, {0, 1}, 1000).size(), 139U);
}

TEST(RecordingTest, predictions_are_the_softmax_of_the_logits) {
  const Gpt model = small_model();
  const Recording recording(model, {3, 1, 4});
  const auto all = recording.predictions(1000);
  ASSERT_EQ(all.size(), 90U);
  double sum = 0.0;
  for (const Prediction& p : all) sum += p.probability;
  EXPECT_NEAR(sum, 1.0, 1e-9);
  const Tensor logits = model(Tensor::of({3, 1, 4}, DType::i64), {.last_only = true});
  EXPECT_NEAR(std::log(all[0].probability / all[1].probability),
              logits.at({0, all[0].id}) - logits.at({0, all[1].id}), 1e-5);
  EXPECT_EQ(recording.predictions(2).size(), 2U);
}

TEST(RecordingTest, what_cannot_be_recorded_is_refused) {
  const Gpt model = small_model();
  EXPECT_EQ(error_of([&] { Recording(model, {}); }), "Recording: there are no tokens to look at");
  EXPECT_NE(error_of([&] { Recording(model, {90}); }), "");
  EXPECT_NE(error_of([&] { Recording(model, random_ids(257, 90)); }), "");
  const Recording recording(model, {1, 2});
  EXPECT_EQ(error_of([&] { recording.weights(2); }), "Recording: layer 2 is not in [0, 2)");
}

}  // namespace
}  // namespace cephalo
