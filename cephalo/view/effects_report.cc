#include "cephalo/view/effects_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"
#include "cephalo/view/effects_words.h"

namespace cephalo {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kStrongest = 5;

bool is_of_edges(ChangeKind kind) {
  return kind == ChangeKind::hide || kind == ChangeKind::cut;
}

// to += from · weight; float64, dense
void add_weighted(const TensorView& from, dim_t weight, Tensor& to) {
  double* sum = to.mutable_data_as<double>();
  const auto* more = from.data_as<double>();
  for (dim_t k = 0; k < to.numel(); ++k) sum[k] += more[k] * static_cast<double>(weight);
}

// The means of a text's heads over its tokens; the text is begun as the other one is. As many
// tokens at a time as the model reads, and one such piece in memory.
Tensor means_of(const LookModel& model, const std::string& text, const EffectsOptions& options) {
  std::vector<std::int64_t> ids;
  if (options.look.begin && model.first_token) ids.push_back(*model.first_token);
  for (const TokenId id : model.tokenizer.encode(text)) ids.push_back(id);
  require(!text.empty(), "effects: reference-mean needs a reference text, which is empty");
  const GptOptions& o = model.gpt.options();
  Tensor mean = Tensor::zeros({o.num_layers, o.d_model}, DType::f64);
  std::unique_ptr<const KeptPass> part;
  for (dim_t begin = 0; begin < std::ssize(ids); begin += o.context_length) {
    const dim_t end = std::min<dim_t>(begin + o.context_length, std::ssize(ids));
    const std::vector<std::int64_t> some(ids.begin() + begin, ids.begin() + end);
    part = part == nullptr
               ? std::make_unique<const KeptPass>(model.gpt, some, options.look.threads)
               : std::make_unique<const KeptPass>(part->steps(), some, options.look.threads);
    add_weighted(reference_mean({part.get()}), end - begin, mean);
  }
  ops::scale(mean, 1.0 / static_cast<double>(ids.size()));
  return mean;
}

SweepOptions sweep_options(const EffectsReport& report, const Progress& progress) {
  return {.reference = report.reference.get(),
          .progress = progress,
          .threads = report.options.look.threads};
}

double mean_of(const std::vector<double>& losses) {
  if (losses.empty()) return kAbsent;
  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(losses.size());
}

Tensor map_of_heads(const EffectsReport& report) {
  return Tensor::full({report.look.num_layers(), report.look.num_heads()}, kAbsent, DType::f64);
}

// The heads that change the logit most, largest first.
std::vector<HeadPlace> strongest_of(const Tensor& change) {
  std::vector<HeadPlace> places;
  for (dim_t l = 0; l < change.dim(0); ++l) {
    for (dim_t h = 0; h < change.dim(1); ++h) {
      const double value = change.at({l, h});
      if (!std::isnan(value) && value != 0.0) places.push_back({l, h});
    }
  }
  std::stable_sort(places.begin(), places.end(), [&](const HeadPlace& a, const HeadPlace& b) {
    return std::abs(change.at({a.layer, a.head})) > std::abs(change.at({b.layer, b.head}));
  });
  places.resize(std::min(places.size(), kStrongest));
  return places;
}

}  // namespace

EffectsReport effects_of(const LookModel& model, const std::string& text,
                         const EffectsOptions& options) {
  EffectsReport report{.look = look_at(model, text, options.look), .options = options};
  const Change change{.kind = options.kind, .factor = options.factor};
  if (!is_of_edges(options.kind)) {  // which are said edge by edge
    check_changes({change}, model.gpt.options(), report.look.recording->tokens());
  }
  if (options.kind == ChangeKind::reference_mean) {
    report.reference = std::make_shared<const Tensor>(means_of(model, options.reference, options));
  }
  report.predicted = report.look.predictions.front();
  report.pass = std::make_shared<const KeptPass>(model.gpt, report.look.recording->ids(),
                                                 options.look.threads);
  const Measured base =
      measure(*report.pass, {}, {.logits = {report.predicted.token.id}, .losses = true},
              {.threads = options.look.threads});
  report.logit = base.logits.front();
  report.losses = base.losses;
  return report;
}

HeadEffects head_effects(const EffectsReport& report, const Progress& progress) {
  const std::vector<Changes> experiments =
      each_head(report.pass->options(), report.options.kind, report.options.factor);
  const Measures measures{
      .logits = {report.predicted.token.id}, .divergence = true, .losses = true};
  const std::vector<Measured> measured =
      measure_changes(*report.pass, experiments, measures, sweep_options(report, progress));
  HeadEffects effects{map_of_heads(report), map_of_heads(report), map_of_heads(report)};
  effects.done = measured.size();
  for (std::size_t k = 0; k < measured.size(); ++k) {
    const Dims at{experiments[k].front().layer, experiments[k].front().head};
    effects.logit_change.set(at, measured[k].logits.front() - report.logit);
    effects.divergence.set(at, measured[k].divergence);
    effects.loss_change.set(at, mean_of(measured[k].losses) - mean_of(report.losses));
  }
  for (const HeadPlace& place : strongest_of(effects.logit_change)) {
    effects.strongest.push_back(
        influence_of(report, place, effects.logit_change.at({place.layer, place.head})));
  }
  return effects;
}

PairEffects pair_effects(const EffectsReport& report, const Progress& progress) {
  std::vector<Changes> experiments = each_pair(report.pass->options(), report.options.kind);
  for (Changes& changes : experiments) {
    for (Change& change : changes) change.factor = report.options.factor;
  }
  const std::vector<Measured> measured =
      measure_changes(*report.pass, experiments, {.logits = {report.predicted.token.id}},
                      sweep_options(report, progress));
  const auto alone = [&](const HeadPlace& place) {
    return report.heads ? report.heads->logit_change.at({place.layer, place.head}) : kAbsent;
  };
  PairEffects effects{{}, experiments.size()};
  for (std::size_t k = 0; k < measured.size(); ++k) {
    const HeadPlace a{experiments[k][0].layer, experiments[k][0].head};
    const HeadPlace b{experiments[k][1].layer, experiments[k][1].head};
    effects.pairs.push_back({a, b, measured[k].logits.front() - report.logit, alone(a) + alone(b)});
  }
  return effects;
}

EdgeEffects edge_effects(const EffectsReport& report, dim_t query, ChangeKind kind,
                         const Progress& progress) {
  const dim_t tokens = report.pass->tokens();
  require(0 <= query && query < tokens, "effects: token {} is not in [0, {})", query, tokens);
  const std::vector<Changes> experiments = each_edge(report.pass->options(), query, kind);
  const std::vector<Measured> measured =
      measure_changes(*report.pass, experiments, {.logits = {report.predicted.token.id}},
                      sweep_options(report, progress));
  EdgeEffects effects{query, kind,
                      Tensor::full({report.look.num_layers(), report.look.num_heads(), query + 1},
                                   kAbsent, DType::f64),
                      measured.size(), experiments.size()};
  for (std::size_t k = 0; k < measured.size(); ++k) {
    const Change& edge = experiments[k].front();
    effects.logit_change.set({edge.layer, edge.head, edge.key},
                             measured[k].logits.front() - report.logit);
  }
  return effects;
}

Ablation ablate(const LookModel& model, const EffectsReport& report, const Changes& changes) {
  const dim_t vocabulary = report.pass->options().vocab_size;
  const Measures measures{.logits = {report.predicted.token.id},
                          .divergence = true,
                          .losses = true,
                          .top = vocabulary};  // any token may be among the likeliest of the other
  const SweepOptions options = sweep_options(report, {});
  const Measured before = measure(*report.pass, {}, measures, options);
  const Measured after = measure(*report.pass, changes, measures, options);
  Ablation ablation{.changes = changes,
                    .logit_change = after.logits.front() - before.logits.front(),
                    .divergence = after.divergence,
                    .losses_before = before.losses,
                    .losses_after = after.losses};
  const auto top = static_cast<std::size_t>(std::min(report.options.look.top, vocabulary));
  const auto is_in = [top](const Measured& run, std::int64_t id) {
    return std::any_of(run.top.begin(), run.top.begin() + static_cast<std::ptrdiff_t>(top),
                       [id](const TokenProbability& t) { return t.id == id; });
  };
  const auto probability = [](const Measured& run, std::int64_t id) {
    return std::find_if(run.top.begin(), run.top.end(),
                        [id](const TokenProbability& t) { return t.id == id; })
        ->probability;
  };
  for (const TokenProbability& next : before.top) {
    if (!is_in(before, next.id) && !is_in(after, next.id)) continue;
    ablation.next.push_back(
        {look_tokens(model, {next.id}).front(), next.probability, probability(after, next.id)});
  }
  return ablation;
}

}  // namespace cephalo
