#include "cephalo/linear/ops_host.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "cephalo/core/parallel.h"

namespace cephalo::ops::host {

void linear(const PackedLinear& weight, const TensorView& x, const MutableTensorView& out,
            const Epilogue& epilogue) {
  weight.apply(x, out, epilogue);
}

void rotate(const Rotation& rotation) {
  constexpr dim_t kRows = 64;
  const dim_t rows = rotation.rows();
  double numbers = 0.0;
  for (int p = 0; p < rotation.count; ++p) {
    numbers += static_cast<double>(rotation.parts[p].heads.numel());
  }
  const Region region{.pieces = (rows + kRows - 1) / kRows, .flops = 4.0 * numbers};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    turn_rows(rotation, piece * kRows, std::min(rows, (piece + 1) * kRows));
  });
}

void zero(std::span<const MutableTensorView> tensors) {
  double numbers = 0.0;
  for (const MutableTensorView& t : tensors) numbers += static_cast<double>(t.numel());
  parallel_for(Region{std::ssize(tensors), numbers}, [&](dim_t k, std::byte*) {
    const MutableTensorView& t = tensors[static_cast<std::size_t>(k)];
    std::memset(t.mutable_data(), 0, t.bytes());
  });
}

void copy(const TensorView& from, const MutableTensorView& to) {
  to.copy_from(from);
}

}  // namespace cephalo::ops::host
