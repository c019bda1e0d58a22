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

}  // namespace

bool fits_tensor_map(const TensorView& t) {
  if (reinterpret_cast<std::uintptr_t>(t.data()) % kAlignment != 0) return false;
  if (t.strides()[3] != 1 || t.dim(3) * 2 % kAlignment != 0) return false;
  if (t.dim(3) > kPlane && t.dim(3) % kPlane != 0) return false;
  for (int axis = 0; axis < 3; ++axis) {
    const dim_t stride = byte_stride(t, axis);
    if (stride <= 0 || stride % kAlignment != 0 || stride >= kFarthest) return false;
  }
  return true;
}

kernels::cuda::TensorMap make_tensor_map(const TensorView& t, const BoxSize& box_size) {
  static_assert(sizeof(CUtensorMap) == sizeof(kernels::cuda::TensorMap));
  static const auto encode = encoder();
  const auto size = [&](int axis) { return static_cast<cuuint64_t>(t.dim(axis)); };
  const auto stride = [&](int axis) { return static_cast<cuuint64_t>(byte_stride(t, axis)); };
  const auto columns = static_cast<cuuint64_t>(std::min(t.dim(3), kPlane));
  const auto planes = static_cast<cuuint64_t>(std::max<dim_t>(t.dim(3) / kPlane, 1));
  const cuuint64_t sizes[5] = {columns, size(2), planes, size(1), size(0)};
  const cuuint64_t strides[4] = {stride(2), 128, stride(1), stride(0)};
  const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(box_size.rows),
                             static_cast<cuuint32_t>(box_size.width / kPlane), 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const bool is_bf16 = t.dtype() == DType::bf16;
  CUtensorMap map;
  const CUresult error =
      encode(&map, is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5,
             const_cast<void*>(t.data()), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(error == CUDA_SUCCESS, "cuda: no tensor map for {} with strides {} (error {})", t.shape(),
          t.strides(), static_cast<int>(error));
  kernels::cuda::TensorMap result;
  std::memcpy(result.bytes, &map, sizeof(map));
  return result;
}

}  // namespace cephalo
