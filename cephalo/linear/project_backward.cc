#include "cephalo/linear/project_backward.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/kernels/tables.h"
#include "cephalo/linear/workspace.h"

namespace cephalo {
namespace {

// Which rows of dy: [rows, width] hold anything but zeros.
template <typename T>
std::vector<std::uint8_t> nonzero_rows(const TensorView& dy) {
  std::vector<std::uint8_t> nonzero(static_cast<std::size_t>(dy.dim(0)));
  const T* row = dy.data_as<T>();
  for (std::uint8_t& found : nonzero) {
    found = std::any_of(row, row + dy.dim(1), [](T each) { return each != T{0}; }) ? 1 : 0;
    row += dy.dim(1);
  }
  return nonzero;
}
std::vector<std::uint8_t> nonzero_rows(const TensorView& dy) {
  return dy.dtype() == DType::f64 ? nonzero_rows<double>(dy) : nonzero_rows<float>(dy);
}

// dy: [rows, width] -> dbias: [width] += Σ over rows, in blocks as the products have them
template <typename T>
void add_rows(const TensorView& dy, const MutableTensorView& dbias) {
  constexpr dim_t kColumns = 256;
  constexpr dim_t kBlock = 384;
  const dim_t rows = dy.dim(0);
  const dim_t width = dy.dim(1);
  const T* from = dy.data_as<T>();
  T* to = dbias.mutable_data_as<T>();
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const Region region{.pieces = (width + kColumns - 1) / kColumns,
                      .flops = static_cast<double>(dy.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t first = piece * kColumns;
    const dim_t count = std::min(kColumns, width - first);
    for (dim_t begin = 0; begin < rows; begin += kBlock) {
      T sums[kColumns] = {};
      const dim_t end = std::min(rows, begin + kBlock);
      for (dim_t r = begin; r < end; ++r) {
        kernels.add(from + r * width + first, count, sums);
      }
      kernels.add(sums, count, to + first);
    }
  });
}

// x with zeros in the rows that take no part.
Tensor without_rows(const TensorView& x, const std::vector<std::uint8_t>& part) {
  Tensor clean = Tensor::copy(x);
  for (dim_t r = 0; r < x.dim(0); ++r) {
    if (part[static_cast<std::size_t>(r)] == 0) clean.mutable_view()[r].fill(0.0);
  }
  return clean;
}

void add_outer_products(const Projection& forward, const MutableTensorView& dweight) {
  const TensorView across = transpose(forward.dy, 0, 1);
  // As large as x: too much to be mapped and cleared anew for every product.
  Workspace& workspace = Workspace::of_this_thread();
  PackedLinear columns(transpose(forward.x, 0, 1), {}, forward.dy.dtype(),
                       workspace.lend(Workspace::panels));
  const bool finite = columns.finite();
  if (finite) columns.apply(across, dweight, Epilogue::add());
  workspace.give_back(Workspace::panels, std::move(columns).release());
  if (finite) return;
  const Tensor clean = without_rows(forward.x, nonzero_rows(forward.dy));
  PackedLinear(transpose(clean, 0, 1), {}, forward.dy.dtype())
      .apply(across, dweight, Epilogue::add());
}

void add_bias_gradient(const Projection& forward, const ProjectionGradients& gradients) {
  if (gradients.dbias.numel() == 0) return;
  forward.dy.dtype() == DType::f64 ? add_rows<double>(forward.dy, gradients.dbias)
                                   : add_rows<float>(forward.dy, gradients.dbias);
}

void add_textbook_products(const Projection& forward, const MutableTensorView& dweight) {
  const std::vector<std::uint8_t> part = nonzero_rows(forward.dy);
  const RowFilter filter{[](const void* context, dim_t, dim_t, std::uint8_t* keep) {
                           const auto& all =
                               *static_cast<const std::vector<std::uint8_t>*>(context);
                           std::copy(all.begin(), all.end(), keep);
                         },
                         &part};
  Tensor product = Tensor::empty(dweight.shape(), dweight.dtype());
  matmul_into(transpose(forward.dy, 0, 1), forward.x, product, filter);
  dweight.copy_from(add(dweight, product));
}

}  // namespace

void project_backward(const Projection& forward, const ProjectionGradients& gradients) {
  if (gradients.dx.numel() > 0 && forward.back != nullptr) {
    forward.back->apply(forward.dy, gradients.dx, gradients.epilogue);
  } else if (gradients.dx.numel() > 0) {
    PackedLinear(transpose(forward.weight, 0, 1), {}, forward.dy.dtype())
        .apply(forward.dy, gradients.dx, gradients.epilogue);
  }
  if (gradients.dweight.numel() > 0) add_outer_products(forward, gradients.dweight);
  add_bias_gradient(forward, gradients);
}

void project_backward_reference(const Projection& forward, const ProjectionGradients& gradients) {
  if (gradients.dx.numel() > 0) matmul_into(forward.dy, forward.weight, gradients.dx);
  if (gradients.dweight.numel() > 0) add_textbook_products(forward, gradients.dweight);
  add_bias_gradient(forward, gradients);
}

}  // namespace cephalo
