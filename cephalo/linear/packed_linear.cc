#include "cephalo/linear/packed_linear.h"

#include <algorithm>
#include <atomic>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/kernels/sizes.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

// A block of A (kRowBlock × kDepth) stays in the L2 cache while panels of B pass by.
constexpr dim_t kDepth = 384;
constexpr dim_t kRowBlock = 192;
constexpr dim_t kStrip = 64;  // steps of the inner dimension that are laid out at a time
static_assert(kDepth % kStrip == 0);

const std::byte* row_address(const TensorView& t, dim_t row, dim_t column) {
  return static_cast<const std::byte*>(t.data()) +
         (row * t.strides()[0] + column * t.strides()[1]) *
             static_cast<dim_t>(item_size(t.dtype()));
}

// Rows [begin, begin + count) of t: [rows, columns], elements from `column` on.
kernels::Rows rows_of(const TensorView& t, dim_t begin, dim_t count, dim_t column, dim_t dim,
                      const void** addresses) {
  for (dim_t r = 0; r < count; ++r) addresses[r] = row_address(t, begin + r, column);
  return {addresses, count, dim, t.strides()[1], t.dtype()};
}

// Are columns dense and rows not? Then neighbours of a tile are neighbours in memory already.
bool has_dense_columns(const TensorView& t) {
  return t.strides()[0] == 1 && (t.strides()[1] != 1 || t.dim(0) == 1);
}

// Columns [begin, begin + count) of such a t: [rows, columns], elements from `row` on.
kernels::Rows columns_of(const TensorView& t, dim_t begin, dim_t count, dim_t row, dim_t dim,
                         const void** addresses) {
  for (dim_t k = 0; k < count; ++k) addresses[k] = row_address(t, row, begin + k);
  return {addresses, count, dim, 1, t.dtype()};
}

// The width in panels of three vectors; what is left over as one or two of two vectors: one of a
// single vector is slower, and zeros up to three would be multiplied for nothing (an eighth of all
// work at a width of 256).
struct Panels {
  Panels(dim_t width, dim_t vector_lanes)
      : lanes(vector_lanes), vectors((width + lanes - 1) / lanes) {
    const dim_t left = vectors % kernels::kMaxColumns;
    narrow = left == 1 && vectors > 1 ? 2 : (left == 0 ? 0 : 1);
    narrow_columns = vectors == 1 ? 1 : 2;
    wide = (vectors - narrow * narrow_columns) / kernels::kMaxColumns;
  }
  dim_t count() const { return wide + narrow; }
  int columns(dim_t panel) const {
    return panel < wide ? kernels::kMaxColumns : static_cast<int>(narrow_columns);
  }
  // Of the width: where a panel begins.
  dim_t begin(dim_t panel) const {
    const dim_t past = std::max<dim_t>(panel - wide, 0);
    return lanes * (kernels::kMaxColumns * (panel - past) + narrow_columns * past);
  }
  dim_t width() const { return lanes * vectors; }  // with the zeros that fill the last vector

  dim_t lanes;
  dim_t vectors;
  dim_t wide;    // panels of three vectors come first
  dim_t narrow;  // panels of narrow_columns vectors
  dim_t narrow_columns;
};

}  // namespace

PackedLinear::PackedLinear(const TensorView& weight, const TensorView& bias, DType steps,
                           Tensor memory)
    : width_(weight.dim(0)),
      d_in_(weight.dim(1)),
      steps_(steps),
      isa_(current_isa(steps)),
      panels_(std::move(memory)) {
  require_host("linear", {{"weight", weight}, {"bias", bias}});
  if (bias.numel() > 0) bias_ = Tensor::copy(bias, steps);
  if (has_dense_columns(weight)) {
    steps == DType::f64 ? pack_columns<double>(weight) : pack_columns<float>(weight);
  } else {
    steps == DType::f64 ? pack_rows<double>(weight) : pack_rows<float>(weight);
  }
}

// Memory for d_in rows of so many columns.
template <typename T>
T* PackedLinear::take_panels(dim_t columns) {
  const dim_t bytes = checked_mul(checked_mul(d_in_, columns), static_cast<dim_t>(sizeof(T)));
  if (static_cast<dim_t>(panels_.bytes()) < bytes) {
    panels_ = Tensor();  // given back before more is taken
    panels_ = Tensor::empty({bytes}, DType::u8);
  }
  return static_cast<T*>(panels_.mutable_view().mutable_data());
}

template <typename T>
void PackedLinear::pack_rows(const TensorView& weight) {
  const auto& kernels = *kernels::attend_kernels<T, T>(isa_);
  const Panels panels(width_, kernels.lanes);
  T* to = take_panels<T>(panels.width());
  const Region region{
      .pieces = panels.count(),
      .flops = static_cast<double>(d_in_ * panels.width()),
      .scratch_bytes =
          static_cast<std::size_t>(kernels::kMaxColumns * kernels.lanes) * sizeof(void*)};
  parallel_for(region, [&](dim_t panel, std::byte* scratch) {
    auto** addresses = reinterpret_cast<const void**>(scratch);
    const dim_t first = panels.begin(panel);
    const dim_t columns = panels.columns(panel) * panels.lanes;
    const dim_t count = std::min(columns, width_ - first);
    for (dim_t k = 0; k < d_in_; k += kDepth) {
      const dim_t depth = std::min(kDepth, d_in_ - k);
      kernels.pack_lanes(rows_of(weight, first, count, k, depth, addresses), T{1}, columns,
                         to + k * panels.width() + depth * first);
    }
  });
}

template <typename T>
void PackedLinear::pack_columns(const TensorView& weight) {
  const auto& kernels = *kernels::attend_kernels<T, T>(isa_);
  const Panels panels(width_, kernels.lanes);
  T* to = take_panels<T>(panels.width());
  const dim_t middle = panels.begin(panels.wide);  // wide panels before, narrow ones from there on
  std::atomic<bool> finite{true};
  const Region region{.pieces = (d_in_ + kStrip - 1) / kStrip,
                      .flops = static_cast<double>(d_in_ * panels.width())};
  parallel_for(region, [&](dim_t strip, std::byte*) {
    const void* addresses[kStrip];
    const dim_t begin = strip * kStrip;
    const dim_t k = begin / kDepth * kDepth;
    const dim_t depth = std::min(kDepth, d_in_ - k);
    const dim_t count = std::min(kStrip, d_in_ - begin);
    const auto pack = [&](dim_t from, dim_t until, int vectors) {
      if (from >= until) return;
      const dim_t columns = vectors * panels.lanes;
      const kernels::Rows part =
          columns_of(weight, begin, count, from, std::min(until, width_) - from, addresses);
      T* at = to + k * panels.width() + depth * from + (begin - k) * columns;
      if (!kernels.pack_slices(part, columns, depth * columns, at)) finite = false;
    };
    pack(0, middle, kernels::kMaxColumns);
    pack(middle, panels.width(), static_cast<int>(panels.narrow_columns));
  });
  finite_ = finite;
}

template <typename T>
void PackedLinear::multiply(const TensorView& x, const MutableTensorView& out,
                            const Epilogue& epilogue) const {
  const auto& kernels = *kernels::gemm_kernels<T, T>(isa_);
  const auto& packing = *kernels::attend_kernels<T, T>(isa_);
  const dim_t rows = x.dim(0);
  const Panels panels(width_, kernels.lanes);
  const dim_t row_block = std::min(kRowBlock, round_up(rows, kernels.rows));
  const dim_t row_blocks = (rows + row_block - 1) / row_block;
  // Few rows are shared out by columns; what must be finished row by row is not.
  const dim_t wanted = (4 * threads() + row_blocks - 1) / row_blocks;
  const dim_t groups =
      epilogue.works_on_rows() ? 1 : std::clamp<dim_t>(wanted, 1, (panels.count() + 3) / 4);
  const T* bias = bias_.numel() > 0 ? bias_.data_as<T>() : nullptr;
  const T* b = static_cast<const T*>(panels_.data());
  T* c = out.mutable_data_as<T>();
  const dim_t c_stride = out.strides()[0];
  const bool across = has_dense_columns(x);
  const bool adds = epilogue.kind == Epilogue::Kind::add;
  const Region region{
      .pieces = row_blocks * groups,
      .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(width_) *
               static_cast<double>(d_in_) / kFusedSpeed,
      .scratch_bytes = static_cast<std::size_t>(row_block * kDepth) * sizeof(T) +
                       static_cast<std::size_t>(across ? kDepth : row_block) * sizeof(void*)};
  parallel_for(region, [&](dim_t piece, std::byte* scratch) {
    T* a = reinterpret_cast<T*>(scratch);
    auto** addresses = reinterpret_cast<const void**>(a + row_block * kDepth);
    const dim_t row = piece / groups * row_block;
    const dim_t count = std::min(row_block, rows - row);
    const dim_t panel_begin = piece % groups * panels.count() / groups;
    const dim_t panel_end = (piece % groups + 1) * panels.count() / groups;
    for (dim_t k = 0; k < d_in_; k += kDepth) {
      const dim_t depth = std::min(kDepth, d_in_ - k);
      if (across) {
        packing.pack_slices(columns_of(x, k, depth, row, count, addresses), kernels.rows,
                            depth * kernels.rows, a);
      } else {
        packing.pack_broadcast(rows_of(x, row, count, k, depth, addresses), a);
      }
      const bool last = k + depth == d_in_;
      for (dim_t panel = panel_begin; panel < panel_end; ++panel) {
        const dim_t column = panels.begin(panel);
        const int vectors = panels.columns(panel);
        kernels.multiply_panel({a, b + k * panels.width() + depth * column, depth, count,
                                std::min(vectors * panels.lanes, width_ - column), vectors,
                                c + row * c_stride + column, c_stride, k == 0 && !adds,
                                last && bias != nullptr ? bias + column : nullptr});
      }
    }
    if (epilogue.works_on_rows()) finish_rows(epilogue, out, row, row + count);
  });
}

void PackedLinear::apply(const TensorView& x, const MutableTensorView& out,
                         const Epilogue& epilogue) const {
  if (x.dim(0) == 0 || width_ == 0) return;
  require_host("linear", {{"x", x}, {"out", out}});
  if (out.dtype() != steps_) {
    require(epilogue.kind == Epilogue::Kind::none,
            "linear: an epilogue works on a result of {}, not {}", name(steps_), name(out.dtype()));
    Tensor wide = Tensor::empty(out.shape(), steps_);
    apply(x, wide);
    out.copy_from(wide);
  } else if (steps_ == DType::f64) {
    multiply<double>(x, out, epilogue);
  } else {
    multiply<float>(x, out, epilogue);
  }
}

}  // namespace cephalo
