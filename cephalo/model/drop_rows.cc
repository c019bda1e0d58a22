#include "cephalo/model/drop_rows.h"

#include "cephalo/linear/ops.h"

namespace cephalo {

void drop_rows(const RowDropout& dropout, std::uint32_t place, const MutableTensorView& x) {
  if (dropout.probability == 0.0) return;
  if (dropout.runs.empty()) ops::drop({dropout.probability, dropout.seed, place, 0, x});
  for (const RowRun& run : dropout.runs) {
    ops::drop({dropout.probability, dropout.seed, place, run.whole_row,
               x.slice(0, run.row, run.row + run.count)});
  }
}

}  // namespace cephalo
