#pragma once

#include <cmath>

#include "cephalo/attention/layer/multi_head.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {

// The engines that layers train with.
inline constexpr Engine kLayerEngines[] = {Engine::reference, Engine::fused};

// One backward pass with everything it writes.
struct LayerBackward {
  LayerBackward(const MultiHeadAttention& layer, const SavedPass& saved, const TensorView& dy,
                const TensorView& x, const TensorView* kv = nullptr)
      : dx(Tensor::full(x.shape(), std::nan(""), x.dtype())),
        dkv(kv != nullptr ? Tensor::full(kv->shape(), std::nan(""), kv->dtype()) : Tensor()),
        gradients(layer.new_gradients()) {
    layer.backward(saved, dy, dx, gradients, dkv);
  }
  Tensor dx;
  Tensor dkv;
  Gradients gradients;
};

inline bool same_bits_of_all(const LayerBackward& a, const LayerBackward& b) {
  if (!same_bits(a.dx, b.dx) || !same_bits(a.dkv, b.dkv)) return false;
  const auto ours = a.gradients.named();
  const auto theirs = b.gradients.named();
  for (std::size_t n = 0; n < ours.size(); ++n) {
    if (!same_bits(ours[n].value, theirs[n].value)) return false;
  }
  return true;
}

// 6 numbers in, 8 out.
inline MultiHeadAttention small_layer(std::uint64_t seed = 1) {
  return MultiHeadAttention(
      {.d_in = 6, .d_out = 8, .dropout = 0.2, .num_heads = 2, .qkv_bias = true, .seed = seed});
}

}  // namespace cephalo::testing
