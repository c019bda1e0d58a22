#pragma once

#include <vector>

#include "cephalo/attention/layer/saved_pass.h"
#include "cephalo/core/tensor.h"

namespace cephalo {

// Memory handed out in the same order by every pass, so that the next pass finds its own again.
class PassMemory {
 public:
  void begin() { next_ = 0; }
  // Values undefined; valid until the next begin() or clear().
  MutableTensorView take(const Shape& shape, DType dtype);
  std::vector<SavedPass>& saved() { return saved_; }  // of attention, one for each layer

  std::size_t bytes() const;
  void clear();

 private:
  std::vector<Tensor> kept_;
  std::vector<SavedPass> saved_;
  std::size_t next_ = 0;
};

}  // namespace cephalo
