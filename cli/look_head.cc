
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/view/opening_head.h"
#include "cli/look_views.h"
#include "cli/look_words.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kLabel = 12;  // columns for the name of a row
constexpr dim_t kNumber = 5;  // and for a weight

std::string row_name(const LookReport& report, dim_t token, const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(kLabel - 5);
  const std::string label =
      cut(report.tokens[static_cast<std::size_t>(token)].label, width, style.utf8);
  return format_text("{}{} {:>3} ", std::string(width - display_width(label), ' '), label, token);
}

// Entropy of a row as a number of tokens.
double effective_tokens(const TensorView& row) {
  double entropy = 0.0;
  for (dim_t j = 0; j < row.dim(0); ++j) {
    const double weight = row.at({j});
    if (weight > 0.0) entropy -= weight * std::log(weight);
  }
  return std::exp(entropy);
}

std::string numbers_matrix(const LookReport& report, const HeadPlace& place,
                           const TerminalStyle& style) {
  const Tensor weights =
      map_weights(*report.recording, place.layer, {.heads = {place.head}}, report.maps);
  const dim_t tokens = report.recording->tokens();
  std::string indices(kLabel, ' ');
  std::string names(kLabel, ' ');
  for (dim_t j = 0; j < tokens; ++j) {
    const std::string label =
        cut(report.tokens[static_cast<std::size_t>(j)].label, kNumber - 1, style.utf8);
    indices += format_text("{:<{}}", j, kNumber);
    names += label + std::string(kNumber - display_width(label), ' ');
  }
  indices.erase(indices.find_last_not_of(' ') + 1);
  std::string out = indices + "\n" + names + " spread over\n";
  for (dim_t i = 0; i < tokens; ++i) {
    out += row_name(report, i, style);
    for (dim_t j = 0; j < tokens; ++j) {
      const double weight = weights.at({0, i, j});
      const std::string cell = format_text("{:<{}}", short_weight(weight), kNumber);
      out += j > i || std::isnan(weight)
                 ? std::string(kNumber, ' ')
                 : (style.colours == ColourDepth::none
                        ? cell
                        : painted(" " + cell.substr(0, kNumber - 1), weight, style));
    }
    out += format_text(" {:4.1f} of {}\n", effective_tokens(weights[0][i]), i + 1);
  }
  return out;
}

// Every other line of a map of half blocks is between two rows: it is named by the first.
std::string shades_matrix(const LookReport& report, const HeadPlace& place, dim_t cells,
                          const TerminalStyle& style) {
  const Tensor map = weight_map(*report.recording, place, cells, report.maps);
  const std::vector<std::string> lines = draw_map(map, style);
  const dim_t rows = (map.dim(0) + std::ssize(lines) - 1) / std::ssize(lines);
  std::string out;
  for (dim_t k = 0; k < std::ssize(lines); ++k) {
    // Of the cells that share the tokens evenly, number n begins here.
    const dim_t cell = k * rows;
    const dim_t first = (cell * report.recording->tokens() + map.dim(0) - 1) / map.dim(0);
    std::string line = row_name(report, first, style) + lines[static_cast<std::size_t>(k)];
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string score_line(const char* what, const Score& score, const char* meaning) {
  if (score.rows == 0) return format_text("  {:<18} -     {}\n", what, meaning);
  return format_text("  {:<18} {:.3f} {}\n", what, score.value, meaning);
}

std::string metrics_table(const LookReport& report, const HeadReport& head) {
  const HeadMetrics& m = head.text;
  std::string out = "mean over the rows of this text\n";
  out += score_line("previous", m.previous, "on the token before");
  out += score_line("sink", m.first, "on the first token");
  const double moved = first_token_share(*report.recording, {head.layer, head.head});
  out += format_text("  {:<18} {:.3f} of what it adds comes from the first token\n",
                     "  value-weighted", moved);
  out += score_line("current", m.current, "on itself");
  out += score_line("duplicate", m.duplicate, "on the same token earlier, in rows that have one");
  out += score_line("induction", m.induction, "on what followed the same token earlier");
  out += score_line("entropy", m.entropy, "(0 = one token alone, 1 = all tokens equally)");
  out += format_text("  {:<18} {:.2f}  tokens that it looks at\n", "effective tokens",
                     m.effective_tokens);
  out += format_text("  {:<18} {:.3f} largest weight of a row\n", "confidence", m.confidence);
  out += format_text("  {:<18} {:.2f}  tokens back\n", "distance", m.distance);
  if (!head.probe) return out;
  out += format_text("on the probe, {} random tokens twice, {} draws, seed {}\n",
                     report.probe->length, report.probe->draws, report.probe->seed);
  out += score_line("duplicate", head.probe->duplicate, "on the same token of the first copy");
  return out + score_line("induction", head.probe->induction, "on the token after it");
}

}  // namespace

std::string look_at_head(const LookReport& report, const HeadPlace& place,
                         const TerminalStyle& style) {
  const HeadReport& head = report.at(place);
  std::string out = bold(format_text("layer {} head {}", place.layer, place.head), style);
  for (const LabelScore& label : head.labels) {
    out += format_text("  {} {:.2f}", name(label.label), label.score);
  }
  const auto width = static_cast<std::size_t>(style.width);
  out += format_text("\n{}\n", headline(head));
  const std::string most = looks_most_at(report, place, report.recording->tokens() - 1);
  if (!most.empty()) out += wrapped(most, width);
  out += format_text("row = query, looks at {} column = key\n", style.utf8 ? "→" : "->");
  out += map_reason(report, style);
  const dim_t tokens = report.recording->tokens();
  const dim_t room = style.width - kLabel;
  const bool fits = tokens * kNumber + 12 <= room;
  if (fits) {
    out += "\n" + numbers_matrix(report, place, style);
  } else {
    out += legend(style) + "\n";
    const dim_t cells = std::min(tokens, room);
    if (cells < tokens) {
      out += format_text("a cell shows the largest weight of about {0} x {0}; --json has all\n",
                         (tokens + cells - 1) / cells);
    }
    out += "\n" + shades_matrix(report, place, cells, style);
  }
  out += "\n" + metrics_table(report, head);
  return out + "\nA label is a pattern of the weights, not an effect on the output.\n";
}

}  // namespace cephalo::cli
