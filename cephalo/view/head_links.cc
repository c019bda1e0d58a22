#include "cephalo/view/head_links.h"

#include <algorithm>
#include <optional>

#include "cephalo/view/row_blocks.h"

namespace cephalo {
namespace {

constexpr double kUsedScore = 0.2;  // below, a head that could is busy with something else

// Does the score of a label count the weight of query i on key j?
bool counts(HeadLabel label, const std::vector<std::int64_t>& ids, dim_t i, dim_t j) {
  const auto id = [&](dim_t at) { return ids[static_cast<std::size_t>(at)]; };
  switch (label) {
    case HeadLabel::previous:
      return j == i - 1;
    case HeadLabel::induction:
      return 1 <= j && j < i && id(j - 1) == id(i);
    case HeadLabel::duplicate:
      return j < i && id(j) == id(i);
    case HeadLabel::sink:
      return j == 0;
    case HeadLabel::current:
      return j == i;
    case HeadLabel::diffuse:
      return false;
  }
  return false;
}

// Of each query the strongest link for which `wanted(query, key)`; of these the first `count`.
template <typename Wanted>
std::vector<Link> links_where(const Recording& recording, const HeadPlace& place, dim_t count,
                              const Wanted& wanted) {
  std::vector<Link> links;
  const auto look_at_rows = [&](const Tensor& weights, const std::vector<dim_t>& rows) {
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const double* row = weights.data_as<double>() + static_cast<dim_t>(k) * weights.dim(2);
      std::optional<Link> link;
      for (dim_t j = 0; j < weights.dim(2); ++j) {
        if (wanted(rows[k], j) && (!link || row[j] > link->weight)) link = {rows[k], j, row[j]};
      }
      if (link) links.push_back(*link);
    }
  };
  for_row_blocks(recording, place.layer, {place.head}, look_at_rows);
  std::stable_sort(links.begin(), links.end(),
                   [](const Link& a, const Link& b) { return a.weight > b.weight; });
  links.resize(std::min(links.size(), static_cast<std::size_t>(std::max<dim_t>(count, 0))));
  return links;
}

}  // namespace

std::vector<Link> strongest_links(const Recording& recording, const HeadPlace& place, dim_t count) {
  return links_where(recording, place, count, [](dim_t, dim_t) { return true; });
}

std::vector<Link> counted_links(const Recording& recording, const HeadPlace& place, HeadLabel label,
                                dim_t count) {
  return links_where(recording, place, count,
                     [&](dim_t i, dim_t j) { return counts(label, recording.ids(), i, j); });
}

const Score& score_on_text(const HeadMetrics& text, HeadLabel label) {
  constexpr Score HeadMetrics::*kScores[] = {&HeadMetrics::previous,  &HeadMetrics::induction,
                                             &HeadMetrics::duplicate, &HeadMetrics::first,
                                             &HeadMetrics::current,   &HeadMetrics::entropy};
  return text.*kScores[static_cast<int>(label)];
}

bool comes_from_probe(HeadLabel label) {
  return label == HeadLabel::induction || label == HeadLabel::duplicate;
}

std::vector<LabelExample> label_examples(const std::vector<HeadReport>& reports, HeadLabel label) {
  std::vector<LabelExample> examples;
  for (const HeadReport& report : reports) {
    for (const LabelScore& found : report.labels) {
      if (found.label != label) continue;
      const Score& here = score_on_text(report.text, label);
      const bool used = !comes_from_probe(label) || (here.rows > 0 && here.value >= kUsedScore);
      examples.push_back({&report, found.score, here, used});
    }
  }
  // Where nothing repeats all are 0 here: then the clearest on the probe.
  std::stable_sort(examples.begin(), examples.end(),
                   [](const LabelExample& a, const LabelExample& b) {
                     return a.here.value != b.here.value ? a.here.value > b.here.value
                                                         : a.label_score > b.label_score;
                   });
  return examples;
}

}  // namespace cephalo
