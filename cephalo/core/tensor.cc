#include "cephalo/core/tensor.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "cephalo/core/allocator.h"
#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/memory_limit.h"
#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

constexpr std::align_val_t kAlignment{64};  // one cache line, one AVX-512 register

// Refused here rather than by the kernel's out-of-memory killer: a request beyond the machine's
// memory would be granted lazily and end the process later.
std::byte* allocate(dim_t bytes, const Shape& shape, DType dtype) {
  if (bytes > physical_memory()) {
    fail(Error::Kind::memory, "tensor: {} of {} needs {}", shape, name(dtype),
         against_memory(bytes));
  }
  void* memory = ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow);
  if (memory == nullptr) {
    fail(Error::Kind::memory, "tensor: no memory for {} of {} ({} bytes)", shape, name(dtype),
         bytes);
  }
  return static_cast<std::byte*>(memory);
}

dim_t byte_offset(DType dtype, dim_t elements) {
  return elements * static_cast<dim_t>(item_size(dtype));
}

const void* advance(const void* data, DType dtype, dim_t elements) {
  return static_cast<const std::byte*>(data) + byte_offset(dtype, elements);
}

void* advance(void* data, DType dtype, dim_t elements) {
  return static_cast<std::byte*>(data) + byte_offset(dtype, elements);
}

// One element in another type. A bfloat16 is the upper half of a float32: without a call or a
// rounding the compiler does many at once, and models are stored so.
template <typename To, typename From>
[[gnu::always_inline]] inline void convert(const From& from, To* to) {
  if constexpr (std::is_same_v<To, float> && std::is_same_v<From, BFloat16>) {
    *to = std::bit_cast<float>(static_cast<std::uint32_t>(from.bits) << 16);
  } else {
    store(load(from), to);
  }
}

// One row of `count` elements, of the types it was made for.
using CopyRow = void (*)(void* to, dim_t to_stride, const void* from, dim_t from_stride,
                         dim_t count);

template <typename To, typename From>
void copy_row(void* to_data, dim_t to_stride, const void* from_data, dim_t from_stride,
              dim_t count) {
  auto* to = static_cast<To*>(to_data);
  const auto* from = static_cast<const From*>(from_data);
  if constexpr (std::is_same_v<To, From>) {
    if (to_stride == 1 && from_stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
      return;
    }
    for (dim_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  } else if (to_stride == 1 && from_stride == 1) {
    for (dim_t i = 0; i < count; ++i) convert(from[i], &to[i]);  // many at a time
  } else {
    for (dim_t i = 0; i < count; ++i) convert(from[i * from_stride], &to[i * to_stride]);
  }
}

// The last two axes, where rows of `from` are columns of `to`: some rows at a time, or each element
// would bring a line of the cache along.
void copy_transposed(CopyRow copy_row, const MutableTensorView& to, void* to_data,
                     const TensorView& from, const void* from_data) {
  constexpr dim_t kRows = 32;
  const dim_t rows = to.dim(-2);
  const dim_t columns = to.dim(-1);
  const dim_t to_row = to.strides()[-2], to_column = to.strides()[-1];
  const dim_t from_row = from.strides()[-2], from_column = from.strides()[-1];
  for (dim_t i = 0; i < rows; i += kRows) {
    for (dim_t j = 0; j < columns; ++j) {
      copy_row(advance(to_data, to.dtype(), i * to_row + j * to_column), to_row,
               advance(from_data, from.dtype(), i * from_row + j * from_column), from_row,
               std::min(kRows, rows - i));
    }
  }
}

// Copies one axis at a time, innermost last; `to` and `from` have the same shape. Not a template:
// with a copy for each pair of types it was the slowest file to compile outside of kernels/.
void copy_axis(CopyRow copy_row, const MutableTensorView& to, void* to_data, const TensorView& from,
               const void* from_data, int axis) {
  const dim_t count = to.shape()[axis];
  if (axis + 1 == to.rank()) {
    copy_row(to_data, to.strides()[axis], from_data, from.strides()[axis], count);
    return;
  }
  if (axis + 2 == to.rank() && to.strides()[axis] == 1 && from.strides()[axis + 1] == 1) {
    copy_transposed(copy_row, to, to_data, from, from_data);
    return;
  }
  for (dim_t i = 0; i < count; ++i) {
    copy_axis(copy_row, to, advance(to_data, to.dtype(), i * to.strides()[axis]), from,
              advance(from_data, from.dtype(), i * from.strides()[axis]), axis + 1);
  }
}

void write_numbers(const Numbers& numbers, const MutableTensorView& to) {
  if (to.rank() == 0) {
    require(!numbers.is_list, "Tensor::of: a list was found where a number was expected");
    to.set({}, numbers.value);
    return;
  }
  require(numbers.is_list && std::ssize(numbers.list) == to.dim(0),
          "Tensor::of: rows differ in length ({} and {})", to.dim(0), numbers.list.size());
  dim_t i = 0;
  for (const Numbers& part : numbers.list) write_numbers(part, to[i++]);
}

}  // namespace

TensorView::TensorView(const void* data, DType dtype, const Shape& shape)
    : TensorView(data, dtype, shape, contiguous_strides(shape)) {}

TensorView::TensorView(const void* data, DType dtype, const Shape& shape, Device device)
    : TensorView(data, dtype, shape, contiguous_strides(shape), device) {}

TensorView::TensorView(const void* data, DType dtype, const Shape& shape, const Strides& strides,
                       Device device)
    : data_(data), dtype_(dtype), device_(device), shape_(shape), strides_(strides) {
  require(shape.rank() == strides.rank(), "tensor: shape {} and strides {} differ in rank", shape,
          strides);
  require(data != nullptr || cephalo::numel(shape) == 0, "tensor: null data for shape {}", shape);
  // Elements are read as what they are, which no address between two of them allows.
  require(reinterpret_cast<std::uintptr_t>(data) % item_size(dtype) == 0,
          "tensor: {} elements must lie at a multiple of {} bytes; copy them", name(dtype),
          item_size(dtype));
}

std::size_t TensorView::bytes() const {
  return static_cast<std::size_t>(checked_mul(numel(), static_cast<dim_t>(item_size(dtype_))));
}

bool TensorView::is_contiguous() const {
  dim_t expected = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] == 0) return true;
    // The stride of an axis of one element is never used.
    if (shape_[axis] != 1 && strides_[axis] != expected) return false;
    expected *= shape_[axis];
  }
  return true;
}

void TensorView::fail_access(DType wanted) const {
  check_host("tensor");
  fail(Error::Kind::type, "tensor: elements are {}, not {}", name(dtype_), name(wanted));
}

void TensorView::check_host(const char* function) const {
  require(device_.is_host(), "{}: elements lie on {}, not on the host", function, device_);
}

dim_t TensorView::offset_of(const Dims& index) const {
  require(index.rank() == rank(), "tensor: index {} does not fit shape {}", index, shape_);
  dim_t offset = 0;
  for (int axis = 0; axis < rank(); ++axis) {
    require(index[axis] >= 0 && index[axis] < shape_[axis], "tensor: index {} outside shape {}",
            index, shape_);
    offset += index[axis] * strides_[axis];
  }
  return offset;
}

double TensorView::at(const Dims& index) const {
  check_host("at");
  const void* element = advance(data_, dtype_, offset_of(index));
  return visit_dtype(dtype_,
                     [&](auto zero) { return load(*static_cast<const decltype(zero)*>(element)); });
}

TensorView TensorView::select(int axis, dim_t index) const {
  require(index >= 0 && index < shape_[axis], "select: index {} outside axis {} of {}", index, axis,
          shape_);
  const int chosen = axis < 0 ? axis + rank() : axis;
  Shape shape;
  Strides strides;
  for (int k = 0; k < rank(); ++k) {
    if (k == chosen) continue;
    shape.push_back(shape_[k]);
    strides.push_back(strides_[k]);
  }
  return {advance(data_, dtype_, index * strides_[axis]), dtype_, shape, strides, device_};
}

TensorView TensorView::slice(int axis, dim_t begin, dim_t end) const {
  require(0 <= begin && begin <= end && end <= shape_[axis], "slice: [{}, {}) of axis {} of {}",
          begin, end, axis, shape_);
  TensorView part = *this;
  part.shape_[axis] = end - begin;
  if (begin < end) part.data_ = advance(data_, dtype_, begin * strides_[axis]);
  return part;
}

void MutableTensorView::set(const Dims& index, double value) const {
  check_host("set");
  void* element = static_cast<std::byte*>(mutable_data()) + byte_offset(dtype_, offset_of(index));
  visit_dtype(dtype_, [&](auto zero) { store(value, static_cast<decltype(zero)*>(element)); });
}

void MutableTensorView::fill(double value) const {
  check_host("fill");
  // A source with stride 0 everywhere reads the one value again and again.
  Strides still = strides_;
  for (dim_t& stride : still) stride = 0;
  copy_from(TensorView(&value, DType::f64, shape_, still));
}

void MutableTensorView::copy_from(const TensorView& source) const {
  require(source.shape() == shape_, "copy: shape {} into shape {}", source.shape(), shape_);
  if (numel() == 0) return;
  require(source.device().is_host() && device_.is_host(),
          "copy: from {} to {}; the host copies only its own memory", source.device(), device_);
  visit_dtype(dtype_, [&](auto to_zero) {
    visit_dtype(source.dtype(), [&](auto from_zero) {
      const CopyRow row = copy_row<decltype(to_zero), decltype(from_zero)>;
      if (rank() == 0) {
        row(mutable_data(), 1, source.data(), 1, 1);
      } else {
        copy_axis(row, *this, mutable_data(), source, source.data(), 0);
      }
    });
  });
}

MutableTensorView MutableTensorView::select(int axis, dim_t index) const {
  const TensorView part = TensorView::select(axis, index);
  return {const_cast<void*>(part.data()), part.dtype(), part.shape(), part.strides(), device_};
}

MutableTensorView MutableTensorView::slice(int axis, dim_t begin, dim_t end) const {
  const TensorView part = TensorView::slice(axis, begin, end);
  return {const_cast<void*>(part.data()), part.dtype(), part.shape(), part.strides(), device_};
}

void Tensor::Release::operator()(std::byte* memory) const {
  if (allocator != nullptr) {
    allocator->release(memory);
  } else {
    ::operator delete(memory, kAlignment);
  }
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor tensor;
  const dim_t bytes = checked_mul(cephalo::numel(shape), static_cast<dim_t>(item_size(dtype)));
  if (device.is_host()) {
    tensor.storage_.reset(allocate(bytes, shape, dtype));
  } else {
    const Allocator& allocator = allocator_of(device);
    void* memory = allocator.allocate(static_cast<std::size_t>(bytes));
    tensor.storage_ =
        std::unique_ptr<std::byte[], Release>(static_cast<std::byte*>(memory), Release(&allocator));
  }
  tensor.data_ = tensor.storage_.get();
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  tensor.shape_ = shape;
  tensor.strides_ = contiguous_strides(shape);
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  std::memset(tensor.storage_.get(), 0, tensor.bytes());  // all-zero bytes are 0 in every type
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  tensor.mutable_view().fill(value);
  return tensor;
}

Tensor Tensor::copy(const TensorView& source) {
  return copy(source, source.dtype());
}

Tensor Tensor::copy(const TensorView& source, DType dtype) {
  Tensor tensor = empty(source.shape(), dtype);
  tensor.mutable_view().copy_from(source);
  return tensor;
}

Tensor Tensor::copy(const TensorView& source, Device device, void* stream) {
  if (device.is_host() && source.device().is_host()) return copy(source);
  require(device.is_host() || source.device().is_host(),
          "copy: from {} to {}; one of them must be the host", source.device(), device);
  const UseStream use(stream);
  Tensor tensor = empty(source.shape(), source.dtype(), device);
  if (tensor.numel() == 0) return tensor;
  if (device.is_host()) {
    require(source.is_contiguous(), "copy: a tensor {} on {} with strides {} is not dense",
            source.shape(), source.device(), source.strides());
    allocator_of(source.device()).copy_out(tensor.storage_.get(), source.data(), tensor.bytes());
  } else {
    const Tensor dense = copy(source);
    allocator_of(device).copy_in(tensor.storage_.get(), dense.data(), tensor.bytes());
  }
  return tensor;
}

Tensor Tensor::of(const Numbers& numbers, DType dtype) {
  Shape shape;
  for (const Numbers* at = &numbers; at->is_list; at = &at->list.front()) {
    shape.push_back(std::ssize(at->list));
    if (at->list.empty()) break;
  }
  Tensor tensor = empty(shape, dtype);
  write_numbers(numbers, tensor);
  return tensor;
}

Tensor::Tensor(Tensor&& other) noexcept : TensorView(other), storage_(std::move(other.storage_)) {
  static_cast<TensorView&>(other) = TensorView();
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this != &other) {
    static_cast<TensorView&>(*this) = other;
    storage_ = std::move(other.storage_);
    static_cast<TensorView&>(other) = TensorView();
  }
  return *this;
}

Tensor Tensor::reshaped(const Shape& shape) && {
  require(cephalo::numel(shape) == numel(), "reshaped: {} elements of {} do not fill {}", numel(),
          shape_, shape);
  shape_ = shape;
  strides_ = contiguous_strides(shape);
  return std::move(*this);
}

}  // namespace cephalo
