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

// Those for other rows, which all look at pairs: of more than 128 columns, and of float32 numbers
// in parts. Type, columns of q and k, columns of v, parts.
#define CEPHALO_HOPPER_WIDE(X) \
  X(bf16, 192, 128, 1)         \
  X(bf16, 256, 256, 1)         \
  X(f16, 192, 128, 1)          \
  X(f16, 256, 256, 1)          \
  X(bf16, 64, 64, 2)           \
  X(bf16, 64, 64, 3)           \
  X(bf16, 128, 128, 2)         \
  X(bf16, 128, 128, 3)
// In the backward pass, where it has kernels of its own, narrower ones take these.
#define CEPHALO_HOPPER_WIDE_BACKWARD(X) \
  X(bf16, 256, 1)                       \
  X(f16, 256, 1)                        \
  X(bf16, 128, 2)                       \
  X(bf16, 128, 3)
