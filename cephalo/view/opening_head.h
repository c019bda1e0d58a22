#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/view/head_metrics.h"

namespace cephalo {

struct LookReport;

// What choosing a head needs to know of a text besides its heads.
struct OpeningText {
  std::vector<std::string> pieces;                       // of its tokens
  std::string next;                                      // the piece that is likeliest to come next
  std::function<Tensor(const HeadPlace&)> last_weights;  // -> [tokens], of the last token
};

// The head that page and terminal open with, because it tells a story: of those with a label, the
// one whose last token looks most at copies of the likeliest next token, if that is 0.3 or more;
// else the clearest previous-token head; else the one with the highest score, those that rest on
// the first token or look at everything last.
HeadPlace opening_head(const std::vector<HeadReport>& heads, const OpeningText& text);
HeadPlace opening_head(const LookReport& report);

// What a head does, as a headline: "Looks at the token before".
const char* headline(const HeadReport& head);

}  // namespace cephalo
