#include <algorithm>
#include <cmath>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/kernels/tables.h"
#include "cephalo/linear/ops_host.h"

namespace cephalo::ops::host {
namespace {

constexpr dim_t kNormRows = 64;     // of a piece: their sums of dweight and dbias are one
constexpr double kNormFlops = 2.0;  // for each element, in plain code's time

template <typename T>
void norm_rows(const Norm& rows) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t width = rows.x.dim(1);
  const dim_t count = rows.x.dim(0);
  T* x = rows.x.mutable_data_as<T>();
  const T* added = rows.added.numel() > 0 ? rows.added.data_as<T>() : nullptr;
  T* y = rows.y.mutable_data_as<T>();
  T* moments = rows.moments.numel() > 0 ? rows.moments.mutable_data_as<T>() : nullptr;
  const Region region{(count + kNormRows - 1) / kNormRows,
                      kNormFlops * static_cast<double>(rows.x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t first = piece * kNormRows;
    kernels.layer_norm({std::min(kNormRows, count - first), width, x + first * width,
                        added != nullptr ? added + first * width : nullptr,
                        rows.weight.data_as<T>(), rows.bias.data_as<T>(),
                        static_cast<T>(rows.epsilon), y + first * width,
                        moments != nullptr ? moments + 2 * first : nullptr});
  });
}

template <typename T>
void norm_rows_backward(const NormBackward& rows) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t width = rows.x.dim(1);
  const dim_t count = rows.x.dim(0);
  const dim_t pieces = (count + kNormRows - 1) / kNormRows;
  std::vector<T> sums(static_cast<std::size_t>(2 * pieces * width), T{0});
  const Region region{pieces, kNormFlops * static_cast<double>(rows.x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t first = piece * kNormRows;
    T* sum = sums.data() + 2 * piece * width;
    kernels.layer_norm_backward({std::min(kNormRows, count - first), width,
                                 rows.x.data_as<T>() + first * width,
                                 rows.moments.data_as<T>() + 2 * first, rows.weight.data_as<T>(),
                                 rows.dy.data_as<T>() + first * width,
                                 rows.dx.mutable_data_as<T>() + first * width, sum, sum + width});
  });
  for (dim_t piece = 0; piece < pieces; ++piece) {
    const T* sum = sums.data() + 2 * piece * width;
    kernels.add(sum, width, rows.dweight.mutable_data_as<T>());
    kernels.add(sum + width, width, rows.dbias.mutable_data_as<T>());
  }
}

template <typename T>
void embed_rows(const Embed& rows) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t count = rows.x.dim(0);
  const dim_t tokens = rows.ids.dim(-1);
  const dim_t width = rows.x.dim(1);
  const auto* id = rows.ids.data_as<std::int64_t>();
  const T* token = rows.token.data_as<T>();
  const bool placed = rows.position.numel() > 0;
  const T* position = placed ? rows.position.data_as<T>() : nullptr;
  T* to = rows.x.mutable_data_as<T>();
  constexpr dim_t kRows = 32;
  const Region region{(count + kRows - 1) / kRows, static_cast<double>(rows.x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t end = std::min(count, (piece + 1) * kRows);
    for (dim_t row = piece * kRows; row < end; ++row) {
      std::copy_n(token + id[row] * width, width, to + row * width);
      if (placed) {
        kernels.add(position + (rows.first + row % tokens) * width, width, to + row * width);
      }
    }
  });
}

template <typename T>
void embed_rows_backward(const EmbedBackward& rows) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t tokens = rows.ids.dim(-1);
  const dim_t width = rows.dx.dim(1);
  const auto* id = rows.ids.data_as<std::int64_t>();
  const T* from = rows.dx.data_as<T>();
  T* token = rows.token.mutable_data_as<T>();
  const bool placed = rows.position.numel() > 0;
  T* position = placed ? rows.position.mutable_data_as<T>() : nullptr;
  // Each piece has its own columns of the tables, and walks all rows.
  constexpr dim_t kColumns = 64;
  const Region region{(width + kColumns - 1) / kColumns,
                      2.0 * static_cast<double>(rows.dx.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t begin = piece * kColumns;
    const dim_t count = std::min(kColumns, width - begin);
    for (dim_t row = 0; row < rows.dx.dim(0); ++row) {
      const T* add = from + row * width + begin;
      kernels.add(add, count, token + id[row] * width + begin);
      if (placed) kernels.add(add, count, position + row % tokens * width + begin);
    }
  });
}

template <typename T>
void join_rows(const JoinContexts& rows) {
  constexpr dim_t kRows = 64;
  const dim_t count = rows.context.dim(0);
  const dim_t width = rows.context.dim(1);
  const dim_t heads = rows.lse.dim(1);
  const dim_t tokens = rows.lse.dim(2);
  const dim_t head_dim = width / heads;
  const T* lse = rows.lse.data_as<T>();
  const T* other_lse = rows.other_lse.data_as<T>();
  const Region region{(count + kRows - 1) / kRows, 4.0 * static_cast<double>(rows.context.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t end = std::min(count, (piece + 1) * kRows);
    for (dim_t row = piece * kRows; row < end; ++row) {
      T* to = rows.context.mutable_data_as<T>() + row * width;
      const T* from = rows.other.data_as<T>() + row * width;
      for (dim_t h = 0; h < heads; ++h, to += head_dim, from += head_dim) {
        const dim_t at = (row / tokens * heads + h) * tokens + row % tokens;
        const double odds =
            std::exp(static_cast<double>(other_lse[at]) - static_cast<double>(lse[at]));
        const T share = static_cast<T>(1.0 / (1.0 + odds));
        const T other_share = static_cast<T>(1.0 / (1.0 + 1.0 / odds));
        for (dim_t d = 0; d < head_dim; ++d) to[d] = share * to[d] + other_share * from[d];
      }
    }
  });
}

template <typename T>
void drop_rows(const Drop& rows) {
  constexpr dim_t kRows = 16;
  constexpr dim_t kBits = 64;
  const auto& drawing = *kernels::attend_kernels<T, T>(kernels::isa_for<T>());
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const MutableTensorView& x = rows.x;
  const dim_t width = x.dim(1);
  const auto grown = static_cast<T>(dropout_scale(rows.probability, x.dtype()));
  const double threshold =
      std::min(std::ceil(rows.probability * 0x1p32), 0x1p32 - 1.0);  // one word in 2^32 stays
  const kernels::KeptStream stream{rows.seed, rows.place, 0, static_cast<std::uint32_t>(threshold)};
  const Region region{(x.dim(0) + kRows - 1) / kRows, 8.0 * static_cast<double>(x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t end = std::min(x.dim(0), (piece + 1) * kRows);
    for (dim_t row = piece * kRows; row < end; ++row) {
      T* to = x.mutable_data_as<T>() + row * width;
      for (dim_t column = 0; column < width; column += kBits) {
        const dim_t count = std::min(kBits, width - column);
        const std::uint64_t kept =
            drawing.kept_by_key(stream, static_cast<std::uint32_t>(column / 4),
                                static_cast<std::uint32_t>(rows.first_row + row), (count + 3) / 4);
        kernels.keep(kept, count, grown, to + column);
      }
    }
  });
}

}  // namespace

void norm(const Norm& rows) {
  rows.x.dtype() == DType::f64 ? norm_rows<double>(rows) : norm_rows<float>(rows);
}

void norm_backward(const NormBackward& rows) {
  rows.x.dtype() == DType::f64 ? norm_rows_backward<double>(rows) : norm_rows_backward<float>(rows);
}

void embed(const Embed& rows) {
  rows.x.dtype() == DType::f64 ? embed_rows<double>(rows) : embed_rows<float>(rows);
}

void embed_backward(const EmbedBackward& rows) {
  rows.dx.dtype() == DType::f64 ? embed_rows_backward<double>(rows)
                                : embed_rows_backward<float>(rows);
}

void join_contexts(const JoinContexts& rows) {
  rows.context.dtype() == DType::f64 ? join_rows<double>(rows) : join_rows<float>(rows);
}

void drop(const Drop& rows) {
  rows.x.dtype() == DType::f64 ? drop_rows<double>(rows) : drop_rows<float>(rows);
}

}  // namespace cephalo::ops::host
