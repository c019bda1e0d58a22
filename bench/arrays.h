#pragma once

#include <memory>
#include <string>

#include "bench/turns.h"
#include "cephalo/attention/attend.h"
#include "cephalo/core/random.h"

namespace cephalo::bench {

inline Tensor normal(const Shape& shape, std::uint64_t seed) {
  TorchGenerator generator(seed);
  return generator.randn(shape);
}

// shape: [batch, num_heads, tokens, head_dim]
struct Arrays {
  Tensor q, k, v, out;
  explicit Arrays(const Shape& shape)
      : q(normal(shape, 3)), k(normal(shape, 4)), v(normal(shape, 5)), out(Tensor::empty(shape)) {}
};

inline Side attention_side(const std::string& name, double work, const std::shared_ptr<Arrays>& a,
                           const Mask& mask) {
  return {name, work,
          [a, mask] { attend_into({a->out}, a->q, a->k, a->v, mask, {.engine = Engine::fused}); }};
}

}  // namespace cephalo::bench
