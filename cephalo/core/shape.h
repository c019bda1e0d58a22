#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#pragma GCC visibility push(default)
namespace cephalo {

using dim_t = std::int64_t;  // every size, index and stride

inline constexpr int kMaxRank = 8;  // axes of a tensor, at most

// A short list of sizes or strides, outermost first. It lives in place: copying allocates nothing.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<dim_t> dims);

  int rank() const { return rank_; }
  dim_t* begin() { return dims_.data(); }
  dim_t* end() { return dims_.data() + rank_; }
  const dim_t* begin() const { return dims_.data(); }
  const dim_t* end() const { return dims_.data() + rank_; }

  // The dimension at `axis`; negative axes count from the end, as in shape[-1].
  dim_t operator[](int axis) const { return dims_[index(axis)]; }
  dim_t& operator[](int axis) { return dims_[index(axis)]; }

  void push_back(dim_t dim);

  bool operator==(const Dims& other) const;

 private:
  std::size_t index(int axis) const;

  std::array<dim_t, kMaxRank> dims_{};
  int rank_ = 0;
};

using Shape = Dims;    // outermost first
using Strides = Dims;  // in elements, may be zero or negative

std::string to_string(const Dims& dims);        // "[2, 4, 8]"
std::string to_tuple_string(const Dims& dims);  // "(2, 4, 8)"

// The number of elements; an error if it does not fit 63 bits or a dimension is negative.
dim_t numel(const Shape& shape);

// Strides of a dense row-major tensor.
Strides contiguous_strides(const Shape& shape);

// a · b and a + b of sizes that are ≥ 0; an error instead of wrapping.
dim_t checked_mul(dim_t a, dim_t b);
dim_t checked_add(dim_t a, dim_t b);

}  // namespace cephalo
#pragma GCC visibility pop
