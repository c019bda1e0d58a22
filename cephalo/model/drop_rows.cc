#include "cephalo/model/drop_rows.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/cpu.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

template <typename T>
void drop(const RowDropout& dropout, std::uint32_t place, const MutableTensorView& x) {
  constexpr dim_t kRows = 16;
  constexpr dim_t kBits = 64;
  const auto& drawing = *kernels::attend_kernels<T, T>(kernels::isa_for<T>());
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t width = x.dim(1);
  const auto grown = static_cast<T>(dropout_scale(dropout.probability, x.dtype()));
  const double threshold =
      std::min(std::ceil(dropout.probability * 0x1p32), 0x1p32 - 1.0);  // one word in 2^32 stays
  const kernels::KeptStream stream{dropout.seed, place, 0, static_cast<std::uint32_t>(threshold)};
  const Region region{(x.dim(0) + kRows - 1) / kRows, 8.0 * static_cast<double>(x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t end = std::min(x.dim(0), (piece + 1) * kRows);
    for (dim_t row = piece * kRows; row < end; ++row) {
      T* to = x.mutable_data_as<T>() + row * width;
      for (dim_t column = 0; column < width; column += kBits) {
        const dim_t count = std::min(kBits, width - column);
        const std::uint64_t kept = drawing.kept_by_key(
            stream, static_cast<std::uint32_t>(column / 4),
            static_cast<std::uint32_t>(dropout.first_row + row), (count + 3) / 4);
        kernels.keep(kept, count, grown, to + column);
      }
    }
  });
}

}  // namespace

void drop_rows(const RowDropout& dropout, std::uint32_t place, const MutableTensorView& x) {
  if (dropout.probability == 0.0) return;
  x.dtype() == DType::f64 ? drop<double>(dropout, place, x) : drop<float>(dropout, place, x);
}

}  // namespace cephalo
