#pragma once

#include <vector>

#include "cephalo/attention/attend_second.h"
#include "tests/support/plain_second.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {

// A pass of normal numbers and a direction for it, so that a test can change any of it.
struct SecondPass {
  SecondPass(const MaskExtent& e, dim_t num_kv_heads, dim_t head_dim, dim_t v_dim,
             std::uint64_t seed, DType dtype = DType::f64)
      : q(normal({e.batch, e.num_heads, e.q_tokens, head_dim}, seed, dtype)),
        k(normal({e.batch, num_kv_heads, e.kv_tokens, head_dim}, seed + 1, dtype)),
        v(normal({e.batch, num_kv_heads, e.kv_tokens, v_dim}, seed + 2, dtype)),
        dcontext(normal({e.batch, e.num_heads, e.q_tokens, v_dim}, seed + 3, dtype)),
        dlse(normal({e.batch, e.num_heads, e.q_tokens}, seed + 4, compute_type(dtype))),
        uq(normal(q.shape(), seed + 5, dtype)),
        uk(normal(k.shape(), seed + 6, dtype)),
        uv(normal(v.shape(), seed + 7, dtype)) {}

  // A direction for each bias of the mask.
  void move_biases(const Mask& mask, std::uint64_t seed) {
    ubias.clear();
    for (const MaskTensor& part : mask.tensors) {
      if (part.role != MaskTensor::Role::bias) continue;
      ubias.push_back(normal(part.view.shape(), seed++, compute_type(q.dtype())));
    }
  }
  AttendDirection along() const {
    return {uq, uk, uv, std::vector<TensorView>(ubias.begin(), ubias.end())};
  }
  // The same for the brute force.
  PlainDirection plain_along(const MaskExtent& e) const {
    PlainDirection plain{uq, uk, uv};
    for (const Tensor& u : ubias) {
      plain.added.resize(
          static_cast<std::size_t>(e.batch * e.num_heads * e.q_tokens * e.kv_tokens));
      std::size_t pair = 0;
      for (dim_t b = 0; b < e.batch; ++b) {
        for (dim_t h = 0; h < e.num_heads; ++h) {
          for (dim_t i = 0; i < e.q_tokens; ++i) {
            for (dim_t j = 0; j < e.kv_tokens; ++j) plain.added[pair++] += number(u, {b, h, i, j});
          }
        }
      }
    }
    return plain;
  }

  AttendResult forward(const Mask& mask, AttendOptions options) const {
    options.return_lse = true;
    return attend(q, k, v, mask, options);
  }
  AttendSecond second(const Mask& mask, const AttendOptions& options) const {
    return second(forward(mask, options), mask, options);
  }
  AttendSecond second(const AttendResult& r, const Mask& mask, const AttendOptions& options) const {
    return attend_second({r.context, r.lse, dcontext, dlse}, q, k, v, along(), mask, options, true);
  }
  AttendGradients gradients(const Mask& mask, const AttendOptions& options) const {
    const AttendResult r = forward(mask, options);
    return attend_backward({r.context, r.lse, dcontext, dlse}, q, k, v, mask, options, true);
  }

  // The number that a pair gets of a tensor that is repeated along axes of 1, or that lacks them.
  static double number(const Tensor& t, const Dims& at) {
    Dims index = t.shape();
    for (int axis = 0; axis < t.rank(); ++axis) {
      index[axis] = t.dim(axis) == 1 ? 0 : at[4 - t.rank() + axis];
    }
    return t.at(index);
  }

  Tensor q, k, v, dcontext, dlse;
  Tensor uq, uk, uv;
  std::vector<Tensor> ubias;
};

}  // namespace cephalo::testing
