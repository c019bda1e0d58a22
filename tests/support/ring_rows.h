#pragma once

#include "cephalo/attention/ring/attend_ring.h"

namespace cephalo::testing {

// The rows of one process along an axis of the whole: the early piece, then the late one.
Tensor rows_of(const TensorView& whole, int axis, const RingShare& share);

}  // namespace cephalo::testing
