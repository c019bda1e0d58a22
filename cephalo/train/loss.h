#pragma once

#include <cstdint>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A target that asks for nothing, by PyTorch's default.
inline constexpr std::int64_t kIgnoreTarget = -100;

// Softmax cross entropy and its gradient in one walk over the logits.
// logits: [rows, vocab_size], float32 or float64, any strides
// targets: [rows], int64 or int32: the id that should have the largest logit, or ignore_index
// dlogits: the shape and type of logits, any strides; logits itself may be overwritten; empty: only
//          the loss is wanted
//
// Returns the mean of −log softmax(logits)[target] over the rows that are not ignored; dlogits is
// the gradient of that mean, 0 in ignored rows. Where all rows are ignored both are 0. A logit of
// −inf is an id that cannot come; as a target it costs infinity. Exponentials are of the logits'
// type, sums over a row float64; the rows' losses are added in their order, so bits do not depend
// on threads.
double cross_entropy(const TensorView& logits, const TensorView& targets,
                     const MutableTensorView& dlogits = {},
                     std::int64_t ignore_index = kIgnoreTarget);

// The same for some rows of a larger batch: the sum over these rows divided by `count`, the targets
// that count in the whole batch, and the gradient of that. Shares of all rows add up to the mean.
double cross_entropy_share(const TensorView& logits, const TensorView& targets, dim_t count,
                           const MutableTensorView& dlogits = {},
                           std::int64_t ignore_index = kIgnoreTarget);

}  // namespace cephalo
#pragma GCC visibility pop
