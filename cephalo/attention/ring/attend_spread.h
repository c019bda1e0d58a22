#pragma once

// Inside the library only.
#include "cephalo/attention/attend.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/ring/spread.h"

namespace cephalo {

// attend_ring or attend_heads, as the spread says, into memory of the caller's: rows of this
// process, any strides; lse may be empty.
void attend_spread_into(const Spread& spread, const AttendOutput& output, const TensorView& q,
                        const TensorView& k, const TensorView& v, const Mask& mask,
                        const AttendOptions& options);
// Their gradients likewise.
void attend_spread_backward_into(const Spread& spread, const AttendGradientViews& gradients,
                                 const AttendPass& pass, const TensorView& q, const TensorView& k,
                                 const TensorView& v, const Mask& mask,
                                 const AttendOptions& options);

}  // namespace cephalo
