// One pass on the GPU, and how far two of them are apart.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/plan.h"
#include "tests/support/engine_calls.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Tensor there(const TensorView& t) {
  return Tensor::copy(t, kGpu);
}
inline Tensor back(const Tensor& t) {
  return Tensor::copy(t, Device{});
}

// ‖a − b‖ / ‖b‖ over what is finite in both; infinity where only one of them is.
inline double relative_difference(const TensorView& a, const TensorView& b) {
  const Tensor x = Tensor::copy(a, DType::f64), y = Tensor::copy(b, DType::f64);
  double difference = 0.0, size = 1e-30;
  for (dim_t n = 0; n < x.numel(); ++n) {
    const double left = x.data_as<double>()[n], right = y.data_as<double>()[n];
    if (std::isfinite(left) != std::isfinite(right)) return INFINITY;
    if (!std::isfinite(left)) continue;
    difference += (left - right) * (left - right);
    size += right * right;
  }
  return std::sqrt(difference / size);
}

struct PassNumbers {
  Tensor context, lse, dq, dk, dv;
  std::vector<Tensor> dbias;
};

// One pass, all of it on the GPU, in host memory afterwards.
struct Pass {
  struct Sizes {
    dim_t batch, heads, kv_heads, q_tokens, kv_tokens, width;
    dim_t v_width = 0;  // 0: the same
    dim_t columns_of_v() const { return v_width == 0 ? width : v_width; }
  };
  Pass(const Sizes& s, DType dtype, std::uint64_t seed = 1)
      : q(normal({s.batch, s.heads, s.q_tokens, s.width}, seed, dtype)),
        k(normal({s.batch, s.kv_heads, s.kv_tokens, s.width}, seed + 1, dtype)),
        v(normal({s.batch, s.kv_heads, s.kv_tokens, s.columns_of_v()}, seed + 2, dtype)),
        dcontext(normal({s.batch, s.heads, s.q_tokens, s.columns_of_v()}, seed + 3, dtype)),
        dlse(normal({s.batch, s.heads, s.q_tokens}, seed + 4)) {}

  // The same numbers in another type.
  Pass(const Pass& other, DType dtype)
      : q(Tensor::copy(other.q, dtype)),
        k(Tensor::copy(other.k, dtype)),
        v(Tensor::copy(other.v, dtype)),
        dcontext(Tensor::copy(other.dcontext, dtype)),
        dlse(Tensor::copy(other.dlse, dtype == DType::f64 ? DType::f64 : DType::f32)) {}

  PassNumbers run(Engine engine, const Mask& mask, bool deterministic = true,
                  AttendOptions options = {}) const {
    options.return_lse = true;
    options.engine = engine;
    options.deterministic = deterministic;
    const Mask moved = mask_on_gpu(mask);
    const Tensor gq = there(q), gk = there(k), gv = there(v);
    const AttendResult r = attend(gq, gk, gv, moved, options);
    const Tensor gdcontext = there(dcontext), gdlse = there(dlse);
    const AttendGradients g =
        attend_backward({r.context, r.lse, gdcontext, gdlse}, gq, gk, gv, moved, options, true);
    PassNumbers numbers{back(r.context), back(r.lse), back(g.dq), back(g.dk), back(g.dv), {}};
    for (const Tensor& dbias : g.dbias) numbers.dbias.push_back(back(dbias));
    return numbers;
  }

  Tensor q, k, v, dcontext, dlse;
};

inline bool same_numbers(const PassNumbers& a, const PassNumbers& b) {
  return same_bits(a.context, b.context) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) &&
         same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv);
}

// Weights and their gradients are rounded to 16 bits before they are multiplied.
inline void expect_near(const PassNumbers& ours, const PassNumbers& expected, DType dtype) {
  const double bound = dtype == DType::bf16 ? 8e-3 : 2e-3;
  EXPECT_LE(relative_difference(ours.context, expected.context), bound);
  EXPECT_LE(relative_difference(ours.lse, expected.lse), 1e-5);
  EXPECT_LE(relative_difference(ours.dq, expected.dq), bound);
  EXPECT_LE(relative_difference(ours.dk, expected.dk), bound);
  EXPECT_LE(relative_difference(ours.dv, expected.dv), bound);
  ASSERT_EQ(ours.dbias.size(), expected.dbias.size());
  for (std::size_t n = 0; n < ours.dbias.size(); ++n) {
    EXPECT_LE(relative_difference(ours.dbias[n], expected.dbias[n]), bound);
  }
}

// float32: twice what cuda_simple, whose loops are float32, is away from float64, and a floor for
// where that is exact by luck.
inline double allowed(const TensorView& plain, const TensorView& exact) {
  return 2.0 * relative_difference(plain, exact) + 5e-7;
}

inline void expect_as_accurate_as_float32(const PassNumbers& ours, const PassNumbers& plain,
                                          const PassNumbers& exact) {
  const auto check = [](const char* what, const TensorView& of_ours, const TensorView& of_plain,
                        const TensorView& of_exact) {
    EXPECT_LE(relative_difference(of_ours, of_exact), allowed(of_plain, of_exact)) << what;
  };
  check("context", ours.context, plain.context, exact.context);
  check("lse", ours.lse, plain.lse, exact.lse);
  check("dq", ours.dq, plain.dq, exact.dq);
  check("dk", ours.dk, plain.dk, exact.dk);
  check("dv", ours.dv, plain.dv, exact.dv);
}

// Has the GPU tensor cores that `cuda` knows?
inline bool is_hopper() {
  const Tensor q = there(normal({1, 1, 1, 64}, 1, DType::bf16));
  return plan(q, q, q).engine == Engine::cuda;
}

class HopperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::has_gpu()) GTEST_SKIP() << "there is no GPU";
    if (!is_hopper()) GTEST_SKIP() << "the GPU is not a Hopper";
  }
};

}  // namespace cephalo::testing
