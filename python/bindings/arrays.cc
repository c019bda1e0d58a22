#include "bindings/arrays.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "bindings/array.h"

namespace cephalo::python {
namespace {

using nb::dlpack::dtype_code;

constexpr const char* kTaken = "float32, float64, float16 and bfloat16, bool and integers in masks";

std::string text_of(nb::handle object) {
  return nb::str(object).c_str();
}

std::optional<Kind> kind_of_module(nb::handle type) {
  const nb::object module = nb::getattr(type, "__module__", nb::none());
  if (!nb::isinstance<nb::str>(module)) return std::nullopt;
  const std::string_view name = nb::borrow<nb::str>(module).c_str();
  const std::string_view first = name.substr(0, name.find('.'));
  if (first == "numpy") return Kind::numpy;
  if (first == "torch") return Kind::torch;
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

nb::dlpack::dtype to_dlpack(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * item_size(dtype));
  if (dtype == DType::bf16) return {static_cast<std::uint8_t>(dtype_code::Bfloat), bits, 1};
  if (dtype == DType::boolean) return {static_cast<std::uint8_t>(dtype_code::Bool), bits, 1};
  if (dtype == DType::u8) return {static_cast<std::uint8_t>(dtype_code::UInt), bits, 1};
  if (is_floating(dtype)) return {static_cast<std::uint8_t>(dtype_code::Float), bits, 1};
  return {static_cast<std::uint8_t>(dtype_code::Int), bits, 1};
}

// Device numbers of DLPack whose memory the CPU reads.
bool is_on_cpu(int device_type) {
  return device_type == nb::device::cpu::value || device_type == nb::device::cuda_host::value ||
         device_type == nb::device::rocm_host::value;
}

std::string device_name(int type, int id) {
  switch (type) {
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      return fmt::format("cuda:{}", id);
    case nb::device::metal::value:
      return fmt::format("metal:{}", id);
    case nb::device::rocm::value:
      return fmt::format("rocm:{}", id);
    default:
      return fmt::format("number {} of DLPack's kind {}", id, type);
  }
}

[[noreturn]] void fail_type(const std::string& message) {
  throw nb::type_error(message.c_str());
}

[[noreturn]] void refuse_device(const std::string& who, int type, int id) {
  fail_type(fmt::format("{} is on device {}; cephalo computes on the CPU: move it there first", who,
                        device_name(type, id)));
}

[[noreturn]] void refuse_dtype(const std::string& who, const std::string& dtype) {
  fail_type(fmt::format("{} is of dtype {}; taken are {}", who, dtype, kTaken));
}

// Why the array could not be had, as far as it tells.
[[noreturn]] void refuse(nb::handle array, const std::string& who, bool to_write) {
  PyErr_Clear();
  if (nb::hasattr(array, "__dlpack_device__")) {
    const auto device = nb::cast<std::pair<int, int>>(array.attr("__dlpack_device__")());
    if (!is_on_cpu(device.first)) refuse_device(who, device.first, device.second);
  }
  if (to_write) {
    nb::ndarray<nb::ro> readable;
    if (nb::try_cast(array, readable)) {
      throw nb::value_error(fmt::format("{} is read-only", who).c_str());
    }
    PyErr_Clear();
  }
  if (nb::hasattr(array, "dtype")) refuse_dtype(who, text_of(array.attr("dtype")));
  if (PyObject_CheckBuffer(array.ptr()) != 0) {
    const nb::object view = nb::steal(PyMemoryView_FromObject(array.ptr()));
    if (view.is_valid()) {
      refuse_dtype(who, fmt::format("'{}'", nb::cast<std::string>(view.attr("format"))));
    }
    PyErr_Clear();
  }
  fail_type(
      fmt::format("{} is a {}; an array is needed, with DLPack or the buffer protocol (NumPy, "
                  "PyTorch, memoryview)",
                  who, text_of(array.type().attr("__name__"))));
}

// Attention here records no graph: a tensor that is to get a gradient would silently get none.
void refuse_gradient(nb::handle tensor, const std::string& who) {
  if (!nb::cast<bool>(tensor.attr("requires_grad"))) return;
  const nb::object torch = nb::module_::import_("torch");
  if (!nb::cast<bool>(torch.attr("is_grad_enabled")())) return;
  fail_type(
      fmt::format("{} requires grad, and no gradient would come back: pass its detach(), or "
                  "call under torch.no_grad()",
                  who));
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
};

template <typename Array>
Layout import_array(nb::handle source, Array& memory, const std::string& who, bool unsigned_too,
                    Kind kind, bool to_write) {
  if (kind == Kind::torch) refuse_gradient(source, who);
  bool is_bfloat16 = false;
  if (!nb::try_cast(source, memory) || !memory.is_valid()) {
    PyErr_Clear();
    is_bfloat16 = kind == Kind::numpy && is_numpy_bfloat16(source);
    const bool imported = is_bfloat16 && nb::try_cast(source.attr("view")("uint16"), memory);
    if (!imported) refuse(source, who, to_write);
  }
  if (!is_on_cpu(memory.device_type())) {
    refuse_device(who, memory.device_type(), memory.device_id());
  }
  const auto dtype = is_bfloat16 ? DType::bf16 : dtype_of(memory.dtype(), unsigned_too);
  if (!dtype) {
    refuse_dtype(who, nb::hasattr(source, "dtype") ? text_of(source.attr("dtype")) : "unknown");
  }
  if (memory.ndim() > static_cast<std::size_t>(kMaxRank)) {
    throw nb::value_error(
        fmt::format("{} has {} dimensions; at most {} are taken", who, memory.ndim(), kMaxRank)
            .c_str());
  }
  Layout layout{const_cast<void*>(static_cast<const void*>(memory.data())), *dtype, {}, {}};
  for (std::size_t axis = 0; axis < memory.ndim(); ++axis) {
    layout.shape.push_back(static_cast<dim_t>(memory.shape(axis)));
    layout.strides.push_back(memory.stride(axis));
  }
  return layout;
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
  nb::ndarray<Framework...> array(const_cast<void*>(view.data()),
                                  static_cast<std::size_t>(view.rank()), layout.shape.data(), owner,
                                  layout.strides.data(), dtype);
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

bool has_module(const char* name) {
  const nb::object found = nb::module_::import_("importlib.util").attr("find_spec")(name);
  return !found.is_none();
}

}  // namespace

Kind kind_of(nb::handle array) {
  const nb::handle type = array.type();
  if (const auto kind = kind_of_module(type)) return *kind;
  for (const nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__"))) {
    if (const auto kind = kind_of_module(base)) return *kind;
  }
  return Kind::plain;
}

ArrayIn::ArrayIn(nb::handle array, const char* function, const char* name)
    : ArrayIn(array, function, name, false) {}

ArrayIn ArrayIn::mask(nb::handle array, const char* function) {
  return {array, function, "t", true};
}

ArrayIn::ArrayIn(nb::handle array, const char* function, const char* name, bool unsigned_too)
    : source_(nb::borrow(array)), kind_(kind_of(array)) {
  const Layout layout = import_array(array, memory_, fmt::format("{}: {}", function, name),
                                     unsigned_too, kind_, false);
  view_ = {layout.data, layout.dtype, layout.shape, layout.strides};
}

ArrayOut::ArrayOut(nb::handle array, const char* function, const char* name)
    : source_(nb::borrow(array)) {
  const Layout layout = import_array(array, memory_, fmt::format("{}: {}", function, name), false,
                                     kind_of(array), true);
  view_ = {layout.data, layout.dtype, layout.shape, layout.strides};
}

AnyArray to_python(Tensor&& tensor, Kind kind) {
  if (kind == Kind::plain) {
    return nb::borrow<AnyArray>(nb::cast(Array(std::make_shared<Tensor>(std::move(tensor)))));
  }
  auto owned = std::make_unique<Tensor>(std::move(tensor));
  const TensorView view = *owned;
  const nb::capsule owner(owned.get(),
                          [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
  static_cast<void>(owned.release());
  return nb::borrow<AnyArray>(kind == Kind::numpy
                                  ? numpy_array(view, owner)
                                  : export_as<nb::pytorch>(view, owner, to_dlpack(view.dtype())));
}

nb::object to_python_or_none(Tensor&& tensor, Kind kind, bool asked) {
  return asked ? nb::object(to_python(std::move(tensor), kind)) : nb::none();
}

Kind kind_without_caller(DType dtype) {
  static const bool numpy = has_module("numpy");
  if (!numpy) return Kind::plain;
  static const bool ml_dtypes = has_module("ml_dtypes");
  return dtype == DType::bf16 && !ml_dtypes ? Kind::plain : Kind::numpy;
}

AnyArray borrowed_to_python(const TensorView& view, nb::handle owner) {
  if (kind_without_caller(view.dtype()) == Kind::numpy) {
    return nb::borrow<AnyArray>(numpy_array<nb::ro>(view, owner));
  }
  return nb::borrow<AnyArray>(nb::cast(Array(view, nb::borrow(owner))));
}

nb::object dlpack_object(const TensorView& view, nb::handle owner, bool read_only) {
  const auto dtype = to_dlpack(view.dtype());
  return read_only ? export_as<nb::array_api, nb::ro>(view, owner, dtype)
                   : export_as<nb::array_api>(view, owner, dtype);
}

}  // namespace cephalo::python
