#include "cephalo/core/common_device.h"

#include "cephalo/core/fail.h"

namespace cephalo {

Device common_device(const char* function, std::initializer_list<NamedTensor> tensors) {
  const NamedTensor* first = nullptr;
  for (const NamedTensor& each : tensors) {
    if (each.tensor.numel() == 0) continue;
    if (first == nullptr) first = &each;
    require(each.tensor.device() == first->tensor.device(), "{}: {} lies on {}, {} on {}", function,
            first->name, first->tensor.device(), each.name, each.tensor.device());
  }
  return first != nullptr ? first->tensor.device() : Device{};
}

void require_host(const char* function, std::initializer_list<NamedTensor> tensors) {
  for (const NamedTensor& each : tensors) {
    require(each.tensor.numel() == 0 || each.tensor.device().is_host(),
            "{}: {} lies on {}, not on the host", function, each.name, each.tensor.device());
  }
}

}  // namespace cephalo
