#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

#include "cephalo/core/device.h"
#include "cephalo/core/dtype.h"
#include "cephalo/core/shape.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A typed view of memory that something else owns: cheap to copy, any strides, read-only. As with
// std::string_view, the memory must outlive the view. It may be on a device: then whatever reads or
// writes elements here refuses, and data() is an address for kernels of that device.
class TensorView {
 public:
  TensorView() = default;                                         // float32, shape [0]
  TensorView(const void* data, DType dtype, const Shape& shape);  // dense, row-major
  TensorView(const void* data, DType dtype, const Shape& shape, Device device);
  TensorView(const void* data, DType dtype, const Shape& shape, const Strides& strides,
             Device device = {});
  template <typename T>
  TensorView(const T* data, const Shape& shape) : TensorView(data, DTypeOf<T>::value, shape) {}

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  dim_t dim(int axis) const { return shape_[axis]; }
  dim_t numel() const { return cephalo::numel(shape_); }
  std::size_t bytes() const;  // numel · item size, whatever the strides
  bool is_contiguous() const;

  // Typed pointer to the first element, for the host; an error when T is not the element type or
  // the memory not the host's.
  template <typename T>
  const T* data_as() const {
    check_access(DTypeOf<T>::value);
    return static_cast<const T*>(data_);
  }

  // One element of any type as a double, with bounds checked: for looking, not for loops.
  double at(const Dims& index) const;

  TensorView select(int axis, dim_t index) const;            // that axis is gone
  TensorView slice(int axis, dim_t begin, dim_t end) const;  // that axis is end − begin long
  TensorView operator[](dim_t index) const { return select(0, index); }

 protected:
  void check_access(DType wanted) const {
    if (dtype_ != wanted || !device_.is_host()) fail_access(wanted);
  }
  [[noreturn]] void fail_access(DType wanted) const;
  void check_host(const char* function) const;
  dim_t offset_of(const Dims& index) const;

  const void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Device device_;
  Shape shape_{0};
  Strides strides_{1};
};

// The same, writable.
class MutableTensorView : public TensorView {
 public:
  MutableTensorView() = default;
  MutableTensorView(void* data, DType dtype, const Shape& shape) : TensorView(data, dtype, shape) {}
  MutableTensorView(void* data, DType dtype, const Shape& shape, Device device)
      : TensorView(data, dtype, shape, device) {}
  MutableTensorView(void* data, DType dtype, const Shape& shape, const Strides& strides,
                    Device device = {})
      : TensorView(data, dtype, shape, strides, device) {}

  void* mutable_data() const { return const_cast<void*>(data_); }
  template <typename T>
  T* mutable_data_as() const {
    check_access(DTypeOf<T>::value);
    return static_cast<T*>(mutable_data());
  }

  void set(const Dims& index, double value) const;
  void fill(double value) const;
  void copy_from(const TensorView& source) const;  // same shape; converts the element type

  MutableTensorView select(int axis, dim_t index) const;
  MutableTensorView slice(int axis, dim_t begin, dim_t end) const;
  MutableTensorView operator[](dim_t index) const { return select(0, index); }
};

// A number, or a list of such: what {{1, 2}, {3, 4}} means.
struct Numbers {
  Numbers(double single) : value(single) {}  // NOLINT: 1 is a number
  Numbers(std::initializer_list<Numbers> several) : list(several), is_list(true) {}
  double value = 0.0;
  std::vector<Numbers> list;
  bool is_list = false;
};

class Allocator;

// Owns dense row-major memory, 64-byte aligned on the host. Move-only; it is itself a view of what
// it owns, so it passes wherever a TensorView is taken.
class Tensor : public TensorView {
 public:
  Tensor() = default;
  static Tensor empty(const Shape& shape, DType dtype = DType::f32,
                      Device device = {});  // values undefined
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
  static Tensor copy(const TensorView& source);
  static Tensor copy(const TensorView& source, DType dtype);
  // Between the host and a device, after what is in the stream; elements on a device must be dense.
  static Tensor copy(const TensorView& source, Device device, void* stream = nullptr);

  // Small tensors from written-out numbers: Tensor::of({{1, 2}, {3, 4}}).
  static Tensor of(const Numbers& numbers, DType dtype = DType::f32);

  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  MutableTensorView mutable_view() & { return {storage_.get(), dtype_, shape_, strides_, device_}; }
  operator MutableTensorView() & { return mutable_view(); }  // NOLINT: an owner passes as a view
  void set(const Dims& index, double value) & { mutable_view().set(index, value); }
  template <typename T>
  T* mutable_data_as() & {
    return mutable_view().mutable_data_as<T>();
  }

  // The same elements under another shape of the same size; no memory moves.
  Tensor reshaped(const Shape& shape) &&;

 private:
  struct Release {
    Release() : allocator(nullptr) {}
    explicit Release(const Allocator* of_device) : allocator(of_device) {}
    void operator()(std::byte* memory) const;
    const Allocator* allocator;  // null: the host's
  };
  std::unique_ptr<std::byte[], Release> storage_;
};

}  // namespace cephalo
#pragma GCC visibility pop
