#include "cephalo/model/drop_rows.h"

#include "cephalo/linear/ops.h"

namespace cephalo {

void drop_rows(const RowDropout& dropout, std::uint32_t place, const MutableTensorView& x) {
  if (dropout.probability == 0.0) return;
  ops::drop({dropout.probability, dropout.seed, place, dropout.first_row, x});
}

}  // namespace cephalo
