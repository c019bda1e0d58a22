#include "tests/support/ring_rows.h"

namespace cephalo::testing {

Tensor rows_of(const TensorView& whole, int axis, const RingShare& share) {
  Shape shape = whole.shape();
  shape[axis] = share.tokens();
  Tensor own = Tensor::empty(shape, whole.dtype());
  const MutableTensorView to = own;
  const dim_t early = share.early.count();
  to.slice(axis, 0, early).copy_from(whole.slice(axis, share.early.begin, share.early.end));
  to.slice(axis, early, share.tokens())
      .copy_from(whole.slice(axis, share.late.begin, share.late.end));
  return own;
}

}  // namespace cephalo::testing
