#pragma once

// Inside the library and what is built with it only: see json_value.h.
#include "cephalo/io/json_value.h"
#include "cephalo/view/head_metrics.h"

namespace cephalo {

// One head of a look: its place, its labels with their scores, and its numbers.
Json head_json(const HeadReport& head);

}  // namespace cephalo
