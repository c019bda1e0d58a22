
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/text/piece_text.h"
#include "cli/look_grid.h"
#include "cli/look_views.h"
#include "cli/look_words.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kMostListed = 48;  // tokens in the table at the top

std::string in_short(const Score& score) {
  return score.rows > 0 ? short_weight(score.value) : "-";
}

std::string headline(const LookReport& report, const TerminalStyle& style) {
  const std::string what = cut(format_text("{}: {} layers x {} heads", printable(report.model),
                                           report.num_layers(), report.num_heads()),
                               static_cast<std::size_t>(style.width), style.utf8);
  const auto width = static_cast<std::size_t>(style.width);
  const std::string text = cut(on_one_line(report.text), width, style.utf8);
  const std::size_t used = display_width(text) + display_width(what);
  const std::string note = training_note(report.trained_context_length, std::ssize(report.tokens));
  const std::string below = "\n" + (note.empty() ? note : wrapped(note, width));
  if (used + 2 > width) return bold(text, style) + "\n" + what + below;
  return bold(text, style) + std::string(width - used, ' ') + what + below;
}

// Index, piece and id of each token, below each other, in as many bands as the width asks for.
std::string token_table(const LookReport& report, const TerminalStyle& style) {
  const std::vector<std::int64_t>& ids = report.recording->ids();
  const dim_t listed = report.recording->tokens() > kMostListed ? kMostListed / 2 : std::ssize(ids);
  const char* kRows[] = {"index  ", "token  ", "id     "};
  std::string table;
  std::string lines[] = {"", "", ""};
  const auto flush = [&] {
    for (int row = 0; row < 3 && !lines[row].empty(); ++row) {
      table += without_end(kRows[row] + lines[row]);
    }
    for (std::string& line : lines) line.clear();
  };
  for (dim_t k = 0; k < listed; ++k) {
    const auto at = static_cast<std::size_t>(k);
    const std::string piece = cut(in_quotes(report.tokens[at].piece), 20, style.utf8);
    const std::string id = std::to_string(ids[at]);
    const std::size_t width =
        std::max({display_width(piece), id.size(), std::to_string(k).size()}) + 2;
    if (display_width(lines[0]) + width + 7 > static_cast<std::size_t>(style.width) + 2) {
      flush();
      table += "\n";
    }
    lines[0] += padded(std::to_string(k), width);
    lines[1] += padded(piece, width);
    lines[2] += padded(id, width);
  }
  flush();
  if (listed < std::ssize(ids)) {
    table += wrapped(format_text("the first {} of {} tokens; cephalo tokenize lists them all",
                                 listed, ids.size()),
                     static_cast<std::size_t>(style.width));
  }
  if (report.begun) {
    table +=
        wrapped(format_text("{} was prepended, as every text starts with it; --no-begin omits it",
                            report.tokens[0].label),
                static_cast<std::size_t>(style.width));
  }
  return table;
}

std::string next_tokens(const LookReport& report, const TerminalStyle& style) {
  std::string out = bold("next token", style) + "\n";
  std::size_t width = 0;
  for (const LookPrediction& p : report.predictions) {
    width = std::max(width, display_width(in_quotes(p.token.piece)));
  }
  constexpr dim_t kLongest = 30, kBeside = 14;  // indent, gaps and percent
  const dim_t bar =
      std::clamp(style.width - static_cast<dim_t>(width) - kBeside, dim_t{1}, kLongest);
  for (const LookPrediction& p : report.predictions) {
    out += format_text("  {}  {:5.1f} %  {}\n", padded(in_quotes(p.token.piece), width),
                       100.0 * p.probability, draw_bar(p.probability, bar, style));
  }
  return out;
}

// Where the scores of induction and duplicate come from.
std::string probe_note(const LookReport& report, const TerminalStyle& style) {
  const std::string note =
      report.probe ? format_text(
                         "Induction and duplicate are measured on {} random tokens, given "
                         "twice; {} draws, seed {}.",
                         report.probe->length, report.probe->draws, report.probe->seed)
                   : "Induction and duplicate need a context of 51 tokens to be measured.";
  return wrapped(note, static_cast<std::size_t>(style.width));
}

std::string labels_in_words(const HeadReport& head) {
  std::string words;
  for (const LabelScore& label : head.labels) {
    words += format_text("{}{} {:.2f}", words.empty() ? "" : ", ", name(label.label), label.score);
  }
  return words;
}

// The line of a head in the table of numbers, its labels and its strongest links.
std::string numbers_of(const LookReport& report, const HeadReport& head,
                       const TerminalStyle& style) {
  constexpr dim_t kMostLinks = 12;
  const HeadMetrics& m = head.text;
  const auto both = [&](const Score& here, const Score ProbeScores::*probe) {
    return (head.probe ? in_short((*head.probe).*probe) : "-") + "/" + in_short(here);
  };
  std::string out = format_text(
      "{:<7}{:>8} {:>4} {:>7} {:>9} {:>9} {:>7} {:>6.1f} {:>7} {:>8.1f}\n", place_name(head),
      in_short(m.previous), in_short(m.first), in_short(m.current),
      both(m.duplicate, &ProbeScores::duplicate), both(m.induction, &ProbeScores::induction),
      in_short(m.entropy), m.effective_tokens, short_weight(m.confidence), m.distance);
  if (!head.labels.empty()) out += "  " + bold(labels_in_words(head), style) + "\n";
  const auto links = strongest_links(*report.recording, {head.layer, head.head}, kMostLinks);
  return out + "  " + links_line(report, links, style) + "\n";
}

}  // namespace

std::string look_at_model(const LookReport& report, const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(style.width);
  const std::vector<const HeadReport*> shown =
      heads_to_show(report, maps_in_a_row(report, style.width));
  std::string out = headline(report, style) + token_table(report, style) + "\n";
  out += what_one_sees(report, style) + map_reason(report, style) + "\n";
  out += map_caption(report, std::ssize(shown), style) + draw_maps(report, shown, style);
  out += letter_table(report, style) + label_lines(report, style) + "\n" +
         next_tokens(report, style) + "\n";
  return out + wrapped(kDisclaimer, width) +
         wrapped("next: --effects (what they do), --all (every map), --token WORD, --png, --json",
                 width);
}

std::string look_at_heads(const LookReport& report, std::optional<dim_t> layer,
                          const TerminalStyle& style) {
  std::string out = headline(report, style) + map_reason(report, style) + "\n";
  out += map_caption(report, report.recording->num_heads(), style) + "\n";
  std::string table = bold(
      "       previous sink current duplicate induction entropy tokens largest distance", style);
  table += "\n";
  for (dim_t l = layer.value_or(0); l < (layer ? *layer + 1 : report.recording->num_layers());
       ++l) {
    std::vector<const HeadReport*> heads;
    for (dim_t h = 0; h < report.recording->num_heads(); ++h) heads.push_back(&report.at({l, h}));
    out += draw_maps(report, heads, style);
    for (const HeadReport* head : heads) table += numbers_of(report, *head, style);
  }
  out += table + "\n" +
         wrapped(
             "Mean weight on the token before (previous), the first (sink) and itself (current); "
             "duplicate and induction on the probe and on this text; entropy (0 = one token alone, "
             "1 = all tokens equally), and as a number of tokens; the largest weight of a row; how "
             "many tokens back it looks.",
             static_cast<std::size_t>(style.width));
  return out + wrapped(kDisclaimer, static_cast<std::size_t>(style.width)) +
         probe_note(report, style);
}

std::string look_at_token(const LookReport& report, dim_t token, std::optional<dim_t> layer,
                          const TerminalStyle& style) {
  const auto at = [&](dim_t k) { return static_cast<std::size_t>(k); };
  std::string out = headline(report, style);
  out +=
      format_text("what token {} {} looks at\n", token, in_quotes(report.tokens[at(token)].piece));
  std::string others;
  for (dim_t k = 0; k < report.recording->tokens(); ++k) {
    if (k == token || report.recording->ids()[at(k)] != report.recording->ids()[at(token)])
      continue;
    others += format_text("{}--token {}", others.empty() ? "" : ", ", k);
  }
  if (!others.empty()) out += format_text("it is in the text more than once: {}\n", others);
  out += map_reason(report, style);
  out += "\n";
  for (dim_t l = layer.value_or(0); l < (layer ? *layer + 1 : report.recording->num_layers());
       ++l) {
    const Tensor weights = map_weights(*report.recording, l, {.rows = {token}}, report.maps);
    for (dim_t h = 0; h < weights.dim(0); ++h) {
      std::vector<dim_t> keys(at(token + 1));
      for (dim_t j = 0; j <= token; ++j) keys[at(j)] = j;
      std::erase_if(keys, [&](dim_t j) { return std::isnan(weights.at({h, 0, j})); });
      std::stable_sort(keys.begin(), keys.end(), [&](dim_t a, dim_t b) {
        return weights.at({h, 0, a}) > weights.at({h, 0, b});
      });
      std::string line;
      std::size_t used = 8;
      for (const dim_t j : keys) {
        const double weight = weights.at({h, 0, j});
        const std::string label = cut(report.tokens[at(j)].label, 14, style.utf8);
        const std::string cell = format_text(" {} {} ", label, short_weight(weight));
        used += display_width(cell);
        if (used > static_cast<std::size_t>(style.width)) break;
        line += painted(cell, weight, style);
      }
      out += without_end(format_text("{:<7}{}", place_name(l, h), line));
    }
  }
  return out;
}

}  // namespace cephalo::cli
