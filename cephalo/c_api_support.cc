#include "cephalo/c_api_support.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "cephalo/attention/plan.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"

namespace cephalo::c_api {
namespace {

thread_local std::string message_of_this_thread;
thread_local const char* error_of_this_thread = "";

Engine engine_of(int32_t engine, const char* function) {
  if (engine == CEPHALO_ENGINE_AUTO) return Engine::automatic;
  for (const NamedEngine& each : named_engines()) {
    if (static_cast<int32_t>(each.engine) == engine) return each.engine;
  }
  fail(Error::Kind::value, "{}: there is no engine {}", function, engine);
}
static_assert(static_cast<int32_t>(Engine::automatic) == CEPHALO_ENGINE_AUTO &&
              static_cast<int32_t>(Engine::reference) == CEPHALO_ENGINE_REFERENCE &&
              static_cast<int32_t>(Engine::fused) == CEPHALO_ENGINE_FUSED &&
              static_cast<int32_t>(Engine::cuda) == CEPHALO_ENGINE_CUDA &&
              static_cast<int32_t>(Engine::cuda_simple) == CEPHALO_ENGINE_CUDA_SIMPLE);

Arithmetic arithmetic_of(int32_t arithmetic, const char* function) {
  require(arithmetic == CEPHALO_EXACT || arithmetic == CEPHALO_BF16X3,
          "{}: there is no arithmetic {}", function, arithmetic);
  return static_cast<Arithmetic>(arithmetic);
}
static_assert(static_cast<int32_t>(Arithmetic::exact) == CEPHALO_EXACT &&
              static_cast<int32_t>(Arithmetic::bf16x3) == CEPHALO_BF16X3);

}  // namespace

cephalo_status failed(cephalo_status status, const char* message) noexcept {
  try {
    message_of_this_thread = printable(message);
    error_of_this_thread = message_of_this_thread.c_str();
  } catch (...) {  // there is not even memory to say so
    error_of_this_thread = "no memory";
  }
  return status;
}

const char* last_error() {
  return error_of_this_thread;
}

cephalo_status status_of(Error::Kind kind) {
  switch (kind) {
    case Error::Kind::value:
      return CEPHALO_ERROR_VALUE;
    case Error::Kind::type:
      return CEPHALO_ERROR_TYPE;
    case Error::Kind::io:
      return CEPHALO_ERROR_IO;
    case Error::Kind::memory:
      return CEPHALO_ERROR_MEMORY;
  }
  return CEPHALO_ERROR_INTERNAL;
}

void fail_null(const char* function, const char* argument) {
  fail(Error::Kind::value, "{}: {} is NULL", function, argument);
}

// DType has the same numbers: only the range is checked.
static_assert(static_cast<int>(DType::f32) == CEPHALO_FLOAT32);
static_assert(static_cast<int>(DType::f16) == CEPHALO_FLOAT16);
static_assert(static_cast<int>(DType::i64) == CEPHALO_INT64);
static_assert(static_cast<int>(DType::u8) == CEPHALO_UINT8);
static_assert(static_cast<int>(DType::boolean) == CEPHALO_BOOL);
DType dtype_of(int32_t dtype, const char* function, const char* argument) {
  require_type(dtype >= CEPHALO_FLOAT32 && dtype <= CEPHALO_BOOL, "{}: {} has the unknown dtype {}",
               function, argument, dtype);
  return static_cast<DType>(dtype);
}

MutableTensorView view_of(const cephalo_tensor* t, const char* function, const char* argument,
                          Device device) {
  const cephalo_tensor& tensor = not_null(t, function, argument);
  require(tensor.rank >= 0 && tensor.rank <= 4, "{}: {} has rank {}; 0 to 4 is supported", function,
          argument, tensor.rank);
  Shape shape;
  Strides strides;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    require(tensor.shape[axis] >= 0, "{}: {} has a dimension of {}", function, argument,
            tensor.shape[axis]);
    shape.push_back(tensor.shape[axis]);
    strides.push_back(tensor.strides[axis]);
  }
  require(tensor.data != nullptr || numel(shape) == 0, "{}: the data of {} {} is NULL", function,
          argument, shape);
  return {tensor.data, dtype_of(tensor.dtype, function, argument), shape, strides, device};
}

Device device_of(const cephalo_attend_options* options, const char* function) {
  const int32_t device = options == nullptr ? CEPHALO_HOST : options->device;
  if (device == CEPHALO_HOST) return {};
  constexpr int32_t kLast = CEPHALO_CUDA + std::numeric_limits<std::uint8_t>::max();
  require(device >= CEPHALO_CUDA && device <= kLast, "{}: there is no device {}", function, device);
  return {DeviceKind::cuda, static_cast<std::uint8_t>(device - CEPHALO_CUDA)};
}

MutableTensorView view_or_empty(const cephalo_tensor* t, const char* function, const char* argument,
                                Device device) {
  return t == nullptr ? MutableTensorView() : view_of(t, function, argument, device);
}

MaskOn::MaskOn(const cephalo_mask* mask, Device device) : given_(mask_or_none(mask)) {
  if (device.is_host() || given_.tensors.empty()) return;
  moved_ = given_;
  for (MaskTensor& part : moved_->tensors) {
    const TensorView& t = part.view;
    part.view = TensorView(t.data(), t.dtype(), t.shape(), t.strides(), device);
  }
}

const Mask& mask_or_none(const cephalo_mask* mask) {
  static const Mask none;
  return mask == nullptr ? none : mask->mask;
}

AttendOptions options_of(const cephalo_attend_options* wanted, const char* function) {
  const cephalo_attend_options o = wanted == nullptr ? cephalo_attend_options_default() : *wanted;
  AttendOptions options;
  if (!std::isnan(o.scale)) options.scale = o.scale;
  if (o.softcap != 0.0) options.softcap = o.softcap;
  options.dropout = o.dropout;
  options.seed = o.seed;
  options.engine = engine_of(o.engine, function);
  options.threads = o.threads;
  options.stream = o.stream;
  options.deterministic = o.any_order == 0;
  options.arithmetic = arithmetic_of(o.arithmetic, function);
  options.device_seed = o.device_seed;
  return options;
}

void check_output(const MutableTensorView& out, const Shape& shape, DType dtype,
                  const char* function, const char* argument) {
  require(out.shape() == shape, "{}: {} has shape {}, the result is {}", function, argument,
          out.shape(), shape);
  require_type(out.dtype() == dtype, "{}: {} is {}, the result is {}", function, argument,
               name(out.dtype()), name(dtype));
  for (int axis = 0; axis < out.rank(); ++axis) {
    require(out.dim(axis) <= 1 || out.strides()[axis] != 0,
            "{}: {} {} has stride 0 in axis {}: elements would overwrite each other", function,
            argument, shape, axis);
  }
}

Shape with_width(const TensorView& t, dim_t width) {
  Shape shape = t.shape();
  shape[-1] = width;
  return shape;
}

Shape without_width(const TensorView& t) {
  Shape shape;
  for (int axis = 0; axis + 1 < t.rank(); ++axis) shape.push_back(t.dim(axis));
  return shape;
}

dim_t output_width(const MultiHeadAttention& layer) {
  const MultiHeadAttentionOptions& o = layer.options();
  if (o.out_proj) return o.d_out;
  return o.num_heads * (o.v_dim == 0 ? layer.head_dim() : o.v_dim);
}

}  // namespace cephalo::c_api
