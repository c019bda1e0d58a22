#pragma once

// What the files of the C interface share: exceptions become status codes, structs become views.
#include <exception>
#include <new>
#include <optional>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/c_api.h"
#include "cephalo/core/error.h"
#include "cephalo/mask/mask.h"

struct cephalo_mask {
  cephalo::Mask mask;
};

struct cephalo_layer {
  cephalo::MultiHeadAttention layer;
};

namespace cephalo::c_api {

// The status, after keeping the message for cephalo_last_error.
cephalo_status failed(cephalo_status status, const char* message) noexcept;
cephalo_status status_of(Error::Kind kind);
const char* last_error();

// Runs the body of a C function: whatever it throws becomes a status and a message.
template <typename Body>
cephalo_status guarded(Body&& body) noexcept {
  try {
    body();
    return CEPHALO_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(CEPHALO_ERROR_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return failed(CEPHALO_ERROR_INTERNAL, error.what());
  } catch (...) {
    return failed(CEPHALO_ERROR_INTERNAL, "an exception of an unknown type");
  }
}

[[noreturn]] void fail_null(const char* function, const char* argument);
template <typename T>
T& not_null(T* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) fail_null(function, argument);
  return *pointer;
}

DType dtype_of(int32_t dtype, const char* function, const char* argument);
MutableTensorView view_of(const cephalo_tensor* t, const char* function, const char* argument,
                          Device device = {});
// NULL: an empty view
MutableTensorView view_or_empty(const cephalo_tensor* t, const char* function, const char* argument,
                                Device device = {});
Device device_of(const cephalo_attend_options* options, const char* function);
const Mask& mask_or_none(const cephalo_mask* mask);

// The same for a call whose tensors are on a device: those of the mask are there too.
class MaskOn {
 public:
  MaskOn(const cephalo_mask* mask, Device device);
  const Mask& mask() const { return moved_ ? *moved_ : given_; }

 private:
  const Mask& given_;
  std::optional<Mask> moved_;
};
AttendOptions options_of(const cephalo_attend_options* options, const char* function);

void check_output(const MutableTensorView& out, const Shape& shape, DType dtype,
                  const char* function, const char* argument);
Shape with_width(const TensorView& t, dim_t width);  // t's shape with another last dimension
Shape without_width(const TensorView& t);
dim_t output_width(const MultiHeadAttention& layer);

}  // namespace cephalo::c_api
