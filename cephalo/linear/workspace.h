#pragma once

#include "cephalo/core/tensor.h"

namespace cephalo {

// Memory between two steps of a layer, kept by the calling thread for its next call: tens of
// megabytes that would otherwise be mapped, cleared and unmapped each time.
class Workspace {
 public:
  static Workspace& of_this_thread();

  // Memory of the given shape; what it held is lost. One user of a slot at a time.
  enum Slot { rows, kv_rows, context, panels, kSlots };
  MutableTensorView take(Slot slot, const Shape& shape, DType dtype);

  // The same memory for somebody who owns it meanwhile.
  Tensor lend(Slot slot);
  void give_back(Slot slot, Tensor memory);

  // After a call: a very long input should not hold its memory for good.
  void keep_a_little();

 private:
  Tensor kept_[kSlots];
};

}  // namespace cephalo
