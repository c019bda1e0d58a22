#include "bindings/arrays/exchange.h"

#include "bindings/arrays/torch_names.h"

#include <array>
#include <atomic>
#include <string>
#include <utility>

namespace cephalo::python {
namespace {

namespace nb = nanobind;

struct ExchangeTable {
  std::uint32_t major, minor;
  const ExchangeTable* previous;
  int (*allocate)(nb::dlpack::dltensor* like, ManagedTensor** out, void* message,
                  void (*fail)(void* message, const char* kind, const char* what));
  int (*from_python)(void* object, ManagedTensor** out);
  int (*to_python)(ManagedTensor* tensor, void** object);
  int (*look_from_python)(void* object, nb::dlpack::dltensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

constexpr std::uint32_t kMajor = 1;
constexpr std::uint32_t kMinor = 1;

// Tables live as long as the process, says DLPack.
std::atomic<const ExchangeTable*> last_seen{nullptr};
std::atomic<bool> knows_gpus{false};

bool is_on_gpu(const nb::dlpack::dltensor& tensor) {
  return tensor.device.device_type == nb::device::cuda::value;
}

const ExchangeTable* find_table(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
  const auto* table =
      static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  return table->major == kMajor ? table : nullptr;
}

const ExchangeTable* table_of(nb::handle type) {
  static std::atomic<const ExchangeTable*> of_tensor{nullptr};
  const TorchNames* torch = torch_names();
  if (torch == nullptr || !type.is(torch->tensor)) return find_table(type);
  if (of_tensor == nullptr) of_tensor = find_table(type);
  return of_tensor;
}

nb::object object_of(const ExchangeTable* table, ManagedTensor* tensor) {
  void* object = nullptr;
  // Whatever comes of it, the memory is theirs now.
  if (table->to_python(tensor, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

// Our memory with its description, which DLPack points into.
struct Owned {
  ManagedTensor managed;
  Tensor tensor;
  std::array<std::int64_t, kMaxRank> shape;
  std::array<std::int64_t, kMaxRank> strides;
};

}  // namespace

std::shared_ptr<ManagedTensor> import_by_exchange(nb::handle tensor) {
  const ExchangeTable* table = table_of(tensor.type());
  ManagedTensor* managed = nullptr;
  if (table == nullptr || table->from_python(tensor.ptr(), &managed) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  last_seen = table;
  if (is_on_gpu(managed->tensor)) knows_gpus = true;
  return {managed, LetGo()};
}

std::optional<nb::dlpack::dltensor> look_on_gpu(nb::handle tensor) {
  if (!knows_gpus.load(std::memory_order_relaxed)) return std::nullopt;
  const ExchangeTable* table = table_of(tensor.type());
  if (table == nullptr || table->look_from_python == nullptr) return std::nullopt;
  nb::dlpack::dltensor found;
  if (table->look_from_python(tensor.ptr(), &found) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  last_seen = table;
  return is_on_gpu(found) ? std::optional(found) : std::nullopt;
}

int dlpack_device(Device device) {
  return device.is_host() ? nb::device::cpu::value : nb::device::cuda::value;
}

std::optional<void*> stream_by_exchange(Device device) {
  const ExchangeTable* table = last_seen;
  if (table == nullptr || table->current_stream == nullptr) return std::nullopt;
  void* stream = nullptr;
  if (table->current_stream(dlpack_device(device), device.index, &stream) != 0) {
    throw nb::python_error();
  }
  return stream;
}

OwnedTensor allocate_by_exchange(const Shape& shape, nb::dlpack::dtype dtype, Device device) {
  const ExchangeTable* table = last_seen;
  if (table == nullptr || table->allocate == nullptr) return nullptr;
  std::array<std::int64_t, kMaxRank> sizes{};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    sizes[static_cast<std::size_t>(axis)] = shape[axis];
  }
  nb::dlpack::dltensor like{};
  like.device = {dlpack_device(device), device.index};
  like.ndim = shape.rank();
  like.dtype = dtype;
  like.shape = sizes.data();
  ManagedTensor* managed = nullptr;
  std::string message;
  const auto keep_words = [](void* words, const char* /*kind*/, const char* what) {
    *static_cast<std::string*>(words) = what;
  };
  if (table->allocate(&like, &managed, &message, keep_words) != 0) {
    PyErr_SetString(PyExc_MemoryError, message.c_str());
    throw nb::python_error();
  }
  return OwnedTensor(managed);
}

nb::object made_by_exchange(OwnedTensor memory) {
  return object_of(last_seen, memory.release());
}

nb::object export_by_exchange(Tensor& tensor, nb::dlpack::dtype dtype) {
  const ExchangeTable* table = last_seen;
  if (table == nullptr) return {};
  auto owned = std::make_unique<Owned>();
  owned->tensor = std::move(tensor);
  const TensorView& view = owned->tensor;
  for (int axis = 0; axis < view.rank(); ++axis) {
    owned->shape[static_cast<std::size_t>(axis)] = view.dim(axis);
    owned->strides[static_cast<std::size_t>(axis)] = view.strides()[axis];
  }
  owned->managed = {
      kMajor,      kMinor,
      owned.get(), [](ManagedTensor* done) { delete static_cast<Owned*>(done->manager); },
      0,           {}};
  nb::dlpack::dltensor& described = owned->managed.tensor;
  described.data = const_cast<void*>(view.data());
  described.device = {dlpack_device(view.device()), view.device().index};
  described.ndim = view.rank();
  described.dtype = dtype;
  described.shape = owned->shape.data();
  described.strides = owned->strides.data();
  return object_of(table, &owned.release()->managed);
}

}  // namespace cephalo::python
