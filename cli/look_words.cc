#include "cli/look_words.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "cephalo/core/format.h"
#include "cephalo/text/piece_text.h"
#include "cephalo/view/opening_head.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr std::size_t kIndent = 2;      // of links
constexpr dim_t kMostLinks = 12;        // tried for one line
constexpr double kFaintestLink = 0.05;  // below, a map shows nothing either

std::string link_text(const LookReport& report, const Link& link, const TerminalStyle& style) {
  constexpr std::size_t kLongest = 9;
  const auto label = [&](dim_t token) {
    return cut(report.tokens[static_cast<std::size_t>(token)].label, kLongest, style.utf8);
  };
  return format_text("{} {} {} {}", label(link.query), style.utf8 ? "→" : "->", label(link.key),
                     short_weight(link.weight));
}

// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t k = 0; k < words.size(); ++k) {
    out += (k == 0 ? "" : k + 1 == words.size() ? " and " : ", ") + words[k];
  }
  return out;
}

// The scores of a label, and what they say of this text.
std::vector<std::string> scores_in_words(const LookReport& report, const LabelExample& example,
                                         HeadLabel label) {
  if (label == HeadLabel::sink) {
    const HeadReport& head = *example.head;
    const double share = first_token_share(*report.recording, {head.layer, head.head});
    return {format_text("{:.2f} on the first token,", example.label_score),
            format_text("{:.2f} of what it adds", share)};
  }
  const std::string score = format_text("{:.2f}", example.label_score);
  if (!comes_from_probe(label)) return {score};
  if (example.here.rows == 0) return {score + " on the probe;", "nothing repeats here"};
  const std::string here = format_text("{:.2f} here,", example.here.value);
  if (example.used) return {here, score + " on the probe"};
  return {here, score + " on the probe:", "not used by this text"};
}

std::string links_of(const LookReport& report, const LabelExample& example, HeadLabel label,
                     const TerminalStyle& style) {
  // All of a sink's lead to one token, and none of a diffuse head stands out.
  if (!example.used || label == HeadLabel::sink || label == HeadLabel::diffuse) return "";
  std::vector<Link> links = counted_links(
      *report.recording, {example.head->layer, example.head->head}, label, kMostLinks);
  std::erase_if(links, [](const Link& link) { return link.weight < kFaintestLink; });
  const std::string line = links_line(report, links, style);
  return line.empty() ? "" : std::string(kIndent, ' ') + line + "\n";
}

}  // namespace

std::string place_name(dim_t layer, dim_t head) {
  return format_text("L{} H{}", layer, head);
}
std::string place_name(const HeadReport& head) {
  return place_name(head.layer, head.head);
}

std::string letter_of(HeadLabel label, const TerminalStyle& style) {
  constexpr const char* kLetters[] = {"P", "I", "=", "S", "C", "≈"};
  if (label == HeadLabel::diffuse && !style.utf8) return "~";
  return kLetters[static_cast<int>(label)];
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

std::string links_line(const LookReport& report, const std::vector<Link>& strongest_first,
                       const TerminalStyle& style) {
  std::vector<Link> chosen;
  std::set<std::string> said;  // a text that repeats itself has the same link more than once
  std::size_t used = kIndent;
  for (const Link& link : strongest_first) {
    const std::string words = link_text(report, link, style);
    if (!said.insert(words).second) continue;
    used += display_width(words) + 3;
    if (used > static_cast<std::size_t>(style.width) + 3) break;
    chosen.push_back(link);
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Link& a, const Link& b) { return a.query < b.query; });
  std::string line;
  for (const Link& link : chosen)
    line += (line.empty() ? "" : "   ") + link_text(report, link, style);
  return line;
}

std::string what_one_sees(const LookReport& report, const TerminalStyle& style) {
  std::string text = format_text(
      "Each map is one head: a row is a token, and the {} a cell, the more it looks at the token "
      "of "
      "that column. ",
      style.colours != ColourDepth::none ? "brighter" : "denser");
  std::vector<std::string> seen;
  for (const HeadLabel label : kHeadLabels) {
    if (label == HeadLabel::sink || label == HeadLabel::diffuse) continue;
    const std::vector<LabelExample> examples = label_examples(report.heads, label);
    if (examples.empty() || !examples.front().used) continue;
    seen.push_back(format_text("{}{} {}", place_name(*examples.front().head),
                               seen.empty() ? " looks" : "", in_words(label)));
  }
  text += seen.empty() ? "No named pattern stands out here" : "Here " + listed(seen);
  if (!report.predictions.empty()) {
    const LookPrediction& next = report.predictions.front();
    text += format_text("; the likeliest next token is {} ({:.0f} %)", in_quotes(next.token.piece),
                        100.0 * next.probability);
  }
  const auto [layer, head] = opening_head(report);
  text +=
      format_text(". Start with {} (--layer {} --head {})", place_name(layer, head), layer, head);
  return wrapped(text + ".", static_cast<std::size_t>(style.width));
}

std::string looks_most_at(const LookReport& report, const HeadPlace& place, dim_t query) {
  const Tensor row = map_weights(*report.recording, place.layer,
                                 {.heads = {place.head}, .rows = {query}}, report.maps);
  const auto seen = [&](dim_t j) { return !std::isnan(row.at({0, 0, j})); };
  std::optional<dim_t> most;
  for (dim_t j = 0; j <= query; ++j) {
    if (seen(j) && (!most || row.at({0, 0, j}) > row.at({0, 0, *most}))) most = j;
  }
  if (!most) return "";
  const auto named = [&](dim_t token) {
    return format_text("{} {}", report.tokens[static_cast<std::size_t>(token)].label, token);
  };
  return format_text("{} looks most at {} ({:.4f})", named(query),
                     *most == query ? "itself" : named(*most), row.at({0, 0, *most}));
}

std::string map_reason(const LookReport& report, const TerminalStyle& style) {
  if (report.maps.plain()) return "";
  return wrapped(reason(report.maps), static_cast<std::size_t>(style.width));
}

std::string label_lines(const LookReport& report, const TerminalStyle& style) {
  constexpr std::size_t kColumn = 13;
  std::string out;
  for (const HeadLabel label : kHeadLabels) {
    const std::vector<LabelExample> examples = label_examples(report.heads, label);
    if (examples.empty()) continue;
    std::vector<std::string> words = scores_in_words(report, examples.front(), label);
    if (examples.size() > 1) words.push_back(format_text("(and {} more)", examples.size() - 1));
    out += letter_of(label, style) + " " + bold(format_text("{:<10}", name(label)), style) + " " +
           in_lines(place_name(*examples.front().head), words, kColumn,
                    static_cast<std::size_t>(style.width)) +
           "\n" + links_of(report, examples.front(), label, style);
  }
  return out.empty() ? "no head shows a named pattern here\n" : out;
}

}  // namespace cephalo::cli
