// Every kernel of hopper.h that is compiled, forward and backward: element type, width, and what it
// looks at. What is not listed is refused; mask parts are data, not instances.
#pragma once

#define CEPHALO_HOPPER_INSTANCES(X) \
  X(bf16, 64, nothing)              \
  X(bf16, 64, positions)            \
  X(bf16, 64, pairs)                \
  X(bf16, 128, nothing)             \
  X(bf16, 128, positions)           \
  X(bf16, 128, pairs)               \
  X(f16, 64, nothing)               \
  X(f16, 64, positions)             \
  X(f16, 64, pairs)                 \
  X(f16, 128, nothing)              \
  X(f16, 128, positions)            \
  X(f16, 128, pairs)
