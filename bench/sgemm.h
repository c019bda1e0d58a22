#pragma once

#include <dnnl.h>

#include <memory>

#include "bench/arrays.h"

namespace cephalo::bench {

// c: [M, N] = op(a) · op(b), added to what c holds when `adds`. op is 'N' for a matrix as it is
// stored, 'T' for its transpose.
struct Sgemm {
  char op_a, op_b;
  dim_t M, N, K;
  bool adds;
  Tensor a, b, c;

  Sgemm(char of_a, char of_b, dim_t m, dim_t n, dim_t k, bool adding = false)
      : op_a(of_a),
        op_b(of_b),
        M(m),
        N(n),
        K(k),
        adds(adding),
        a(normal(of_a == 'N' ? Shape{m, k} : Shape{k, m}, 1)),
        b(normal(of_b == 'N' ? Shape{k, n} : Shape{n, k}, 2)),
        c(Tensor::zeros({m, n})) {}

  double flops() const { return 2.0 * static_cast<double>(M * N * K); }
  void run() {
    dnnl_sgemm(op_a, op_b, M, N, K, 1.0F, a.data_as<float>(), a.dim(1), b.data_as<float>(),
               b.dim(1), adds ? 1.0F : 0.0F, c.mutable_data_as<float>(), N);
  }
};

inline Side sgemm_side(const std::shared_ptr<Sgemm>& sgemm) {
  return {"dnnl_sgemm", sgemm->flops(), [sgemm] { sgemm->run(); }};
}

// What attention is held against: the projections of GPT-2 Small, 4096 x 768 x 2304.
inline Side sgemm_of_attention_side() {
  return sgemm_side(std::make_shared<Sgemm>('N', 'T', 4096, 2304, 768));
}

}  // namespace cephalo::bench
