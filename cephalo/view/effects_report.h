#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/effects/sweep.h"
#include "cephalo/view/look.h"
#include "cephalo/view/report_page.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Called as experiments end; false stops, and what is done is kept.
using Progress = std::function<bool(std::size_t done, std::size_t all)>;

// How parts are changed, and what is shown besides.
struct EffectsOptions {
  LookOptions look = {};
  ChangeKind kind = ChangeKind::zero;  // what becomes of heads that are changed
  double factor = 1.0;                 // of scale
  std::string reference = {};          // a text: what reference_mean takes its means over
};

// All changes here are "changed minus as it is": a negative change of a logit is a head that raises
// it, a positive change of a loss one that lowers it.

// A head that matters for the predicted token, and what is known about why.
struct HeadInfluence {
  HeadPlace place;
  double logit_change = 0.0;
  double direct = 0.0;         // what it adds to the logit itself: see attribute_logit
  dim_t source = 0;            // the token whose value gives most of that: see attribute_sources
  double source_direct = 0.0;  // how much
  double source_weight = 0.0;  // how much the last token looks at it
  std::string words = {};      // "layer 3 head 2 raises " Rabbit" by 2.1: it copies …"
};

// Each head in turn, as [num_layers, num_heads], float64. NaN: not done, or not there.
struct HeadEffects {
  Tensor logit_change;                        // of the predicted token
  Tensor divergence;                          // KL(as it is ‖ changed) of the next token, in nats
  Tensor loss_change;                         // mean over the text's tokens after the first
  std::vector<HeadInfluence> strongest = {};  // the five that change the logit most
  std::size_t done = 0;                       // of all heads
};

// Two heads at once.
struct PairEffect {
  HeadPlace a, b;
  double together;  // change of the predicted token's logit
  double apart;     // sum of the changes that each makes alone; NaN: not known
};
struct PairEffects {
  std::vector<PairEffect> pairs = {};  // those that are done
  std::size_t all = 0;
};

// Each key of one query in turn, hidden or cut.
struct EdgeEffects {
  dim_t query = 0;
  ChangeKind kind = ChangeKind::hide;
  Tensor logit_change;  // [num_layers, num_heads, query + 1], float64: of the predicted token
  std::size_t done = 0, all = 0;
};

// Some changes made together.
struct Ablation {
  struct Next {
    LookToken token;
    double before, after;  // probabilities
  };
  Changes changes;
  std::vector<Next> next = {};  // the likeliest of both, in the order of before
  double logit_change = 0.0;
  double divergence = 0.0;
  std::vector<double> losses_before = {}, losses_after = {};  // [tokens − 1]: of token i + 1
};

// A text under experiments. What was not asked for is not there.
struct EffectsReport {
  LookReport look;
  EffectsOptions options;
  LookPrediction predicted = {};  // the token whose logit it is about
  double logit = 0.0;             // as it is
  std::vector<double> losses = {};
  std::optional<HeadEffects> heads = {};
  std::optional<PairEffects> pairs = {};
  std::optional<EdgeEffects> edges = {};
  std::optional<Ablation> ablation = {};
  std::shared_ptr<const KeptPass> pass = {};
  std::shared_ptr<const Tensor> reference = {};  // means of options.reference
};

// The text as it is. The model must live as long as the report, unchanged. An error: the text has
// no token, or more than the model reads at once, or a kind that neither heads nor edges have.
EffectsReport effects_of(const LookModel& model, const std::string& text,
                         const EffectsOptions& options = {});
// The experiments on it; the caller keeps them in the report.
HeadEffects head_effects(const EffectsReport& report, const Progress& progress = {});
// Compared with each head alone where the report has that already.
PairEffects pair_effects(const EffectsReport& report, const Progress& progress = {});
EdgeEffects edge_effects(const EffectsReport& report, dim_t query,
                         ChangeKind kind = ChangeKind::hide, const Progress& progress = {});
Ablation ablate(const LookModel& model, const EffectsReport& report, const Changes& changes);

// One line of JSON: docs/schema/effects.json.
std::string to_json(const EffectsReport& report);

// What is shown. At most so many rows of a table: those that changed most, and the page says so.
ReportPage page_of(const EffectsReport& report, std::size_t most_rows = 24);

}  // namespace cephalo
#pragma GCC visibility pop
