#include "cephalo/view/opening_head.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "cephalo/view/look.h"

namespace cephalo {
namespace {

constexpr double kTellsOfNext = 0.3;  // from here on, the last token looks at what comes next
constexpr double kLeastScore = 0.01;

std::string_view trimmed(std::string_view piece) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const std::size_t begin = piece.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return piece.substr(begin, piece.find_last_not_of(kSpace) + 1 - begin);
}

// The highest score of its labels that are among these.
double score_of(const HeadReport& head, const std::vector<HeadLabel>& labels) {
  double most = 0.0;
  for (const LabelScore& each : head.labels) {
    const bool counts = std::find(labels.begin(), labels.end(), each.label) != labels.end();
    if (counts) most = std::max(most, each.score);
  }
  return most;
}

// Of several with the same score the first.
template <typename ScoreOf>
const HeadReport* best(const std::vector<HeadReport>& heads, double least, const ScoreOf& score) {
  const HeadReport* found = nullptr;
  double most = least;
  for (const HeadReport& head : heads) {
    const double value = score(head);
    if (value > most || (value == most && found == nullptr)) {
      found = &head;
      most = value;
    }
  }
  return found;
}

bool has(const HeadReport& head, HeadLabel label) {
  return std::any_of(head.labels.begin(), head.labels.end(),
                     [&](const LabelScore& each) { return each.label == label; });
}

}  // namespace

HeadPlace opening_head(const std::vector<HeadReport>& heads, const OpeningText& text) {
  std::vector<dim_t> copies;
  for (dim_t j = 1; j < std::ssize(text.pieces); ++j) {
    if (trimmed(text.pieces[static_cast<std::size_t>(j)]) == trimmed(text.next)) {
      copies.push_back(j);
    }
  }
  const auto on_copies = [&](const HeadReport& head) {
    if (head.labels.empty() || copies.empty()) return 0.0;
    const Tensor weights = text.last_weights({head.layer, head.head});
    double sum = 0.0;
    for (const dim_t j : copies) sum += weights.at({j});
    return sum;
  };
  const HeadReport* found = best(heads, kTellsOfNext, on_copies);
  const std::vector<HeadLabel> in_turn[] = {
      {HeadLabel::previous},
      {HeadLabel::induction, HeadLabel::duplicate, HeadLabel::current},
      {HeadLabel::sink, HeadLabel::diffuse}};
  for (const auto& labels : in_turn) {
    if (found != nullptr) break;
    found =
        best(heads, kLeastScore, [&](const HeadReport& head) { return score_of(head, labels); });
  }
  return found == nullptr ? HeadPlace{0, 0} : HeadPlace{found->layer, found->head};
}

HeadPlace opening_head(const LookReport& report) {
  OpeningText text;
  for (const LookToken& token : report.tokens) text.pieces.push_back(token.piece);
  if (!report.predictions.empty()) text.next = report.predictions.front().token.piece;
  const auto tokens = std::ssize(report.tokens);
  text.last_weights = [&](const HeadPlace& place) {
    return report.recording
        ->weights(place.layer, {.heads = {place.head}, .rows = {report.recording->tokens() - 1}})
        .reshaped({tokens});
  };
  return opening_head(report.heads, text);
}

// Induction goes before sink: sink is what such a head does when idle.
const char* headline(const HeadReport& head) {
  constexpr std::pair<HeadLabel, const char*> kHeadlines[] = {
      {HeadLabel::induction, "Looks at what followed this token last time"},
      {HeadLabel::previous, "Looks at the token before"},
      {HeadLabel::duplicate, "Looks at the same token, earlier"},
      {HeadLabel::current, "Looks at itself"},
      {HeadLabel::sink, "Rests on the first token"},
      {HeadLabel::diffuse, "Looks at everything equally"}};
  for (const auto& [label, words] : kHeadlines) {
    if (has(head, label)) return words;
  }
  return "No simple pattern";
}

}  // namespace cephalo
