#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/turns.h"

namespace cephalo::bench {

// One row: its arrays are made when it is measured, and belong to the comparison. The thread count
// is set by then.
struct Row {
  std::string name;
  std::function<Comparison()> make;
};

// attention against dnnl_sgemm at 4096 x 768 x 2304; both as multiplications and additions a second
std::vector<Row> attention_rows();
// gradients of attention against the same product; gradients of a projection against products of
// their shapes
std::vector<Row> backward_rows();
// masks at (4, 12, 1024, 64) as times of plain causal or full attention
std::vector<Row> mask_rows();
// prepared GEMM against dnnl_sgemm of the same shape
std::vector<Row> gemm_rows();
// one query against 4096 keys: against a plain read of the same memory, and bfloat16 against
// float32
std::vector<Row> decode_rows();

}  // namespace cephalo::bench
