#include "bindings/arrays/arrays.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/arrays/array.h"
#include "bindings/arrays/exchange.h"
#include "bindings/arrays/refusals.h"
#include "bindings/arrays/torch_names.h"
#include "cephalo/core/allocator.h"
#include "cephalo/core/error.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

using nb::dlpack::dtype_code;

std::optional<Kind> kind_of_module(nb::handle type) {
  const nb::object module = nb::getattr(type, "__module__", nb::none());
  if (!nb::isinstance<nb::str>(module)) return std::nullopt;
  const std::string_view name = nb::borrow<nb::str>(module).c_str();
  const std::string_view first = name.substr(0, name.find('.'));
  if (first == "numpy") return Kind::numpy;
  if (first == "torch") return Kind::torch;
  if (first == "jax" || first == "jaxlib") return Kind::jax;
  if (first == "cupy") return Kind::cupy;
  return std::nullopt;
}

std::optional<DType> dtype_of(nb::dlpack::dtype given, bool unsigned_too) {
  if (given.lanes != 1) return std::nullopt;
  switch (static_cast<dtype_code>(given.code)) {
    case dtype_code::Float:
      if (given.bits == 16) return DType::f16;
      if (given.bits == 32) return DType::f32;
      if (given.bits == 64) return DType::f64;
      return std::nullopt;
    case dtype_code::Bfloat:
      if (given.bits == 16) return DType::bf16;
      return std::nullopt;
    case dtype_code::Bool:
      if (given.bits == 8) return DType::boolean;
      return std::nullopt;
    case dtype_code::UInt:
      if (given.bits == 8) return DType::u8;
      if (!unsigned_too) return std::nullopt;
      [[fallthrough]];
    case dtype_code::Int:
      if (given.bits == 8) return DType::i8;
      if (given.bits == 16) return DType::i16;
      if (given.bits == 32) return DType::i32;
      if (given.bits == 64) return DType::i64;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// NumPy exports no array of a type it does not know itself; ml_dtypes' bfloat16 is two bytes of it.
bool is_numpy_bfloat16(nb::handle array) {
  const nb::object dtype = nb::getattr(array, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(name) &&
         std::strcmp(nb::borrow<nb::str>(name).c_str(), "bfloat16") == 0;
}

struct Layout {
  void* data;
  DType dtype;
  Shape shape;
  Strides strides;
  Device device;
};

// The device of DLPack's numbers, where this build computes on it.
std::optional<Device> gpu_of(const nb::dlpack::dltensor& tensor) {
  const auto [type, id] = tensor.device;
  constexpr int kIndices = 256;
  if (type != nb::device::cuda::value || id < 0 || id >= kIndices) return std::nullopt;
  const Device device{DeviceKind::cuda, static_cast<std::uint8_t>(id)};
  try {
    allocator_of(device);
  } catch (const Error&) {
    return std::nullopt;
  }
  return device;
}

// Of an array that was imported: what it is, or why it is not taken.
Layout layout_of(const nb::dlpack::dltensor& tensor, nb::handle source, const Who& who,
                 std::optional<DType> dtype, bool on_gpu) {
  std::optional<Device> device;
  if (on_gpu) device = gpu_of(tensor);
  if (!device && !is_on_cpu(tensor.device.device_type)) {
    refuse_device(who, tensor.device.device_type, tensor.device.device_id);
  }
  if (!dtype) refuse_dtype(source, who);
  if (tensor.ndim > kMaxRank) {
    throw nb::value_error(format_text("{} has {} dimensions; at most {} are supported",
                                      std::string(who), tensor.ndim, kMaxRank)
                              .c_str());
  }
  Layout layout{static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
                *dtype,
                {},
                {},
                device.value_or(Device{})};
  if (reinterpret_cast<std::uintptr_t>(layout.data) % item_size(*dtype) != 0) {
    throw nb::value_error(
        format_text("{} is {} at an address that is not a multiple of {}; pass a copy",
                    std::string(who), name(*dtype), item_size(*dtype))
            .c_str());
  }
  for (int axis = 0; axis < tensor.ndim; ++axis) layout.shape.push_back(tensor.shape[axis]);
  if (tensor.strides == nullptr) {
    layout.strides = contiguous_strides(layout.shape);
  } else {
    for (int axis = 0; axis < tensor.ndim; ++axis) layout.strides.push_back(tensor.strides[axis]);
  }
  return layout;
}

template <typename Array>
nb::dlpack::dltensor described(const Array& array) {
  nb::dlpack::dltensor tensor;
  tensor.data = array.data_handle();
  tensor.device = {array.device_type(), array.device_id()};
  tensor.ndim = static_cast<std::int32_t>(array.ndim());
  tensor.dtype = array.dtype();
  tensor.shape = const_cast<std::int64_t*>(array.shape_ptr());
  tensor.strides = const_cast<std::int64_t*>(array.stride_ptr());
  tensor.byte_offset = array.byte_offset();
  return tensor;
}

// Is a library to make its memory ready for the default stream? Asked of JAX alone: the others say
// themselves which stream they use.
bool asks_for_stream(nb::handle source, Kind kind) {
  return kind == Kind::jax && is_on_gpu(source);
}

// A capsule by the object's own __dlpack__, or nothing where it refuses. nanobind would ask for it,
// too, but takes whatever is raised for a refusal: a KeyboardInterrupt is none.
nb::object capsule_of(nb::handle source, Kind kind, bool to_write) {
  constexpr int kDefaultStream = 1;                     // DLPack's number of it
  for (const bool versioned : {to_write, !to_write}) {  // a versioned one says what is read-only
    try {
      nb::dict options;
      if (asks_for_stream(source, kind)) options["stream"] = kDefaultStream;
      if (versioned) options["max_version"] = nb::make_tuple(1, 0);
      return source.attr("__dlpack__")(**options);
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    }
  }
  return {};
}

template <typename Array>
bool take_memory(nb::handle source, Kind kind, Array& array) {
  nb::object given = nb::borrow(source);
  if (kind != Kind::numpy && nb::hasattr(source.type(), "__dlpack__")) {
    given = capsule_of(source, kind, !Array::ReadOnly);
    if (!given.is_valid()) given = nb::steal(PyMemoryView_FromObject(source.ptr()));
  }
  const bool taken = given.is_valid() && nb::try_cast(given, array) && array.is_valid();
  if (!taken) PyErr_Clear();
  return taken;
}

// Array: nb::ndarray<nb::ro> to read, nb::ndarray<> to write.
template <typename Array>
Layout import_array(nb::handle source, Kind kind, const Who& who, const Taken& taken,
                    Memory<Array>& memory) {
  constexpr bool kToWrite = !Array::ReadOnly;
  if (kind == Kind::numpy) refuse_masked_array(source, who);
  if (kind == Kind::torch) {
    refuse_tensor_state(source, who);
    const auto seen = !kToWrite && taken.for_call ? look_on_gpu(source) : std::nullopt;
    if (seen) {
      return layout_of(*seen, source, who, dtype_of(seen->dtype, taken.unsigned_too), taken.on_gpu);
    }
    memory.tensor = import_by_exchange(source);
    if (memory.tensor != nullptr) {
      if (kToWrite && memory.tensor->is_read_only()) refuse_read_only(who);
      const nb::dlpack::dltensor& tensor = memory.tensor->tensor;
      return layout_of(tensor, source, who, dtype_of(tensor.dtype, taken.unsigned_too),
                       taken.on_gpu);
    }
  }
  if (take_memory(source, kind, memory.array)) {
    // Of the others nobody knows the stream that they queue work on.
    const bool has_stream = kind == Kind::torch || kind == Kind::cupy || kind == Kind::jax;
    return layout_of(described(memory.array), source, who,
                     dtype_of(memory.array.dtype(), taken.unsigned_too),
                     taken.on_gpu && has_stream);
  }
  if (kind == Kind::numpy && is_numpy_bfloat16(source) &&
      nb::try_cast(source.attr("view")("uint16"), memory.array)) {
    return layout_of(described(memory.array), source, who, DType::bf16, false);
  }
  refuse(source, who, kToWrite);
}

// Whether two elements may share memory. Sorted by stride, each axis has to step over all that the
// shorter strides reach.
bool may_overlap(const MutableTensorView& view) {
  std::vector<std::pair<dim_t, dim_t>> steps;  // stride, dim
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.dim(axis) == 0) return false;
    if (view.dim(axis) > 1) steps.emplace_back(std::abs(view.strides()[axis]), view.dim(axis));
  }
  std::sort(steps.begin(), steps.end());
  dim_t reached = 0;
  for (const auto& [stride, dim] : steps) {
    if (stride <= reached) return true;
    reached += stride * (dim - 1);
  }
  return false;
}

struct Exported {
  std::array<std::size_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
  explicit Exported(const TensorView& view) {
    for (int axis = 0; axis < view.rank(); ++axis) {
      shape[static_cast<std::size_t>(axis)] = static_cast<std::size_t>(view.dim(axis));
      strides[static_cast<std::size_t>(axis)] = view.strides()[axis];
    }
  }
};

// A Python array of a framework over memory that `owner` keeps.
template <typename... Framework>
nb::object export_as(const TensorView& view, nb::handle owner, nb::dlpack::dtype dtype) {
  const Exported layout(view);
  nb::ndarray<Framework...> array(
      const_cast<void*>(view.data()), static_cast<std::size_t>(view.rank()), layout.shape.data(),
      owner, layout.strides.data(), dtype, dlpack_device(view.device()), view.device().index);
  return nb::cast(array, nb::rv_policy::reference);
}

template <typename... Access>
nb::object numpy_array(const TensorView& view, nb::handle owner) {
  if (view.dtype() != DType::bf16) {
    return export_as<nb::numpy, Access...>(view, owner, to_dlpack(view.dtype()));
  }
  const nb::object bits = export_as<nb::numpy, Access...>(view, owner, nb::dtype<std::uint16_t>());
  return bits.attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
}

// Whether a module is installed; asked of Python once. Not a function's static, which others would
// wait for while they hold the GIL that the asking thread needs, or without end in a forked child.
bool has_module(const char* name, std::atomic<int>& known) {
  constexpr int kYes = 1;
  constexpr int kNo = 2;
  if (known == 0) {
    const nb::object found = nb::module_::import_("importlib.util").attr("find_spec")(name);
    known = found.is_none() ? kNo : kYes;
  }
  return known == kYes;
}

}  // namespace

Kind kind_of(nb::handle array) {
  const nb::handle type = array.type();
  const TorchNames* torch = known_torch_names();
  if (torch != nullptr && type.is(torch->tensor)) return Kind::torch;  // the usual, told cheaply
  if (const auto kind = kind_of_module(type)) return *kind;
  for (const nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__"))) {
    if (const auto kind = kind_of_module(base)) return *kind;
  }
  return Kind::plain;
}

bool is_on_gpu(nb::handle array) {
  const TorchNames* torch = known_torch_names();
  if (torch != nullptr && array.type().is(torch->tensor)) {  // whose __dlpack_device__ is slow
    return nb::cast<bool>(array.attr("is_cuda"));
  }
  if (!nb::hasattr(array.type(), "__dlpack_device__")) return false;
  try {
    const nb::object device = array.attr("__dlpack_device__")();
    int type = 0;
    return nb::try_cast(nb::object(device[0]), type) && type == nb::device::cuda::value;
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return false;
  }
}

ArrayIn::ArrayIn(nb::handle array, const char* function, const char* name)
    : ArrayIn(array, Who(function, name), Taken{}) {}

ArrayIn ArrayIn::mask(nb::handle array, const char* function) {
  return {array, Who(function, "t"), {.unsigned_too = true, .on_gpu = true}};
}

ArrayIn ArrayIn::anywhere(nb::handle array, const char* function, const char* name) {
  return {array, Who(function, name), {.on_gpu = true}};
}

ArrayIn ArrayIn::argument(nb::handle array, const char* function, const char* name) {
  return {array, Who(function, name), {.on_gpu = true, .for_call = true}};
}

ArrayIn::ArrayIn(nb::handle array, const Who& who, const Taken& taken)
    : source_(nb::borrow(array)), kind_(kind_of(array)) {
  const Layout layout = import_array(array, kind_, who, taken, memory_);
  view_ = {layout.data, layout.dtype, layout.shape, layout.strides, layout.device};
}

ArrayOut::ArrayOut(nb::handle array, const char* function, const char* name, const Taken& taken)
    : source_(nb::borrow(array)) {
  const Who who(function, name);
  const Layout layout = import_array(array, kind_of(array), who, taken, memory_);
  view_ = {layout.data, layout.dtype, layout.shape, layout.strides, layout.device};
  if (may_overlap(view_)) {
    throw nb::value_error(
        format_text("{} has elements that share memory (shape {}, strides {}): what is written to "
                    "one would be lost by writing to the next",
                    std::string(who), to_tuple_string(view_.shape()),
                    to_tuple_string(view_.strides()))
            .c_str());
  }
}

nb::dlpack::dtype to_dlpack(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * item_size(dtype));
  if (dtype == DType::bf16) return {static_cast<std::uint8_t>(dtype_code::Bfloat), bits, 1};
  if (dtype == DType::boolean) return {static_cast<std::uint8_t>(dtype_code::Bool), bits, 1};
  if (dtype == DType::u8) return {static_cast<std::uint8_t>(dtype_code::UInt), bits, 1};
  if (is_floating(dtype)) return {static_cast<std::uint8_t>(dtype_code::Float), bits, 1};
  return {static_cast<std::uint8_t>(dtype_code::Int), bits, 1};
}

AnyArray to_python(Tensor&& tensor, Kind kind) {
  if (kind == Kind::plain) {
    return nb::borrow<AnyArray>(nb::cast(Array(std::make_shared<Tensor>(std::move(tensor)))));
  }
  if (kind == Kind::torch) {
    const nb::object made = export_by_exchange(tensor, to_dlpack(tensor.dtype()));
    if (made.is_valid()) return nb::borrow<AnyArray>(made);
  }
  auto owned = std::make_unique<Tensor>(std::move(tensor));
  const TensorView view = *owned;
  const nb::capsule owner(owned.get(),
                          [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
  static_cast<void>(owned.release());
  if (kind == Kind::numpy) return nb::borrow<AnyArray>(numpy_array(view, owner));
  const nb::dlpack::dtype dtype = to_dlpack(view.dtype());
  if (kind == Kind::jax) return nb::borrow<AnyArray>(export_as<nb::jax>(view, owner, dtype));
  if (kind == Kind::cupy) return nb::borrow<AnyArray>(export_as<nb::cupy>(view, owner, dtype));
  return nb::borrow<AnyArray>(export_as<nb::pytorch>(view, owner, dtype));
}

nb::object to_python_or_none(Tensor&& tensor, Kind kind, bool asked) {
  return asked ? nb::object(to_python(std::move(tensor), kind)) : nb::none();
}

Kind kind_without_caller(DType dtype) {
  static std::atomic<int> numpy{0};
  if (!has_module("numpy", numpy)) return Kind::plain;
  static std::atomic<int> ml_dtypes{0};
  return dtype == DType::bf16 && !has_module("ml_dtypes", ml_dtypes) ? Kind::plain : Kind::numpy;
}

AnyArray borrowed_to_python(const TensorView& view, nb::handle owner) {
  if (kind_without_caller(view.dtype()) == Kind::numpy) {
    return nb::borrow<AnyArray>(numpy_array<nb::ro>(view, owner));
  }
  return nb::borrow<AnyArray>(nb::cast(Array(view, nb::borrow(owner))));
}

AnyArray borrowed_to_python(const MutableTensorView& view, nb::handle owner) {
  if (kind_without_caller(view.dtype()) == Kind::numpy) {
    return nb::borrow<AnyArray>(numpy_array<>(view, owner));
  }
  return nb::borrow<AnyArray>(nb::cast(Array(view, nb::borrow(owner), false)));
}

nb::object dlpack_object(const TensorView& view, nb::handle owner, bool read_only) {
  const auto dtype = to_dlpack(view.dtype());
  return read_only ? export_as<nb::array_api, nb::ro>(view, owner, dtype)
                   : export_as<nb::array_api>(view, owner, dtype);
}

}  // namespace cephalo::python
