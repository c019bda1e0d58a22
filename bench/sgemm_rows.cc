// Rows that are held against dnnl_sgemm.

#include <memory>

#include "bench/sgemm.h"
#include "bench/yardstick_rows.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/linear/packed_linear.h"

namespace cephalo::bench {
namespace {

Row attention_row(const Shape& shape, const Mask& mask) {
  const std::string words = mask.empty() ? "full" : mask.to_string();
  const std::string name = format_text("attention {} {}", to_tuple_string(shape), words);
  return {name, [shape, mask, name]() -> Comparison {
            const auto a = std::make_shared<Arrays>(shape);
            const double flops = plan(a->q, a->k, a->v, mask).flops;
            return {attention_side(name, flops, a, mask), sgemm_of_attention_side()};
          }};
}

Row gemm_row(dim_t rows, dim_t d_in, dim_t width) {
  const std::string name = format_text("gemm {} x {} x {}", rows, d_in, width);
  return {
      name, [rows, d_in, width, name]() -> Comparison {
        const auto sgemm = std::make_shared<Sgemm>('N', 'T', rows, width, d_in);
        const auto linear = std::make_shared<PackedLinear>(sgemm->b, TensorView{}, DType::f32);
        const auto out = std::make_shared<Tensor>(Tensor::empty({rows, width}));
        return {{name, sgemm->flops(), [=] { linear->apply(sgemm->a, *out); }}, sgemm_side(sgemm)};
      }};
}

}  // namespace

std::vector<Row> attention_rows() {
  return {attention_row({4, 12, 1024, 64}, causal()),
          attention_row({4, 12, 1024, 64}, {}),
          attention_row({1, 12, 4096, 64}, causal()),
          attention_row({1, 16, 8192, 64}, causal()),
          attention_row({1, 32, 2048, 128}, causal()),
          attention_row({1, 12, 16384, 64}, window(255, 0))};
}

std::vector<Row> gemm_rows() {
  return {gemm_row(4096, 768, 768), gemm_row(4096, 768, 2304), gemm_row(4096, 768, 3072),
          gemm_row(64, 768, 2304)};
}

}  // namespace cephalo::bench
