#include "cephalo/attention/ring/attend_spread.h"

#include "cephalo/attention/ring/attend_heads.h"
#include "cephalo/attention/ring/attend_ring.h"

namespace cephalo {

void attend_spread_into(const Spread& spread, const AttendOutput& output, const TensorView& q,
                        const TensorView& k, const TensorView& v, const Mask& mask,
                        const AttendOptions& options) {
  const auto attend_over = spread.by == Spread::By::heads ? attend_heads : attend_ring;
  const AttendResult found = attend_over(*spread.world, spread.tokens, q, k, v, mask, options);
  output.context.copy_from(found.context);
  if (output.lse.numel() > 0) output.lse.copy_from(found.lse);
}

void attend_spread_backward_into(const Spread& spread, const AttendGradientViews& gradients,
                                 const AttendPass& pass, const TensorView& q, const TensorView& k,
                                 const TensorView& v, const Mask& mask,
                                 const AttendOptions& options) {
  World& world = *spread.world;
  const AttendGradients found =
      spread.by == Spread::By::heads
          ? attend_heads_backward(world, spread.tokens, pass, q, k, v, mask, options)
          : attend_ring_backward(world, spread.tokens, pass, q, k, v, mask, options);
  gradients.dq.copy_from(found.dq);
  gradients.dk.copy_from(found.dk);
  gradients.dv.copy_from(found.dv);
}

}  // namespace cephalo
