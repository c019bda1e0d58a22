// Every kernel of hopper.h that is compiled, forward and backward: element type, head_dim, and
// whether positions hide keys. What is not listed is refused; mask parts are data, not instances.
#pragma once

#define CEPHALO_HOPPER_INSTANCES(X) \
  X(bf16, 64, false)                \
  X(bf16, 64, true)                 \
  X(bf16, 128, false)               \
  X(bf16, 128, true)                \
  X(f16, 64, false)                 \
  X(f16, 64, true)                  \
  X(f16, 128, false)                \
  X(f16, 128, true)
