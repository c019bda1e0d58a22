// page_of a text under experiments: which words and tables show it.

#include <algorithm>
#include <cmath>

#include "cephalo/core/format.h"
#include "cephalo/text/piece_text.h"
#include "cephalo/view/columns.h"
#include "cephalo/view/effects_words.h"
#include "cephalo/view/report_tables.h"

namespace cephalo {
namespace {

constexpr std::size_t kMostPairs = 10;
constexpr std::size_t kMostEdges = 4;  // of a head, in its row
constexpr std::size_t kLongestKey = 10;

std::string percent(double probability) {
  return format_text("{:.1f} %", 100.0 * probability);
}

std::string predicted(const EffectsReport& report) {
  return in_quotes(report.predicted.token.piece);
}

void add_heads(const EffectsReport& report, ReportPage& page) {
  constexpr int kDigits = 3;
  const HeadEffects& effects = *report.heads;
  const std::string token = predicted(report);
  std::string lead = format_text("Each head in turn is {}; a cell shows what that changes.",
                                 in_words(report.options));
  if (report.options.kind != ChangeKind::scale) {
    lead += format_text(" Where the logit of {} falls (negative), the head raises it.", token);
  }
  page.paragraphs.push_back(std::move(lead));
  if (effects.done < report.look.heads.size()) {
    page.paragraphs.push_back(format_text("Stopped after {} of {} heads; the others are empty.",
                                          effects.done, report.look.heads.size()));
  }
  ReportTable logits = table_of_heads(format_text("change of the logit of {}", token),
                                      effects.logit_change, 2, &report.look);
  ReportNote strongest{format_text("the heads that matter most for {}", token)};
  for (const HeadInfluence& head : effects.strongest) strongest.lines.push_back(head.words);
  logits.below = {{"", {letters_in_words()}}, std::move(strongest)};
  page.tables.push_back(std::move(logits));
  if (!report.losses.empty()) {
    page.tables.push_back(table_of_heads("change of the mean loss of the text's tokens, in nats",
                                         effects.loss_change, kDigits));
  }
  page.tables.push_back(
      table_of_sizes("KL of the next token from as it is, in nats", effects.divergence, kDigits));
}

void add_pairs(const EffectsReport& report, ReportPage& page) {
  const PairEffects& effects = *report.pairs;
  ReportTable table{
      .title = format_text("pairs of heads: change of the logit of {}", predicted(report)),
      .columns = {"together", "apart, summed", "difference"}};
  std::vector<PairEffect> pairs = effects.pairs;
  const auto difference = [](const PairEffect& p) {
    return std::isnan(p.apart) ? p.together : p.together - p.apart;
  };
  std::stable_sort(pairs.begin(), pairs.end(), [&](const PairEffect& a, const PairEffect& b) {
    return std::abs(difference(a)) > std::abs(difference(b));
  });
  pairs.resize(std::min(pairs.size(), kMostPairs));
  double largest = 0.0;
  for (const PairEffect& p : pairs) {
    for (const double value : {p.together, p.apart, difference(p)}) {
      if (!std::isnan(value)) largest = std::max(largest, std::abs(value));
    }
  }
  say_range(table, largest);
  for (const PairEffect& p : pairs) {
    table.rows.push_back(
        format_text("{} + {}", place_name(p.a.layer, p.a.head), place_name(p.b.layer, p.b.head)));
    table.cells.push_back({signed_cell(p.together, largest), signed_cell(p.apart, largest),
                           signed_cell(p.together - p.apart, largest)});
  }
  const bool all = effects.pairs.size() == effects.all;
  const std::string stopped =
      all ? "" : format_text("Stopped after {} of {} pairs. ", effects.pairs.size(), effects.all);
  table.below = {
      {"",
       {stopped +
        format_text("The {} of {} pairs whose change together differs most from the sum of both "
                    "alone. Less together than summed: one works through the other, or both do "
                    "the same. More: each makes up for the other.",
                    pairs.size(), effects.pairs.size())}}};
  page.tables.push_back(std::move(table));
}

void add_edges(const EffectsReport& report, ReportPage& page, std::size_t most_rows) {
  const EdgeEffects& effects = *report.edges;
  const dim_t num_heads = report.look.num_heads();
  const LookToken& query = report.look.tokens[static_cast<std::size_t>(effects.query)];
  ReportTable table{.title = format_text("what {} (token {}) looks at: change of the logit of {} "
                                         "without that one look",
                                         in_quotes(query.piece), effects.query, predicted(report))};
  const double largest = largest_of(effects.logit_change);
  say_range(table, largest);
  table.columns.assign(kMostEdges, "");
  std::vector<double> sizes;
  for (dim_t k = 0; k < report.look.num_layers() * num_heads; ++k) {
    sizes.push_back(largest_of(effects.logit_change[k / num_heads][k % num_heads]));
  }
  const std::vector<dim_t> rows = largest_rows(sizes, most_rows);
  for (const dim_t k : rows) {
    const TensorView changes = effects.logit_change[k / num_heads][k % num_heads];
    std::vector<dim_t> keys;
    for (dim_t j = 0; j <= effects.query; ++j) {
      if (!std::isnan(changes.at({j}))) keys.push_back(j);
    }
    std::stable_sort(keys.begin(), keys.end(), [&](dim_t a, dim_t b) {
      return std::abs(changes.at({a})) > std::abs(changes.at({b}));
    });
    keys.resize(std::min(keys.size(), kMostEdges));
    table.rows.push_back(place_name(k / num_heads, k % num_heads));
    std::vector<ReportCell>& row = table.cells.emplace_back();
    for (const dim_t j : keys) {
      ReportCell cell = signed_cell(changes.at({j}), largest);
      const LookToken& key = report.look.tokens[static_cast<std::size_t>(j)];
      cell.text = cut(numbered(key, j), kLongestKey, false) + " " + cell.text;
      row.push_back(std::move(cell));
    }
  }
  std::string note =
      format_text("Each look is {} in turn, strongest first in each head.",
                  effects.kind == ChangeKind::cut ? "cut (its weight set to 0)"
                                                  : "hidden (the others share its weight)");
  if (effects.done < effects.all) {
    note += format_text(" Stopped after {} of {}.", effects.done, effects.all);
  }
  if (rows.size() < sizes.size()) {
    note += format_text(" The {} of {} heads where one changes most.", rows.size(), sizes.size());
  }
  table.below = {{"", {note}}};
  page.tables.push_back(std::move(table));
}

ReportTable loss_table(const EffectsReport& report, std::size_t most_rows) {
  const Ablation& ablation = *report.ablation;
  std::vector<double> changes;
  double largest = 0.0;
  for (std::size_t i = 0; i < ablation.losses_before.size(); ++i) {
    changes.push_back(ablation.losses_after[i] - ablation.losses_before[i]);
    largest = std::max(largest, std::abs(changes.back()));
  }
  ReportTable table{.title = "loss of each token, in nats",
                    .columns = {"as it is", "changed", "change"}};
  say_range(table, largest);
  const std::vector<dim_t> rows = largest_rows(changes, most_rows);
  for (const dim_t i : rows) {
    const auto at = static_cast<std::size_t>(i);
    table.rows.push_back(numbered(report.look.tokens[at + 1], i + 1));
    table.cells.push_back({{format_text("{:.2f}", ablation.losses_before[at])},
                           {format_text("{:.2f}", ablation.losses_after[at])},
                           signed_cell(changes[at], largest)});
  }
  if (rows.size() < changes.size()) {
    table.below = {{"",
                    {format_text("The {} of {} tokens whose loss changes most.", rows.size(),
                                 changes.size())}}};
  }
  return table;
}

void add_ablation(const EffectsReport& report, ReportPage& page, std::size_t most_rows) {
  const Ablation& ablation = *report.ablation;
  std::vector<std::string> parts;
  for (const Change& change : ablation.changes) {
    const bool scaled = change.kind == ChangeKind::scale;
    parts.push_back(format_text("{} ({}{})", to_string(change), name(change.kind),
                                scaled ? format_text(":{}", change.factor) : ""));
  }
  page.paragraphs.push_back(format_text("Changed: {}.", joined(parts, ", ")));
  ReportTable next{.title = "next token",
                   .shades = ReportTable::Shades::weights,
                   .least = "0",
                   .most = "1",
                   .columns = {"as it is", "changed"}};
  for (const Ablation::Next& token : ablation.next) {
    next.rows.push_back(in_quotes(token.token.piece));
    next.cells.push_back(
        {{percent(token.before), token.before}, {percent(token.after), token.after}});
  }
  next.below = {
      {"",
       {format_text("The logit of {} changes by {:+.2f}, the next token by {:.3f} nats (KL).",
                    predicted(report), ablation.logit_change, ablation.divergence)}}};
  page.tables.push_back(std::move(next));
  if (ablation.losses_before.empty()) return;
  double sum = 0.0;
  for (std::size_t i = 0; i < ablation.losses_before.size(); ++i) {
    sum += ablation.losses_after[i] - ablation.losses_before[i];
  }
  ReportTable losses = loss_table(report, most_rows);
  losses.below.push_back(
      {"",
       {format_text("The mean loss of the text's tokens changes by {:+.3f} nats.",
                    sum / static_cast<double>(ablation.losses_before.size()))}});
  page.tables.push_back(std::move(losses));
}

}  // namespace

ReportPage page_of(const EffectsReport& report, std::size_t most_rows) {
  ReportPage page{.title = on_one_line(report.look.text),
                  .model = model_line(report.look.model, report.pass->options())};
  const std::string beyond =
      training_note(report.look.trained_context_length, std::ssize(report.look.tokens));
  if (!beyond.empty()) page.paragraphs.push_back(beyond);
  page.paragraphs.push_back(format_text("The likeliest next token is {} ({}), its logit {:.2f}.",
                                        predicted(report), percent(report.predicted.probability),
                                        report.logit));
  if (report.ablation) add_ablation(report, page, most_rows);
  if (report.heads) add_heads(report, page);
  if (report.pairs) add_pairs(report, page);
  if (report.edges) add_edges(report, page, most_rows);
  return page;
}

}  // namespace cephalo
