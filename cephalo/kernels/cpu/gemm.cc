// Matrix products from the same register tile as attention: rows are broadcast, columns are lanes.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/gemm.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

// One row of a tile into C, whole.
template <int n, typename T>
HWY_INLINE void store_row(const PanelProduct<T, T>& p, const Raw<T> (&sums)[n], T* c) {
  const Tag<T> d;
  CEPHALO_UNROLL
  for (int v = 0; v < n; ++v) {
    Vec<T> sum{sums[v]};
    if (!p.begin) sum = hn::Add(hn::LoadU(d, c + v * kLanes<T>), sum);
    if (p.bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, p.bias + v * kLanes<T>));
    hn::StoreU(sum, d, c + v * kLanes<T>);
  }
}

// The same where C ends inside the panel.
template <int n, typename T>
HWY_NOINLINE void store_part_of_row(const PanelProduct<T, T>& p, const T* sums, T* c) {
  for (dim_t k = 0; k < p.column_count; ++k) {
    const T sum = p.begin ? sums[k] : c[k] + sums[k];
    c[k] = p.bias != nullptr ? sum + p.bias[k] : sum;
  }
}

template <int n, typename T>
HWY_INLINE void multiply_tiles(const PanelProduct<T, T>& p) {
  const Tag<T> d;
  constexpr dim_t kWidth = n * kLanes<T>;
  for (dim_t row = 0; row < p.row_count; row += kRows) {
    const dim_t rows = p.row_count - row < kRows ? p.row_count - row : kRows;
    T* c = p.c + row * p.c_stride;
    for (dim_t r = 0; r < rows; ++r) {
      __builtin_prefetch(c + r * p.c_stride, 1, 3);
      __builtin_prefetch(c + r * p.c_stride + kWidth - 1, 1, 3);
    }
    Raw<T> sums[kRows][n];
    set_zero<n, T>(sums);
    multiply<n, T>(p.a + row * p.depth, p.b, kWidth, p.depth, sums);
    if (HWY_LIKELY(rows == kRows && p.column_count == kWidth)) {
      CEPHALO_UNROLL
      for (int r = 0; r < kRows; ++r) store_row<n, T>(p, sums[r], c + r * p.c_stride);
    } else {
      HWY_ALIGN T whole[kRows][kWidth];
      CEPHALO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        CEPHALO_UNROLL
        for (int v = 0; v < n; ++v) hn::StoreU(Vec<T>{sums[r][v]}, d, whole[r] + v * kLanes<T>);
      }
      for (dim_t r = 0; r < rows; ++r) store_part_of_row<n, T>(p, whole[r], c + r * p.c_stride);
    }
  }
}

template <typename T>
HWY_NOINLINE void multiply_panel(const PanelProduct<T, T>& p) {
  switch (p.columns) {
    case 3:
      return multiply_tiles<3, T>(p);
    case 2:
      return multiply_tiles<2, T>(p);
    default:
      return multiply_tiles<1, T>(p);
  }
}

template <typename T>
void fill_gemm(GemmKernels<T, T>* table) {
  *table = {kRows, kLanes<T>, multiply_panel<T>};
}

void gemm_f32(GemmKernels<float, float>* table) {
  fill_gemm(table);
}
#if HWY_HAVE_FLOAT64
void gemm_f64(GemmKernels<double, double>* table) {
  fill_gemm(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_gemm_kernels(Isa isa, GemmKernels<float, float>* table) {
  CEPHALO_FOR_ISA(isa, gemm_f32)(table);
}
void add_gemm_kernels(Isa isa, GemmKernels<double, double>* table) {
  CEPHALO_FOR_ISA_F64(isa, gemm_f64)(table);
}
}  // namespace cephalo::kernels
#endif
