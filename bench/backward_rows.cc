// Backward passes held against dnnl_sgemm: attention's, and those of a projection.

#include <memory>

#include "bench/sgemm.h"
#include "bench/yardstick_rows.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/linear/project_backward.h"

namespace cephalo::bench {
namespace {

// Five products where the forward pass has two: scores again, dweights, dq, dk, dv.
constexpr double kBackwardByForward = 2.5;

// A forward pass, and what its backward pass reads and writes.
struct BackwardArrays {
  Arrays forward;
  Mask mask;
  Tensor lse, dcontext, dq, dk, dv;

  BackwardArrays(const Shape& shape, Mask hidden)
      : forward(shape),
        mask(std::move(hidden)),
        lse(Tensor::empty({shape[0], shape[1], shape[2]})),
        dcontext(normal(shape, 6)),
        dq(Tensor::empty(shape)),
        dk(Tensor::empty(shape)),
        dv(Tensor::empty(shape)) {
    attend();
  }
  double forward_flops() const { return plan(forward.q, forward.k, forward.v, mask).flops; }
  void attend() {
    attend_into({forward.out, lse}, forward.q, forward.k, forward.v, mask,
                {.engine = Engine::fused});
  }
  void backward() {
    attend_backward_into({dq, dk, dv}, {forward.out, lse, dcontext}, forward.q, forward.k,
                         forward.v, mask, {.engine = Engine::fused});
  }
};

Row attention_row(const Shape& shape, const Mask& mask, bool with_forward) {
  const std::string name =
      format_text("{} {} {}", with_forward ? "forward + backward" : "backward",
                  to_tuple_string(shape), mask.empty() ? "full" : mask.to_string());
  return {name, [=]() -> Comparison {
            const auto a = std::make_shared<BackwardArrays>(shape, mask);
            const double times = kBackwardByForward + (with_forward ? 1.0 : 0.0);
            const auto work = [a, with_forward] {
              if (with_forward) a->attend();
              a->backward();
            };
            return {{name, times * a->forward_flops(), work}, sgemm_of_attention_side()};
          }};
}

// dx: [rows, d_in] = dy [rows, width] · weight [width, d_in]
Row dx_row(dim_t rows, dim_t d_in, dim_t width) {
  const std::string name = format_text("gemm dx = dy W, {} x {} x {}", rows, width, d_in);
  return {name, [=]() -> Comparison {
            const auto g = std::make_shared<Sgemm>('N', 'N', rows, d_in, width);
            const auto dx = std::make_shared<Tensor>(Tensor::empty({rows, d_in}));
            const auto work = [=] { project_backward({{}, g->b, g->a}, {*dx, {}, {}}); };
            return {{name, g->flops(), work}, sgemm_side(g)};
          }};
}

// dweight: [width, d_in] += dy [rows, width]ᵀ · x [rows, d_in]
Row dweight_row(dim_t rows, dim_t d_in, dim_t width) {
  const std::string name = format_text("gemm dW += dy^T x, {} x {} x {}", width, rows, d_in);
  return {name, [=]() -> Comparison {
            const auto g = std::make_shared<Sgemm>('T', 'N', width, d_in, rows, true);
            const auto dweight = std::make_shared<Tensor>(Tensor::zeros({width, d_in}));
            const auto work = [=] { project_backward({g->b, {}, g->a}, {{}, *dweight, {}}); };
            return {{name, g->flops(), work}, sgemm_side(g)};
          }};
}

}  // namespace

std::vector<Row> backward_rows() {
  std::vector<Row> rows;
  for (const Shape& shape : {Shape{4, 12, 1024, 64}, Shape{1, 12, 4096, 64}}) {
    rows.push_back(attention_row(shape, causal(), false));
    rows.push_back(attention_row(shape, causal(), true));
  }
  for (const dim_t width : {768, 2304}) {
    rows.push_back(dx_row(4096, 768, width));
    rows.push_back(dweight_row(4096, 768, width));
  }
  return rows;
}

}  // namespace cephalo::bench
