#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cephalo/model/gpt.h"
#include "cephalo/view/recording.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A mean over some rows of a head's weights.
struct Score {
  double value = 0.0;    // 0 if no row counts
  dim_t rows = 0;        // how many count
  double uniform = 0.0;  // what one key gets in those rows if all keys get the same
};

// A[i][j]: the weight of query i on key j. Rows that see a single key say nothing and are left out
// of every mean.
struct HeadMetrics {
  Score previous;  // A[i][i − 1]
  Score first;     // A[i][0]
  Score current;   // A[i][i]
  // Over the rows that have such keys; mean over all rows would tell of the text, not of the head.
  Score duplicate;  // Σ A[i][j] over earlier keys with the same token
  Score induction;  // Σ A[i][j] over earlier keys that follow the same token
  Score entropy;    // −Σ A ln A, over the ln of how many keys the row sees: 1 when all are equal
  double effective_tokens = 0.0;  // exp of the entropy
  double confidence = 0.0;        // the largest A of a row
  double distance = 0.0;          // Σ A[i][j] · |i − j|
};

// sums: [tokens, kRowSums], of one head
HeadMetrics head_metrics(const TensorView& sums);
// Of every head of a layer.
std::vector<HeadMetrics> head_metrics(const Recording& recording, dim_t layer);

// The probe: a token that begins a text, then `length` different random tokens, twice. What comes
// in the second copy can only be known by looking at the first.
struct ProbeOptions {
  dim_t length = 50;  // at least 25
  dim_t draws = 4;    // at least 4
  std::uint64_t seed = 123;
  std::optional<std::int64_t> bos_token_id = {};  // none: one more random token
  int threads = 0;
};

// What one head shows on the probe.
struct ProbeScores {
  Score duplicate;  // mean over the second copy of A[i][i − length]
  Score induction;  // and of A[i][i − length + 1]
};

// The token ids of one draw: 2 · length + 1.
std::vector<std::int64_t> probe_ids(dim_t vocab_size, const ProbeOptions& options,
                                    TorchGenerator& generator);
// Means over all draws -> [layer][head]. A model whose context or vocabulary is too small for it is
// an error; longest_probe tells before.
std::vector<std::vector<ProbeScores>> probe_heads(const Gpt& model,
                                                  const ProbeOptions& options = {});
dim_t longest_probe(const GptOptions& model);  // 0: no probe of at least 25 tokens fits

// The patterns that a head can be labelled with, and all of them in order.
enum class HeadLabel { previous, induction, duplicate, sink, current, diffuse };
inline constexpr HeadLabel kHeadLabels[] = {HeadLabel::previous,  HeadLabel::induction,
                                            HeadLabel::duplicate, HeadLabel::sink,
                                            HeadLabel::current,   HeadLabel::diffuse};
const char* name(HeadLabel label);

// A label, and the score that it was given for.
struct LabelScore {
  HeadLabel label;
  double score;
};

// The patterns that a head shows: score ≥ 0.4 (sink 0.5), and ≥ 3 × what a head that looks at all
// keys equally would score (but 0.8 always does), over at least 3 rows; diffuse from entropy ≥ 0.9.
// Duplicate and induction are judged by the probe alone, and not without it. A label is a pattern,
// not an effect: what the head does to the output shows when it is switched off.
std::vector<LabelScore> head_labels(const HeadMetrics& text, const ProbeScores* probe);

// What one head shows on a text and on the probe.
struct HeadReport {
  dim_t layer;
  dim_t head;
  HeadMetrics text;
  std::optional<ProbeScores> probe;
  std::vector<LabelScore> labels;
};
// Every head, layer by layer. probe: of probe_heads, or empty
std::vector<HeadReport> report_heads(const Recording& recording,
                                     const std::vector<std::vector<ProbeScores>>& probe);

// weights: [heads, rows, keys], norms: [heads, keys] of Recording::value_norms -> the same shape:
// A[i][j] · norm_j with rows that add up to 1. A sink whose value is nothing fades here.
Tensor value_weighted(const TensorView& weights, const TensorView& norms);

// Which head of a model.
struct HeadPlace {
  dim_t layer;
  dim_t head;
};

// How much of what a head adds comes from the first token: mean over rows of the value-weighted
// A[i][0]. Of one head, or of each of a layer.
double first_token_share(const Recording& recording, const HeadPlace& place);
std::vector<double> first_token_share(const Recording& recording, dim_t layer);

// a, b: [keys], each adding up to 1 -> from 0 for equal ones to ln 2
double jensen_shannon(const TensorView& a, const TensorView& b);

// How differently two heads look at texts of the same length: the mean over rows of the
// Jensen–Shannon divergence, some rows at a time.
double head_divergence(const Recording& a, const HeadPlace& head_a, const Recording& b,
                       const HeadPlace& head_b);

}  // namespace cephalo
#pragma GCC visibility pop
