#include "cephalo/core/matmul.h"

#include <algorithm>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

// A piece of work is kRows × kColumns of one output matrix. Its rows of `a` and one panel of kPanel
// columns of `b` at a time are widened to float64 in scratch, where the inner loop is dense.
constexpr dim_t kRows = 32;
constexpr dim_t kColumns = 256;
constexpr dim_t kPanel = 16;

// A matrix inside a tensor: element (r, c) is at data[r * row_stride + c * column_stride].
struct Matrix {
  const void* data;
  DType dtype;
  dim_t row_stride;
  dim_t column_stride;
};

// The offset, in elements, of matrix number `matrix` in the leading dimensions of t.
dim_t matrix_offset(const TensorView& t, dim_t matrix) {
  dim_t offset = 0;
  for (int axis = t.rank() - 3; axis >= 0; --axis) {
    offset += matrix % t.shape()[axis] * t.strides()[axis];
    matrix /= t.shape()[axis];
  }
  return offset;
}

Matrix matrix_of(const TensorView& t, dim_t matrix) {
  const auto* data = static_cast<const std::byte*>(t.data());
  const dim_t bytes = matrix_offset(t, matrix) * static_cast<dim_t>(item_size(t.dtype()));
  return {data + bytes, t.dtype(), t.strides()[-2], t.strides()[-1]};
}

// m[row_begin .. +rows, column_begin .. +columns] to dense float64 rows of `width`.
void widen(const Matrix& m, dim_t row_begin, dim_t rows, dim_t column_begin, dim_t columns,
           dim_t width, double* out) {
  visit_dtype(m.dtype, [&](auto zero) {
    const auto* data = static_cast<const decltype(zero)*>(m.data) + row_begin * m.row_stride +
                       column_begin * m.column_stride;
    for (dim_t r = 0; r < rows; ++r) {
      for (dim_t c = 0; c < columns; ++c) {
        out[r * width + c] = load(data[r * m.row_stride + c * m.column_stride]);
      }
      std::fill(out + r * width + columns, out + (r + 1) * width, 0.0);
    }
  });
}

// sums[c] = Σ_k row[k] · panel[k][c], k ascending; keep may be null.
void multiply_row(const double* row, const std::uint8_t* keep, const double* panel, dim_t depth,
                  double* sums) {
  double chain[kPanel] = {};
  for (dim_t k = 0; k < depth; ++k) {
    if (keep != nullptr && keep[k] == 0) continue;
    const double factor = row[k];
    const double* terms = panel + k * kPanel;
    for (dim_t c = 0; c < kPanel; ++c) chain[c] += factor * terms[c];
  }
  std::copy(chain, chain + kPanel, sums);
}

struct Product {
  const TensorView& a;
  const TensorView& b;
  const TensorView* bias;  // [N] or null
  const MutableTensorView& out;
  RowFilter filter;
  dim_t M, N, K;

  // One piece: out[row_begin .. , column_begin ..] of one matrix.
  void compute(dim_t matrix, dim_t row_begin, dim_t column_begin, std::byte* scratch) const {
    const dim_t rows = std::min(kRows, M - row_begin);
    const dim_t column_end = std::min(column_begin + kColumns, N);
    auto* a_rows = reinterpret_cast<double*>(scratch);
    double* panel = a_rows + kRows * K;
    auto* keep = reinterpret_cast<std::uint8_t*>(panel + kPanel * K);
    widen(matrix_of(a, matrix), row_begin, rows, 0, K, K, a_rows);
    if (filter.fill != nullptr) {
      for (dim_t r = 0; r < rows; ++r) {
        filter.fill(filter.context, matrix, row_begin + r, keep + r * K);
      }
    }
    for (dim_t column = column_begin; column < column_end; column += kPanel) {
      const dim_t columns = std::min(kPanel, column_end - column);
      widen(matrix_of(b, matrix), 0, K, column, columns, kPanel, panel);
      double added[kPanel] = {};
      if (bias != nullptr) {
        widen({bias->data(), bias->dtype(), 0, bias->strides()[0]}, 0, 1, column, columns, kPanel,
              added);
      }
      for (dim_t r = 0; r < rows; ++r) {
        double sums[kPanel];
        multiply_row(a_rows + r * K, filter.fill != nullptr ? keep + r * K : nullptr, panel, K,
                     sums);
        if (bias != nullptr) {
          for (dim_t c = 0; c < columns; ++c) sums[c] += added[c];
        }
        write(matrix, row_begin + r, column, columns, sums);
      }
    }
  }

  void write(dim_t matrix, dim_t row, dim_t column, dim_t columns, const double* sums) const {
    const dim_t stride = out.strides()[-1];
    const dim_t base = matrix_offset(out, matrix) + row * out.strides()[-2] + column * stride;
    visit_dtype(out.dtype(), [&](auto zero) {
      auto* to = static_cast<decltype(zero)*>(out.mutable_data()) + base;
      for (dim_t c = 0; c < columns; ++c) store(sums[c], to + c * stride);
    });
  }
};

void run(const Product& product, dim_t matrices) {
  const dim_t row_blocks = (product.M + kRows - 1) / kRows;
  const dim_t column_blocks = (product.N + kColumns - 1) / kColumns;
  const Region region{.pieces = matrices * row_blocks * column_blocks,
                      .flops = 2.0 * static_cast<double>(matrices * product.M) *
                               static_cast<double>(product.N) * static_cast<double>(product.K),
                      .scratch_bytes = static_cast<std::size_t>(
                          product.K * ((kRows + kPanel) * sizeof(double) + kRows))};
  parallel_for(region, [&](dim_t piece, std::byte* scratch) {
    const dim_t column_block = piece % column_blocks;
    const dim_t row_block = piece / column_blocks % row_blocks;
    product.compute(piece / column_blocks / row_blocks, row_block * kRows, column_block * kColumns,
                    scratch);
  });
}

}  // namespace

void matmul_into(const TensorView& a, const TensorView& b, const MutableTensorView& out,
                 RowFilter filter) {
  if (out.numel() == 0) return;
  require_host("matmul", {{"a", a}, {"b", b}, {"out", out}});
  const dim_t matrices = out.numel() / (out.dim(-2) * out.dim(-1));
  run({a, b, nullptr, out, filter, out.dim(-2), out.dim(-1), a.dim(-1)}, matrices);
}

void linear_into(const TensorView& x, const TensorView& weight, const TensorView* bias,
                 const MutableTensorView& out) {
  if (out.numel() == 0) return;
  const TensorView none;
  require_host(
      "linear",
      {{"x", x}, {"weight", weight}, {"bias", bias != nullptr ? *bias : none}, {"out", out}});
  const TensorView columns = transpose(weight, 0, 1);
  const dim_t d_in = weight.dim(1);
  const dim_t d_out = weight.dim(0);
  if (x.rank() == 1 || (x.is_contiguous() && out.is_contiguous())) {  // all tokens, one matrix
    const dim_t tokens = out.numel() / d_out;
    const TensorView rows(x.data(), x.dtype(), {tokens, d_in}, {d_in, x.strides()[-1]});
    const MutableTensorView to(out.mutable_data(), out.dtype(), {tokens, d_out},
                               {d_out, out.strides()[-1]});
    run({rows, columns, bias, to, {}, tokens, d_out, d_in}, 1);
    return;
  }
  // The leading dimensions act as matrices of [tokens, d_in], all with the one weight.
  Shape repeated = x.shape();
  repeated[-2] = d_in;
  repeated[-1] = d_out;
  const TensorView shared = broadcast_to(columns, repeated);
  run({x, shared, bias, out, {}, x.dim(-2), d_out, d_in}, out.numel() / (x.dim(-2) * d_out));
}

}  // namespace cephalo
