#include "cephalo/attention/cuda/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cephalo/core/cuda_device.h"
#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr dim_t kAlignment = 16;  // bytes
constexpr dim_t kFarthest = dim_t{1} << 40;
constexpr dim_t kPlane = 64;  // columns

// The driver's function, asked for at run time: the library needs no driver to load.
decltype(&cuTensorMapEncodeTiled) encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cuda::check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                               cudaEnableDefault, &found),
              "cuda: tensor maps");
  require(found == cudaDriverEntryPointSuccess, "cuda: the driver has no tensor maps");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// In bytes. The stride of an axis of one element is never used, but it must be a valid one.
dim_t byte_stride(const TensorView& t, int axis) {
  return t.dim(axis) == 1 ? t.dim(3) * 2 : t.strides()[axis] * 2;
}

cuuint64_t size_of(const TensorView& t, int axis) {
  return static_cast<cuuint64_t>(t.dim(axis));
}
cuuint64_t stride_of(const TensorView& t, int axis) {
  return static_cast<cuuint64_t>(byte_stride(t, axis));
}

// What a map says of a tensor, fastest axis first; columns are neighbours.
template <int kRank>
struct MapAxes {
  cuuint64_t sizes[kRank], strides[kRank - 1];
  cuuint32_t box[kRank];
};
template <int kRank>
kernels::cuda::TensorMap encoded(const TensorView& t, const MapAxes<kRank>& axes) {
  static_assert(sizeof(CUtensorMap) == sizeof(kernels::cuda::TensorMap));
  static const auto encode = encoder();
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const bool is_bf16 = t.dtype() == DType::bf16;
  CUtensorMap map;
  const CUresult error =
      encode(&map, is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             kRank, const_cast<void*>(t.data()), axes.sizes, axes.strides, axes.box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(error == CUDA_SUCCESS, "cuda: no tensor map for {} with strides {} (error {})", t.shape(),
          t.strides(), static_cast<int>(error));
  kernels::cuda::TensorMap result;
  std::memcpy(result.bytes, &map, sizeof(map));
  return result;
}

}  // namespace

bool fits_tensor_map(const TensorView& t) {
  return fits_bias_map(t) && (t.dim(3) <= kPlane || t.dim(3) % kPlane == 0);
}

bool fits_bias_map(const TensorView& t) {
  if (reinterpret_cast<std::uintptr_t>(t.data()) % kAlignment != 0) return false;
  if (t.strides()[3] != 1 || t.dim(3) * 2 % kAlignment != 0) return false;
  for (int axis = 0; axis < 3; ++axis) {
    const dim_t stride = byte_stride(t, axis);
    if (stride <= 0 || stride % kAlignment != 0 || stride >= kFarthest) return false;
  }
  return true;
}

kernels::cuda::TensorMap make_tensor_map(const TensorView& t, const BoxSize& box) {
  const auto columns = static_cast<cuuint64_t>(std::min(t.dim(3), kPlane));
  const auto planes = static_cast<cuuint64_t>(std::max<dim_t>(t.dim(3) / kPlane, 1));
  return encoded<5>(t, {{columns, size_of(t, 2), planes, size_of(t, 1), size_of(t, 0)},
                        {stride_of(t, 2), 128, stride_of(t, 1), stride_of(t, 0)},
                        {64, static_cast<cuuint32_t>(box.rows),
                         static_cast<cuuint32_t>(box.width / kPlane), 1, 1}});
}

kernels::cuda::BiasMap make_bias_map(const TensorView& bias) {
  return {
      encoded<4>(bias, {{size_of(bias, 3), size_of(bias, 2), size_of(bias, 1), size_of(bias, 0)},
                        {stride_of(bias, 2), stride_of(bias, 1), stride_of(bias, 0)},
                        {64, 64, 1, 1}}),
      bias.dim(0) > 1 ? 1 : 0, bias.dim(1) > 1 ? 1 : 0};
}

}  // namespace cephalo
