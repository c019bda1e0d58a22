#include "cephalo/view/head_metrics.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"
#include "cephalo/view/row_blocks.h"

namespace cephalo {
namespace {

constexpr dim_t kShortestProbe = 25;
constexpr dim_t kFewestDraws = 4;

constexpr double kLabelScore = 0.4;
constexpr double kSinkScore = 0.5;
constexpr double kDiffuseEntropy = 0.9;
constexpr double kTimesUniform = 3.0;
constexpr double kAlwaysEnough = 0.8;
constexpr dim_t kFewestRows = 3;

// Adds rows up; done() makes the mean of it.
class Mean {
 public:
  void add(double value, double visible) {
    score_.value += value;
    score_.uniform += 1.0 / visible;
    ++score_.rows;
  }
  Score done() const {
    if (score_.rows == 0) return {};
    const auto rows = static_cast<double>(score_.rows);
    return {score_.value / rows, score_.rows, score_.uniform / rows};
  }

 private:
  Score score_;
};

// Numbers of one row of row_sums by name.
class Row {
 public:
  explicit Row(const double* sums) : sums_(sums) {}
  double operator[](RowSum sum) const { return sums_[static_cast<int>(sum)]; }

 private:
  const double* sums_;
};

void check_probe(dim_t vocab_size, const ProbeOptions& o) {
  require(o.length >= kShortestProbe, "probe: length ({}) must be at least {}", o.length,
          kShortestProbe);
  require(o.draws >= kFewestDraws, "probe: draws ({}) must be at least {}", o.draws, kFewestDraws);
  require(o.length < vocab_size,
          "probe: {} different tokens and one before them are more than vocab_size ({})", o.length,
          vocab_size);
}

bool is_pattern(const Score& score, double least) {
  return score.rows >= kFewestRows && score.value >= least &&
         score.value >= std::min(kAlwaysEnough, kTimesUniform * score.uniform);
}

// What probes of several draws add up to.
void add_share(const Score& from, double share, Score& to) {
  to.value += share * from.value;
  to.uniform += share * from.uniform;
  to.rows += from.rows;
}

// The scores of one draw of the probe. All tokens of a copy differ, so that a query of the second
// copy has one earlier key with its token, and one that follows it.
// weights: [rows, tokens], float64: those of the second copy
ProbeScores probe_scores(const double* weights, dim_t length) {
  const dim_t tokens = 2 * length + 1;
  Mean duplicate;
  Mean induction;
  for (dim_t i = length + 1; i < tokens; ++i, weights += tokens) {
    const auto visible = static_cast<double>(i + 1);
    duplicate.add(weights[i - length], visible);
    induction.add(weights[i - length + 1], visible);
  }
  return {duplicate.done(), induction.done()};
}

// Of each selected head of a layer, or all.
std::vector<double> first_token_shares(const Recording& recording, dim_t layer,
                                       const std::vector<dim_t>& heads) {
  const Tensor norms = recording.value_norms(layer, heads);
  std::vector<double> shares(static_cast<std::size_t>(norms.dim(0)), 0.0);
  for_row_blocks(recording, layer, heads,
                 [&](const Tensor& weights, const std::vector<dim_t>& rows) {
                   const Tensor moved = value_weighted(weights, norms);
                   const auto* row = moved.data_as<double>();
                   for (double& share : shares) {
                     for (std::size_t i = 0; i < rows.size(); ++i, row += recording.tokens()) {
                       share += *row / static_cast<double>(recording.tokens() - 1);
                     }
                   }
                 });
  return shares;
}

// a, b: [keys]
double jensen_shannon(const double* a, const double* b, dim_t keys) {
  double sum = 0.0;
  for (dim_t j = 0; j < keys; ++j) {
    const double middle = 0.5 * (a[j] + b[j]);
    if (a[j] > 0.0) sum += 0.5 * a[j] * std::log(a[j] / middle);
    if (b[j] > 0.0) sum += 0.5 * b[j] * std::log(b[j] / middle);
  }
  return std::max(sum, 0.0);  // rounding alone makes it negative
}

}  // namespace

HeadMetrics head_metrics(const TensorView& sums) {
  require(sums.rank() == 2 && sums.dim(1) == kRowSums && sums.is_contiguous(),
          "head_metrics: sums {} must be dense [tokens, {}]", sums.shape(), kRowSums);
  Mean previous;
  Mean first;
  Mean current;
  Mean duplicate;
  Mean induction;
  Mean entropy;
  HeadMetrics m;
  for (dim_t i = 0; i < sums.dim(0); ++i) {
    const Row row(sums.data_as<double>() + i * kRowSums);
    const double visible = row[RowSum::visible];
    if (visible < 2.0) continue;
    previous.add(row[RowSum::previous], visible);
    first.add(row[RowSum::first], visible);
    current.add(row[RowSum::current], visible);
    if (row[RowSum::has_duplicate] > 0.0) duplicate.add(row[RowSum::duplicate], visible);
    if (row[RowSum::has_induction] > 0.0) induction.add(row[RowSum::induction], visible);
    entropy.add(row[RowSum::entropy] / std::log(visible), visible);
    m.effective_tokens += std::exp(row[RowSum::entropy]);
    m.confidence += row[RowSum::largest];
    m.distance += row[RowSum::distance];
  }
  m.previous = previous.done();
  m.first = first.done();
  m.current = current.done();
  m.duplicate = duplicate.done();
  m.induction = induction.done();
  m.entropy = entropy.done();
  const auto rows = static_cast<double>(std::max<dim_t>(m.entropy.rows, 1));
  m.effective_tokens /= rows;
  m.confidence /= rows;
  m.distance /= rows;
  return m;
}

std::vector<HeadMetrics> head_metrics(const Recording& recording, dim_t layer) {
  const Tensor sums = recording.row_sums(layer);
  std::vector<HeadMetrics> heads;
  for (dim_t h = 0; h < sums.dim(0); ++h) heads.push_back(head_metrics(sums[h]));
  return heads;
}

std::vector<std::int64_t> probe_ids(dim_t vocab_size, const ProbeOptions& options,
                                    TorchGenerator& generator) {
  check_probe(vocab_size, options);
  // A few more than needed, because the one that begins the text must not come again.
  std::vector<std::int64_t> drawn = generator.randperm(vocab_size);
  const std::int64_t bos = options.bos_token_id.value_or(drawn.back());
  drawn.erase(std::remove(drawn.begin(), drawn.end(), bos), drawn.end());
  drawn.resize(static_cast<std::size_t>(options.length));
  std::vector<std::int64_t> ids{bos};
  for (int copy = 0; copy < 2; ++copy) ids.insert(ids.end(), drawn.begin(), drawn.end());
  return ids;
}

dim_t longest_probe(const GptOptions& model) {
  const dim_t length = std::min((model.context_length - 1) / 2, model.vocab_size - 1);
  return length < kShortestProbe ? 0 : length;
}

std::vector<std::vector<ProbeScores>> probe_heads(const Gpt& model, const ProbeOptions& options) {
  const GptOptions& o = model.options();
  check_probe(o.vocab_size, options);
  require(options.length <= longest_probe(o),
          "probe: 2 x {} + 1 tokens exceed context_length ({}); {}", options.length,
          o.context_length,
          longest_probe(o) > 0 ? format_text("at most {} fit", longest_probe(o))
                               : "no probe fits this model");
  std::vector<std::vector<ProbeScores>> scores(
      static_cast<std::size_t>(o.num_layers),
      std::vector<ProbeScores>(static_cast<std::size_t>(o.num_heads)));
  TorchGenerator generator(options.seed);
  const double share = 1.0 / static_cast<double>(options.draws);
  WeightsSelection second_copy;
  for (dim_t i = options.length + 1; i <= 2 * options.length; ++i) second_copy.rows.push_back(i);
  for (dim_t draw = 0; draw < options.draws; ++draw) {
    const Recording recording(model, probe_ids(o.vocab_size, options, generator), options.threads);
    for (dim_t layer = 0; layer < o.num_layers; ++layer) {
      const Tensor weights = Tensor::copy(recording.weights(layer, second_copy), DType::f64);
      for (dim_t h = 0; h < o.num_heads; ++h) {
        const ProbeScores drawn = probe_scores(weights[h].data_as<double>(), options.length);
        ProbeScores& mean = scores[static_cast<std::size_t>(layer)][static_cast<std::size_t>(h)];
        add_share(drawn.duplicate, share, mean.duplicate);
        add_share(drawn.induction, share, mean.induction);
      }
    }
  }
  return scores;
}

const char* name(HeadLabel label) {
  constexpr const char* kNames[] = {"previous", "induction", "duplicate",
                                    "sink",     "current",   "diffuse"};
  return kNames[static_cast<int>(label)];
}

std::vector<LabelScore> head_labels(const HeadMetrics& text, const ProbeScores* probe) {
  std::vector<LabelScore> labels;
  const auto judge = [&](HeadLabel label, const Score& score, double least) {
    if (is_pattern(score, least)) labels.push_back({label, score.value});
  };
  judge(HeadLabel::previous, text.previous, kLabelScore);
  if (probe != nullptr) {
    judge(HeadLabel::induction, probe->induction, kLabelScore);
    judge(HeadLabel::duplicate, probe->duplicate, kLabelScore);
  }
  judge(HeadLabel::sink, text.first, kSinkScore);
  judge(HeadLabel::current, text.current, kLabelScore);
  if (text.entropy.rows >= kFewestRows && text.entropy.value >= kDiffuseEntropy) {
    labels.push_back({HeadLabel::diffuse, text.entropy.value});
  }
  return labels;
}

std::vector<HeadReport> report_heads(const Recording& recording,
                                     const std::vector<std::vector<ProbeScores>>& probe) {
  std::vector<HeadReport> reports;
  for (dim_t layer = 0; layer < recording.num_layers(); ++layer) {
    const std::vector<HeadMetrics> heads = head_metrics(recording, layer);
    for (dim_t h = 0; h < recording.num_heads(); ++h) {
      HeadReport report{layer, h, heads[static_cast<std::size_t>(h)], {}, {}};
      if (!probe.empty()) {
        report.probe = probe.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(h));
      }
      report.labels = head_labels(report.text, report.probe ? &*report.probe : nullptr);
      reports.push_back(std::move(report));
    }
  }
  return reports;
}

Tensor value_weighted(const TensorView& weights, const TensorView& norms) {
  require(weights.rank() == 3 && norms.shape() == Shape({weights.dim(0), weights.dim(2)}),
          "value_weighted: weights {} must be [heads, rows, keys] and norms {} [heads, keys]",
          weights.shape(), norms.shape());
  Tensor out = Tensor::copy(weights, DType::f64);
  const Tensor wide = Tensor::copy(norms, DType::f64);
  const dim_t keys = weights.dim(2);
  auto* row = out.mutable_data_as<double>();
  for (dim_t h = 0; h < weights.dim(0); ++h) {
    const double* norm = wide.data_as<double>() + h * keys;
    for (dim_t i = 0; i < weights.dim(1); ++i, row += keys) {
      double sum = 0.0;
      for (dim_t j = 0; j < keys; ++j) sum += row[j] *= norm[j];
      for (dim_t j = 0; j < keys && sum > 0.0; ++j) row[j] /= sum;
    }
  }
  return out;
}

double first_token_share(const Recording& recording, const HeadPlace& place) {
  return first_token_shares(recording, place.layer, {place.head}).front();
}

std::vector<double> first_token_share(const Recording& recording, dim_t layer) {
  return first_token_shares(recording, layer, {});
}

double jensen_shannon(const TensorView& a, const TensorView& b) {
  require(a.rank() == 1 && a.shape() == b.shape(), "jensen_shannon: {} and {} are not equally long",
          a.shape(), b.shape());
  const Tensor wide_a = Tensor::copy(a, DType::f64);
  const Tensor wide_b = Tensor::copy(b, DType::f64);
  return jensen_shannon(wide_a.data_as<double>(), wide_b.data_as<double>(), a.dim(0));
}

double head_divergence(const Recording& a, const HeadPlace& head_a, const Recording& b,
                       const HeadPlace& head_b) {
  require(a.tokens() == b.tokens(), "head_divergence: texts of {} and {} tokens cannot be compared",
          a.tokens(), b.tokens());
  double sum = 0.0;
  for_row_blocks(a, head_a.layer, {head_a.head},
                 [&](const Tensor& rows_a, const std::vector<dim_t>& rows) {
                   const Tensor rows_b = Tensor::copy(
                       b.weights(head_b.layer, {.heads = {head_b.head}, .rows = rows}), DType::f64);
                   for (dim_t i = 0; i < rows_a.dim(1); ++i) {
                     sum += jensen_shannon(rows_a[0][i].data_as<double>(),
                                           rows_b[0][i].data_as<double>(), a.tokens());
                   }
                 });
  return a.tokens() < 2 ? 0.0 : sum / static_cast<double>(a.tokens() - 1);
}

}  // namespace cephalo
