#include "cephalo/core/shape.h"

#include <algorithm>

#include "cephalo/core/fail.h"

namespace cephalo {

Dims::Dims(std::initializer_list<dim_t> dims) {
  for (const dim_t dim : dims) push_back(dim);
}

void Dims::push_back(dim_t dim) {
  require(rank_ < kMaxRank, "shape: at most {} dimensions are supported", kMaxRank);
  dims_[static_cast<std::size_t>(rank_)] = dim;
  ++rank_;
}

std::size_t Dims::index(int axis) const {
  const int from_front = axis < 0 ? axis + rank_ : axis;
  require(from_front >= 0 && from_front < rank_, "shape: axis {} of a tensor of rank {}", axis,
          rank_);
  return static_cast<std::size_t>(from_front);
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string to_string(const Dims& dims) {
  return format_text("[{}]", joined(dims, ", "));
}

std::string to_tuple_string(const Dims& dims) {
  const char* comma = dims.rank() == 1 ? "," : "";  // as Python writes it
  return format_text("({}{})", joined(dims, ", "), comma);
}

dim_t checked_mul(dim_t a, dim_t b) {
  dim_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product), "size overflows: {} x {}", a, b);
  return product;
}

dim_t checked_add(dim_t a, dim_t b) {
  dim_t sum = 0;
  require(!__builtin_add_overflow(a, b, &sum), "size overflows: {} + {}", a, b);
  return sum;
}

dim_t numel(const Shape& shape) {
  for (const dim_t dim : shape) {
    require(dim >= 0, "shape: negative dimension in {}", shape);
  }
  // An empty tensor is empty however large its other dimensions are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  dim_t count = 1;
  for (const dim_t dim : shape) {
    require(!__builtin_mul_overflow(count, dim, &count), "shape: size of {} overflows", shape);
  }
  return count;
}

Strides contiguous_strides(const Shape& shape) {
  static_cast<void>(numel(shape));  // refuses what overflows
  Strides strides = shape;
  dim_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    const bool overflows = __builtin_mul_overflow(stride, std::max<dim_t>(shape[axis], 1), &stride);
    if (overflows) stride = 0;  // of an empty tensor: never used
  }
  return strides;
}

}  // namespace cephalo
