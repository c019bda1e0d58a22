// Every kernel of hopper.h that is compiled, forward and backward: what it looks at, for each
// element type and width. What is not listed is refused; mask parts are data, not instances.
#pragma once

#define CEPHALO_HOPPER_LOOKS(X) \
  X(nothing)                    \
  X(positions)                  \
  X(alibi)                      \
  X(bias)                       \
  X(softcap)                    \
  X(dropout)                    \
  X(pairs)

#define CEPHALO_HOPPER_INSTANCES(X, LOOKS_AT) \
  X(bf16, 64, LOOKS_AT)                       \
  X(bf16, 128, LOOKS_AT)                      \
  X(f16, 64, LOOKS_AT)                        \
  X(f16, 128, LOOKS_AT)
