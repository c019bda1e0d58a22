#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/look_run.h"
#include "cli/pieces.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kNarrowestMap = 9;  // "induction"
constexpr dim_t kMostListed = 48;   // tokens in the table at the top
constexpr std::size_t kIndent = 2;
constexpr const char* kDisclaimer =
    "A label is a pattern of the weights, not an effect on the output.";

std::string place_name(dim_t layer, dim_t head) {
  return fmt::format("L{} H{}", layer, head);
}

std::string in_short(const Score& score) {
  return score.rows > 0 ? short_weight(score.value) : "-";
}

std::string padded(const std::string& text, std::size_t shown, std::size_t width) {
  return text + std::string(width - std::min(width, shown), ' ');
}
std::string padded(const std::string& text, std::size_t width) {
  return padded(text, display_width(text), width);
}

std::string without_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string headline(const LookRun& run, const TerminalStyle& style) {
  const GptOptions& o = run.model.gpt.options();
  const std::string what = cut(
      fmt::format("{}: {} layers x {} heads", printable(run.model_name), o.num_layers, o.num_heads),
      static_cast<std::size_t>(style.width), style.utf8);
  const auto width = static_cast<std::size_t>(style.width);
  const std::string text = cut(printable(run.text), width, style.utf8);
  const std::size_t used = display_width(text) + display_width(what);
  if (used + 2 > width) return bold(text, style) + "\n" + what + "\n";
  return bold(text, style) + std::string(width - used, ' ') + what + "\n";
}

// Index, piece and id of each token, below each other, in as many bands as the width asks for.
std::string token_table(const LookRun& run, const TerminalStyle& style) {
  const std::vector<std::int64_t>& ids = run.recording.ids();
  const dim_t listed = run.recording.tokens() > kMostListed ? kMostListed / 2 : std::ssize(ids);
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
    const std::string piece = cut(run.pieces[at], 20, style.utf8);
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
    table += wrapped(fmt::format("the first {} of {} tokens; cephalo tokenize lists them all",
                                 listed, ids.size()),
                     static_cast<std::size_t>(style.width));
  }
  if (run.begun) {
    table +=
        wrapped(fmt::format("{} was put before the text: it begins one; --no-begin leaves it out",
                            run.labels[0]),
                static_cast<std::size_t>(style.width));
  }
  return table;
}

// The columns of one head in the grid of all.
struct GridCell {
  std::string name;
  std::vector<std::string> labels;
  std::vector<std::string> map;
};

GridCell grid_cell(const LookRun& run, const HeadReport& head, dim_t cells,
                   const TerminalStyle& style) {
  GridCell cell{fmt::format("H{}", head.head), {}, {}};
  std::vector<LabelScore> labels = head.labels;
  std::stable_sort(labels.begin(), labels.end(),
                   [](const LabelScore& a, const LabelScore& b) { return a.score > b.score; });
  if (!labels.empty()) cell.name += " " + short_weight(labels[0].score);
  for (const LabelScore& label : labels) cell.labels.emplace_back(name(label.label));
  cell.map = draw_map(run.recording.pooled(head.layer, head.head, cells).largest, style);
  return cell;
}

std::string draw_grid_row(const std::vector<GridCell>& row, dim_t column, dim_t cells,
                          const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(column);
  std::size_t labels = 0;
  for (const GridCell& cell : row) labels = std::max(labels, cell.labels.size());
  std::string out;
  std::string line;
  for (const GridCell& cell : row) line += padded(cell.name, width);
  out += without_end(line);
  for (std::size_t k = 0; k < labels; ++k) {
    line.clear();
    for (const GridCell& cell : row) {
      const std::string label = k < cell.labels.size() ? cell.labels[k] : "";
      line += padded(bold(label, style), label.size(), width);
    }
    out += without_end(line);
  }
  for (std::size_t k = 0; k < row[0].map.size(); ++k) {
    line.clear();
    for (const GridCell& cell : row) {
      line += padded(cell.map[k], static_cast<std::size_t>(cells), width);
    }
    out += without_end(line);
  }
  return out;
}

std::string draw_grid(const LookRun& run, const TerminalStyle& style) {
  const dim_t num_heads = run.recording.num_heads();
  const dim_t per_row = std::clamp<dim_t>(style.width / (kNarrowestMap + 1), 1, num_heads);
  const dim_t widest = std::max(run.recording.tokens(), kNarrowestMap) + 1;
  const dim_t column = std::clamp(style.width / per_row, kNarrowestMap + 1, widest);
  const dim_t cells = std::min(run.recording.tokens(), column - 1);
  const char* arrow = style.utf8 ? "→" : "->";
  std::string out = fmt::format("row = query, looks at {} column = key", arrow);
  out += (style.width < 70 ? "\n" : "   ") + legend(style) + "\n";
  if (cells < run.recording.tokens()) {
    out += wrapped(fmt::format("a cell shows the largest weight of about {0} x {0}",
                               (run.recording.tokens() + cells - 1) / cells),
                   static_cast<std::size_t>(style.width));
  }
  std::vector<GridCell> row;
  for (const HeadReport& head : run.heads) {
    if (head.head == 0) out += "\n" + bold(fmt::format("layer {}", head.layer), style) + "\n";
    row.push_back(grid_cell(run, head, cells, style));
    if (std::ssize(row) < per_row && head.head + 1 < num_heads) continue;
    out += draw_grid_row(row, column, cells, style);
    row.clear();
  }
  return out + "\n";
}

std::string link_text(const LookRun& run, const Link& link, const TerminalStyle& style) {
  constexpr std::size_t kLongest = 9;
  const auto label = [&](dim_t token) {
    return cut(run.labels[static_cast<std::size_t>(token)], kLongest, style.utf8);
  };
  return fmt::format("{} {} {} {}", label(link.query), style.utf8 ? "→" : "->", label(link.key),
                     short_weight(link.weight));
}

// Where a head looks while it has nothing to find is no example of what it finds.
bool looks_for_repeats(HeadLabel label) {
  return label == HeadLabel::induction || label == HeadLabel::duplicate;
}

// The strongest links that fit, in the order of the text.
std::string links_line(const LookRun& run, const HeadPlace& place, bool without_first,
                       const TerminalStyle& style) {
  constexpr dim_t kMost = 12;
  const dim_t most = without_first ? run.recording.tokens() + kMost : kMost;
  std::vector<Link> chosen;
  std::size_t used = kIndent;
  for (const Link& link : strongest_links(run.recording, place, most)) {
    if (without_first && link.key == 0) continue;
    used += display_width(link_text(run, link, style)) + 3;
    if (used > static_cast<std::size_t>(style.width) + 3) break;
    chosen.push_back(link);
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Link& a, const Link& b) { return a.query < b.query; });
  std::string line;
  for (const Link& link : chosen) line += (line.empty() ? "" : "   ") + link_text(run, link, style);
  return line;
}

// The score on this text of a label that comes from the probe.
const Score& score_here(const HeadReport& head, HeadLabel label) {
  return label == HeadLabel::induction ? head.text.induction : head.text.duplicate;
}

// Beside the score of a label: what else is known of it.
std::vector<std::string> remarks(const LookRun& run, const HeadReport& head, HeadLabel label) {
  if (label == HeadLabel::sink) {
    const std::vector<double> shares = first_token_share(run.recording, head.layer);
    return {"on the first token,",
            fmt::format("{:.2f} of what it adds", shares[static_cast<std::size_t>(head.head)])};
  }
  if (!looks_for_repeats(label)) return {};
  const Score& here = score_here(head, label);
  if (here.rows == 0) return {"on the probe;", "nothing repeats here"};
  return {"on the probe,", fmt::format("{:.2f} here", here.value)};
}

// Words in lines of at most `width` columns, the next ones indented.
std::string in_lines(const std::string& begin, const std::vector<std::string>& words,
                     std::size_t indent, std::size_t width) {
  std::string out = begin;
  std::size_t used = indent + display_width(begin);
  for (const std::string& word : words) {
    if (used + 1 + display_width(word) > width) {
      out += "\n" + std::string(indent, ' ') + word;
      used = indent + display_width(word);
    } else {
      out += " " + word;
      used += 1 + display_width(word);
    }
  }
  return out;
}

// The heads that have a label, the clearest first.
std::vector<std::pair<double, const HeadReport*>> heads_with(const LookRun& run, HeadLabel label) {
  std::vector<std::pair<double, const HeadReport*>> found;
  for (const HeadReport& head : run.heads) {
    for (const LabelScore& each : head.labels) {
      if (each.label == label) found.emplace_back(each.score, &head);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return found;
}

// The head that shows a pattern most clearly, for every pattern that there is.
std::string best_heads(const LookRun& run, const TerminalStyle& style) {
  std::string out;
  for (const HeadLabel label : kHeadLabels) {
    const auto found = heads_with(run, label);
    if (found.empty()) continue;
    const auto& [score, head] = found.front();
    std::vector<std::string> words = remarks(run, *head, label);
    if (found.size() > 1) {
      words.push_back(fmt::format("(and {} more)", found.size() - 1));
    }
    constexpr std::size_t kColumn = 11;
    out += bold(fmt::format("{:<10}", name(label)), style) + " " +
           in_lines(fmt::format("{} {:.2f}", place_name(head->layer, head->head), score), words,
                    kColumn, static_cast<std::size_t>(style.width)) +
           "\n";
    if (label == HeadLabel::diffuse) continue;  // it has no strong links
    if (looks_for_repeats(label) && score_here(*head, label).rows == 0) continue;
    out +=
        "  " + links_line(run, {head->layer, head->head}, looks_for_repeats(label), style) + "\n";
  }
  return out.empty() ? "no head shows a pattern that has a name here\n" : out;
}

std::string next_tokens(const LookRun& run, const TerminalStyle& style) {
  std::string out = bold("next token", style) + "\n";
  std::size_t width = 0;
  for (const Prediction& p : run.predictions) {
    width = std::max(width, display_width(in_quotes(run.model.piece(p.id))));
  }
  constexpr dim_t kLongest = 30, kBeside = 14;  // indent, gaps and percent
  const dim_t bar =
      std::clamp(style.width - static_cast<dim_t>(width) - kBeside, dim_t{1}, kLongest);
  for (const Prediction& p : run.predictions) {
    out += fmt::format("  {}  {:5.1f} %  {}\n", padded(in_quotes(run.model.piece(p.id)), width),
                       100.0 * p.probability, draw_bar(p.probability, bar, style));
  }
  return out;
}

std::string notes(const LookRun& run, const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(style.width);
  if (!run.probe) {
    return wrapped(kDisclaimer, width) +
           wrapped("Induction and duplicate need a context of 51 tokens to be probed for.", width);
  }
  const std::string probe =
      fmt::format("Induction and duplicate come from {} random tokens, twice; {} draws, seed {}.",
                  run.probe->length, run.probe->draws, run.probe->seed);
  return wrapped(kDisclaimer, width) + wrapped(probe, width);
}

std::string labels_in_words(const HeadReport& head) {
  std::string words;
  for (const LabelScore& label : head.labels) {
    words += fmt::format("{}{} {:.2f}", words.empty() ? "" : ", ", name(label.label), label.score);
  }
  return words;
}

}  // namespace

std::string look_at_model(const LookRun& run, const TerminalStyle& style) {
  std::string out = headline(run, style) + "\n" + token_table(run, style) + "\n";
  out += draw_grid(run, style);
  out += best_heads(run, style) + "\n" + next_tokens(run, style) + "\n";
  out += notes(run, style);
  return out + wrapped("next: --layer 0 --head 0 | --token WORD | --all | --png FILE | --json",
                       static_cast<std::size_t>(style.width));
}

std::string look_at_heads(const LookRun& run, std::optional<dim_t> layer,
                          const TerminalStyle& style) {
  std::string out = headline(run, style) + "\n";
  out += bold("         before first itself duplicate induction entropy tokens largest distance",
              style) +
         "\n";
  for (const HeadReport& head : run.heads) {
    if (layer && head.layer != *layer) continue;
    const HeadMetrics& m = head.text;
    const auto both = [&](const Score& here, const Score ProbeScores::*probe) {
      return (head.probe ? in_short((*head.probe).*probe) : "-") + "/" + in_short(here);
    };
    out += fmt::format("{:<8} {:>6} {:>5} {:>6} {:>9} {:>9} {:>7} {:>6.1f} {:>7} {:>8.1f}\n",
                       place_name(head.layer, head.head), in_short(m.previous), in_short(m.first),
                       in_short(m.current), both(m.duplicate, &ProbeScores::duplicate),
                       both(m.induction, &ProbeScores::induction), in_short(m.entropy),
                       m.effective_tokens, short_weight(m.confidence), m.distance);
    if (!head.labels.empty()) out += "  " + bold(labels_in_words(head), style) + "\n";
    out += "  " + links_line(run, {head.layer, head.head}, false, style) + "\n";
  }
  out += "\n" + wrapped(
                    "Mean weight on the token before, the first, itself; duplicate and induction "
                    "on the probe and on this text; entropy over its largest possible, and as "
                    "a number of tokens; the largest weight of a row; how far back it looks.",
                    static_cast<std::size_t>(style.width));
  return out + notes(run, style);
}

std::string look_at_token(const LookRun& run, dim_t token, std::optional<dim_t> layer,
                          const TerminalStyle& style) {
  const auto at = [&](dim_t k) { return static_cast<std::size_t>(k); };
  std::string out = headline(run, style);
  out += fmt::format("what token {} {} looks at\n", token, run.pieces[at(token)]);
  std::string others;
  for (dim_t k = 0; k < run.recording.tokens(); ++k) {
    if (k == token || run.recording.ids()[at(k)] != run.recording.ids()[at(token)]) continue;
    others += fmt::format("{}--token {}", others.empty() ? "" : ", ", k);
  }
  if (!others.empty()) out += fmt::format("it is in the text more than once: {}\n", others);
  out += "\n";
  for (dim_t l = layer.value_or(0); l < (layer ? *layer + 1 : run.recording.num_layers()); ++l) {
    const Tensor weights = run.recording.weights(l, {.rows = {token}});
    for (dim_t h = 0; h < weights.dim(0); ++h) {
      std::vector<dim_t> keys(at(token + 1));
      for (dim_t j = 0; j <= token; ++j) keys[at(j)] = j;
      std::stable_sort(keys.begin(), keys.end(), [&](dim_t a, dim_t b) {
        return weights.at({h, 0, a}) > weights.at({h, 0, b});
      });
      std::string line;
      std::size_t used = 8;
      for (const dim_t j : keys) {
        const double weight = weights.at({h, 0, j});
        const std::string label = cut(run.labels[at(j)], 14, style.utf8);
        const std::string cell = fmt::format(" {} {} ", label, short_weight(weight));
        used += display_width(cell);
        if (used > static_cast<std::size_t>(style.width)) break;
        line += painted(cell, weight, style);
      }
      out += without_end(fmt::format("{:<7}{}", place_name(l, h), line));
    }
  }
  return out;
}

}  // namespace cephalo::cli
