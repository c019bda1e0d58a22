#pragma once

#include <string>
#include <vector>

#include "cephalo/view/look.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Everything that a report holds, as one line of JSON; with the weights of these heads. Row i of a
// head has those of the keys that it may look at: i + 1 of them.
std::string to_json(const LookReport& report, const std::vector<HeadPlace>& with_weights = {});

}  // namespace cephalo
#pragma GCC visibility pop
