#pragma once

#include <string>

#include "cephalo/view/look.h"

namespace cephalo::cli {

// The weights of one head as the map shows them. CSV: a line per query, what is hidden left empty.
std::string weights_csv(const LookReport& report, const HeadPlace& place);
// -> [tokens, tokens], float32
Tensor weights_array(const LookReport& report, const HeadPlace& place);

}  // namespace cephalo::cli
