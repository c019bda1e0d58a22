#pragma once

#include <utility>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The functions that only change how memory is looked at. Their results borrow: they are valid as
// long as what they look at, so a temporary Tensor is refused at compile time.

// The same elements in the same order under another shape; one dimension may be -1. An error when
// the strides do not allow it: then call contiguous first.
TensorView view(const TensorView& t, const Shape& shape);
TensorView view(Tensor&&, const Shape&) = delete;

// Two axes exchanged: no element moves, two strides do.
TensorView transpose(const TensorView& t, int axis_a, int axis_b);
TensorView transpose(Tensor&&, int, int) = delete;

// All axes in a new order.
TensorView permute(const TensorView& t, const Dims& axes);
TensorView permute(Tensor&&, const Dims&) = delete;

// `count` neighbouring parts along an axis, as equal as they can be (the last may be smaller).
std::vector<TensorView> chunk(const TensorView& t, int count, int axis);
std::vector<TensorView> chunk(Tensor&&, int, int) = delete;

// Repeats axes of one element, and leading axes that t does not have, by stride 0.
TensorView broadcast_to(const TensorView& t, const Shape& shape);
TensorView broadcast_to(Tensor&&, const Shape&) = delete;

// A view where one was possible, otherwise a copy that it owns. Give it a name before using it: a
// view of a temporary copy would dangle, so that does not compile.
class MaybeCopied {
 public:
  explicit MaybeCopied(const TensorView& view) : view_(view) {}
  explicit MaybeCopied(Tensor&& copy) : copy_(std::move(copy)), view_(copy_), copied_(true) {}

  operator const TensorView&() const& { return view_; }  // NOLINT: it stands for its view
  operator const TensorView&() && = delete;              // NOLINT
  const TensorView& view() const& { return view_; }
  bool copied() const { return copied_; }

 private:
  Tensor copy_;
  TensorView view_;
  bool copied_ = false;
};

// t itself when it is dense and row-major already, otherwise a dense copy.
MaybeCopied contiguous(const TensorView& t);

// view where the strides allow it, otherwise contiguous and then view.
MaybeCopied reshape(const TensorView& t, const Shape& shape);

}  // namespace cephalo
#pragma GCC visibility pop
