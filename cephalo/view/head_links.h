#pragma once

#include <vector>

#include "cephalo/view/head_metrics.h"

#pragma GCC visibility push(default)
namespace cephalo {

// One query and a key that it looks at.
struct Link {
  dim_t query;
  dim_t key;
  double weight;
};

// For each query that sees more than one key, the key it looks at most; the strongest `count` of
// these, strongest first.
std::vector<Link> strongest_links(const Recording& recording, const HeadPlace& place, dim_t count);

// The same among the keys alone that the label's score counts: for induction those that follow the
// same token earlier, for sink the first. A query without such a key has no link, and diffuse,
// which counts no key more than another, has none at all.
std::vector<Link> counted_links(const Recording& recording, const HeadPlace& place, HeadLabel label,
                                dim_t count);

// What a label is judged by, on the text: also where the label itself comes from the probe.
const Score& score_on_text(const HeadMetrics& text, HeadLabel label);
// Duplicate and induction, which only a text that repeats itself can show.
bool comes_from_probe(HeadLabel label);

// A head that has a label, and how far this text shows it.
struct LabelExample {
  const HeadReport* head;
  double label_score;  // by which it has the label
  Score here;          // on this text
  bool used;           // does this text show it? Of a label from the probe, from 0.2 on
};
// All heads that have it, the one that shows it most clearly on this text first.
std::vector<LabelExample> label_examples(const std::vector<HeadReport>& reports, HeadLabel label);

}  // namespace cephalo
#pragma GCC visibility pop
