#pragma once

#include "cephalo/attention/attend_second.h"
#include "cephalo/attention/engine/backward_problem.h"

namespace cephalo {

// Arguments of attend_tangent and attend_second after all checks, rank 4 (lse and its kin: 3).
struct SecondProblem {
  // Its gradients are memory for hq, hk, hv and hbias. For a tangent alone there is none, and
  // dcontext is all zeros.
  BackwardProblem backward;
  AttendDirection along;  // nothing of q, k and v is empty; bias[n] as gradients.dbias[n]
  AttendTangentViews tangents;
};

}  // namespace cephalo
