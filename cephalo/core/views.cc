#include "cephalo/core/views.h"

#include <algorithm>
#include <optional>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

int checked_axis(const char* function, const TensorView& t, int axis) {
  const int from_front = axis < 0 ? axis + t.rank() : axis;
  require(from_front >= 0 && from_front < t.rank(), "{}: axis {} does not exist in shape {}",
          function, axis, t.shape());
  return from_front;
}

// Replaces a -1 by the size that is left, and checks the number of elements.
Shape complete_shape(const char* function, const TensorView& t, const Shape& wanted) {
  Shape shape = wanted;
  int open = -1;
  dim_t known = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == -1) {
      require(open < 0, "{}: only one dimension of {} may be -1", function, wanted);
      open = axis;
    } else {
      require(shape[axis] >= 0, "{}: negative dimension in {}", function, wanted);
      known = checked_mul(known, shape[axis]);
    }
  }
  if (open >= 0 && known > 0) shape[open] = t.numel() / known;
  require((open < 0 || known > 0) && numel(shape) == t.numel(),
          "{}: shape {} does not hold the {} elements of {}", function, wanted, t.numel(),
          t.shape());
  return shape;
}

// Strides that show t under `shape` without moving anything, if there are any. Old and new
// dimensions are walked from the inside in groups of equal size; inside a group the old ones must
// lie evenly in memory.
std::optional<Strides> strides_for_view(const TensorView& t, const Shape& shape) {
  if (t.numel() == 0) return contiguous_strides(shape);
  Strides strides = shape;
  int axis = shape.rank() - 1;
  dim_t old_count = 1;
  dim_t new_count = 1;
  dim_t step = t.rank() > 0 ? t.strides()[-1] : 1;
  for (int old = t.rank() - 1; old >= 0; --old) {
    old_count *= t.shape()[old];
    const bool group_ends =
        old == 0 || (t.shape()[old - 1] != 1 && t.strides()[old - 1] != step * old_count);
    if (!group_ends) continue;
    while (axis >= 0 && (new_count < old_count || shape[axis] == 1)) {
      strides[axis] = step * new_count;
      new_count *= shape[axis];
      --axis;
    }
    if (new_count != old_count) return std::nullopt;
    if (old > 0) {
      step = t.strides()[old - 1];
      old_count = 1;
      new_count = 1;
    }
  }
  for (; axis >= 0; --axis) strides[axis] = 1;  // only for t of rank 0: all ones
  return strides;
}

}  // namespace

TensorView view(const TensorView& t, const Shape& wanted) {
  const Shape shape = complete_shape("view", t, wanted);
  const std::optional<Strides> strides = strides_for_view(t, shape);
  require(strides.has_value(),
          "view: {} with strides {} cannot be seen as {} without moving memory; call contiguous "
          "first, or use reshape",
          t.shape(), t.strides(), shape);
  return {t.data(), t.dtype(), shape, *strides, t.device()};
}

TensorView transpose(const TensorView& t, int axis_a, int axis_b) {
  const int a = checked_axis("transpose", t, axis_a);
  const int b = checked_axis("transpose", t, axis_b);
  Shape shape = t.shape();
  Strides strides = t.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return {t.data(), t.dtype(), shape, strides, t.device()};
}

TensorView permute(const TensorView& t, const Dims& axes) {
  require(axes.rank() == t.rank(), "permute: {} names {} axes, shape {} has {}", axes, axes.rank(),
          t.shape(), t.rank());
  Shape shape = t.shape();
  Strides strides = t.strides();
  std::array<bool, kMaxRank> used{};
  for (int k = 0; k < axes.rank(); ++k) {
    const int axis = checked_axis("permute", t, static_cast<int>(axes[k]));
    require(!used[static_cast<std::size_t>(axis)], "permute: axis {} appears twice in {}", axis,
            axes);
    used[static_cast<std::size_t>(axis)] = true;
    shape[k] = t.shape()[axis];
    strides[k] = t.strides()[axis];
  }
  return {t.data(), t.dtype(), shape, strides, t.device()};
}

std::vector<TensorView> chunk(const TensorView& t, int count, int axis) {
  require(count > 0, "chunk: count ({}) must be > 0", count);
  const int along = checked_axis("chunk", t, axis);
  const dim_t size = t.dim(along);
  const dim_t part = std::max<dim_t>((size + count - 1) / count, 1);
  std::vector<TensorView> parts;
  for (dim_t begin = 0; begin < size || begin == 0; begin += part) {
    parts.push_back(t.slice(along, begin, std::min(begin + part, size)));
  }
  return parts;
}

TensorView broadcast_to(const TensorView& t, const Shape& shape) {
  const int missing = shape.rank() - t.rank();
  require(missing >= 0, "broadcast_to: {} has more dimensions than {}", t.shape(), shape);
  Strides strides = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis < missing) {
      strides[axis] = 0;
      continue;
    }
    const dim_t have = t.shape()[axis - missing];
    require(have == shape[axis] || have == 1, "broadcast_to: {} does not broadcast to {}",
            t.shape(), shape);
    strides[axis] = have == shape[axis] ? t.strides()[axis - missing] : 0;
  }
  return {t.data(), t.dtype(), shape, strides, t.device()};
}

MaybeCopied contiguous(const TensorView& t) {
  if (t.is_contiguous()) return MaybeCopied(t);
  return MaybeCopied(Tensor::copy(t));
}

MaybeCopied reshape(const TensorView& t, const Shape& wanted) {
  const Shape shape = complete_shape("reshape", t, wanted);
  if (const auto strides = strides_for_view(t, shape)) {
    return MaybeCopied(TensorView(t.data(), t.dtype(), shape, *strides, t.device()));
  }
  return MaybeCopied(Tensor::copy(t).reshaped(shape));
}

}  // namespace cephalo
