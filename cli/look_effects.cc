#include "cli/look_effects.h"

#include <chrono>
#include <utility>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cli/model_text.h"
#include "cli/numbers.h"
#include "cli/progress_bar.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// "mean", "scale:0.5"
std::pair<ChangeKind, double> parse_kind(const std::string& word) {
  const std::size_t colon = word.find(':');
  const std::string kind_word = word.substr(0, colon);
  try {
    const ChangeKind kind = parse_change_kind(kind_word);
    if (kind == ChangeKind::patch) {
      throw UsageError("--with: patch takes from another text: cephalo patch CLEAN CORRUPT");
    }
    if (kind != ChangeKind::scale && colon != std::string::npos) {
      throw UsageError(
          format_text("--with: {} takes no number; scale does, as scale:0.5", name(kind)));
    }
    if (kind != ChangeKind::scale) return {kind, 1.0};
    if (colon == std::string::npos) {
      throw UsageError("--with: scale needs its factor, as scale:0.5");
    }
    return {kind, parse_tolerance("--with scale", word.substr(colon + 1))};
  } catch (const Error& error) {
    throw UsageError(format_text("--with: {}", error.what()));
  }
}

bool is_of_edges(ChangeKind kind) {
  return kind == ChangeKind::hide || kind == ChangeKind::cut;
}

// How long one experiment takes that asks for nothing but a logit, from every head once.
double seconds_each(const EffectsReport& report) {
  const std::vector<Changes> heads =
      each_head(report.pass->options(), report.options.kind, report.options.factor);
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(measure_changes(
      *report.pass, heads, {.logits = {report.predicted.token.id}},
      {.reference = report.reference.get(), .threads = report.options.look.threads}));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / static_cast<double>(heads.size());
}

// Said before the work begins, where nobody would see a bar too.
void announce_pairs(const EffectsReport& report) {
  const std::size_t heads = report.look.heads.size();
  const std::size_t pairs = heads * (heads - 1) / 2;
  const double seconds = seconds_each(report) * static_cast<double>(pairs);
  say(seconds < 1.0 ? format_text("{} pairs of heads: less than a second", pairs)
                    : format_text("{} pairs of heads: about {:.0f} s; Ctrl-C shows what is done",
                                  pairs, seconds));
}

Changes parse_parts(const std::string& text, ChangeKind kind, double factor,
                    const EffectsReport& report) {
  try {
    Changes changes = parse_changes(text, kind, factor);
    check_changes(changes, report.pass->options(), report.pass->tokens());
    return changes;
  } catch (const Error& error) {
    throw UsageError(format_text("--ablate: {}", error.what()));
  }
}

}  // namespace

void EffectsFlags::add_to(Command verb) {
  constexpr const char* kGroup = "Effects";
  verb.add_flag("--effects", effects_,
                "Change each head in turn: what that does to the next token and to the loss")
      .group(kGroup);
  ablate_flag_ =
      verb.add_option("--ablate", ablate_,
                      "Change these together: L3H2, L3, L3.attention, L3.mlp, or the look "
                      "L3H2:12>4 (token 12 at 4), joined by commas")
          .type_name("PARTS")
          .group(kGroup);
  verb.add_option("--with", kind_,
                  "What becomes of them: zero, mean, reference-mean, uniform, no-first, scale:0.5; "
                  "of a look: hide, cut [zero, hide]")
      .type_name("KIND")
      .group(kGroup);
  verb.add_option("--reference", reference_, "Text whose mean reference-mean takes")
      .type_name("FILE")
      .group(kGroup);
  verb.add_flag("--pairs", pairs_, "Change every two heads together").group(kGroup);
  edges_flag_ =
      verb.add_option("--edges", edges_,
                      "Hide each look of this token in turn; or of the one with that index")
          .type_name("TOKEN")
          .group(kGroup);
}

bool EffectsFlags::given() const {
  if (ablate_flag_->given() && ablate_.empty()) {
    throw UsageError("--ablate: names no part; pass one, as L3H2");
  }
  if (edges_flag_->given() && edges_.empty()) {
    throw UsageError("--edges: names no token; pass one, or its index");
  }
  const bool any = effects_ || pairs_ || !ablate_.empty() || !edges_.empty();
  if (!any && !kind_.empty()) {
    throw UsageError("--with: says how to change parts; which ones say --effects or --ablate");
  }
  return any;
}

EffectsReport EffectsFlags::measure(const LookModel& model, const std::string& text,
                                    const LookOptions& look) const {
  const auto [kind, factor] = kind_.empty() ? std::pair{ChangeKind::zero, 1.0} : parse_kind(kind_);
  EffectsOptions options{.look = look, .kind = kind, .factor = factor};
  if (is_of_edges(kind)) {
    if (effects_ || pairs_) {
      throw UsageError(format_text("--with: {} is for looks, not for heads", name(kind)));
    }
    options.kind = ChangeKind::zero;  // of heads, which are not asked for
  }
  const bool heads_too = effects_ || pairs_ || !ablate_.empty();
  if (!edges_.empty() && !heads_too && !kind_.empty() && !is_of_edges(kind)) {
    throw UsageError(
        format_text("--with: {} is for heads; a look is changed by hide or cut", name(kind)));
  }
  if (!reference_.empty() && kind != ChangeKind::reference_mean) {
    throw UsageError("--reference: is what --with reference-mean takes its mean over");
  }
  if (kind == ChangeKind::reference_mean) {
    if (reference_.empty()) {
      throw UsageError("--with: reference-mean needs --reference FILE, a text to take it over");
    }
    options.reference = read_text_file(reference_);
  }
  const StopSignals signals;
  EffectsReport report = effects_of(model, text, options);
  if (!ablate_.empty()) {
    report.ablation = ablate(model, report, parse_parts(ablate_, kind, factor, report));
  }
  const auto watched = [](const char* what) {
    return [bar = ProgressBar(what)](std::size_t done, std::size_t all) mutable {
      bar.show(done, all);
      return StopSignals::caught() == 0;
    };
  };
  if (!edges_.empty()) {
    const dim_t query = find_token(report.look.tokens, edges_, "--edges");
    if (query == 0) throw UsageError("--edges: token 0 looks at itself alone");
    report.edges =
        edge_effects(report, query, is_of_edges(kind) ? kind : ChangeKind::hide, watched("looks"));
  }
  if (effects_ || pairs_) report.heads = head_effects(report, watched("heads"));
  if (pairs_ && StopSignals::caught() == 0) {
    announce_pairs(report);
    report.pairs = pair_effects(report, watched("pairs"));
  }
  if (StopSignals::caught() != 0) show_status("");  // the bar that was there
  return report;
}

int EffectsFlags::stopped_by() {
  return StopSignals::caught();
}

}  // namespace cephalo::cli
