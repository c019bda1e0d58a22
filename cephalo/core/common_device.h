#pragma once

// Inside the library only.

#include <initializer_list>

#include "cephalo/core/tensor.h"

namespace cephalo {

struct NamedTensor {
  const char* name;  // as messages call it
  const TensorView& tensor;
};

// The device that all of them lie on; a tensor without elements lies anywhere. Two devices are an
// error that names both: nothing is moved in silence.
Device common_device(const char* function, std::initializer_list<NamedTensor> tensors);

// The same for what only the host computes: an error that names the device of one that lies
// elsewhere.
void require_host(const char* function, std::initializer_list<NamedTensor> tensors);

}  // namespace cephalo
