// What the layer's backward pass may be given, and where its results may go.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cephalo/learn/ladder.h"
#include "tests/support/layer_backward.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_finite;
using testing::all_zero;
using testing::kLayerEngines;
using testing::LayerBackward;
using testing::normal;
using testing::same_bits;
using testing::same_bits_of_all;
using testing::small_layer;

TEST(LayerBackwardTest, dx_and_dkv_need_not_be_wanted_and_may_lie_anyhow) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .causal = false, .seed = 1});
  const Tensor x = normal({2, 5, 6}, 1);
  const Tensor other = normal({2, 4, 6}, 2);
  const TensorView kv = other;
  const auto [y, saved] = layer.forward_train(x, {.kv = &kv});
  const Tensor dy = normal(y.shape(), 3);
  const LayerBackward all(layer, saved, dy, x, &kv);
  Gradients gradients = layer.new_gradients();
  layer.backward(saved, dy, {}, gradients);
  for (const NamedParameter& p : all.gradients.named()) {
    EXPECT_TRUE(same_bits(gradients.find(p.name), p.value)) << p.name;
  }
  // dx beside something else, dkv transposed, dy with steps between its numbers, 16 bits.
  Tensor wide = Tensor::full({2, 5, 9}, 7.0);
  Tensor turned = Tensor::empty({4, 2, 6});
  const MutableTensorView dkv(turned.mutable_view().mutable_data(), DType::f32, {2, 4, 6},
                              {6, 12, 1});
  Tensor apart = Tensor::empty({2, 5, 8, 2});
  apart.mutable_view().select(3, 0).copy_from(dy);
  layer.backward(saved, apart.select(3, 0), wide.mutable_view().slice(2, 1, 7), gradients, dkv);
  EXPECT_TRUE(same_bits(wide.slice(2, 1, 7), all.dx));
  EXPECT_TRUE(same_bits(dkv, all.dkv));
  EXPECT_EQ(wide.at({1, 4, 0}), 7.0);
  EXPECT_EQ(wide.at({1, 4, 7}), 7.0);
  Tensor rounded = Tensor::empty({2, 5, 6}, DType::bf16);
  layer.backward(saved, dy, rounded, gradients);
  EXPECT_TRUE(same_bits(rounded, Tensor::copy(all.dx, DType::bf16)));
}

TEST(LayerBackwardTest, an_input_without_batch_has_gradients_without_batch) {
  const MultiHeadAttention layer = small_layer();
  const Tensor x = normal({1, 5, 6}, 1);
  const Tensor dy = normal({1, 5, 8}, 2);
  const auto [y, saved] = layer.forward_train(x, {.call = 1});
  const auto [y_flat, saved_flat] = layer.forward_train(x[0], {.call = 1});
  const LayerBackward whole(layer, saved, dy, x);
  const LayerBackward flat(layer, saved_flat, dy[0], x[0]);
  EXPECT_EQ(y_flat.shape(), (Shape{5, 8}));
  EXPECT_TRUE(same_bits(flat.dx, whole.dx[0]));
  for (const NamedParameter& p : whole.gradients.named()) {
    EXPECT_TRUE(same_bits(flat.gradients.find(p.name), p.value)) << p.name;
  }
}

TEST(LayerBackwardTest, nothing_in_gives_nothing_back) {
  const MultiHeadAttention layer = small_layer();
  for (const Engine engine : kLayerEngines) {
    for (const Shape& shape : {Shape{0, 5, 6}, Shape{2, 0, 6}, Shape{0, 6}}) {
      const Tensor x = Tensor::empty(shape);
      const auto [y, saved] = layer.forward_train(x, {.engine = engine});
      const LayerBackward ours(layer, saved, Tensor::empty(y.shape()), x);
      for (const NamedParameter& p : ours.gradients.named()) EXPECT_TRUE(all_zero(p.value));
    }
    // Queries without keys: the output is the bias of the last projection.
    const Tensor x = normal({2, 5, 6}, 1);
    const Tensor none = Tensor::empty({2, 0, 6});
    const TensorView kv = none;
    const auto [y, saved] = layer.forward_train(x, {.kv = &kv, .engine = engine});
    const LayerBackward ours(layer, saved, Tensor::full(y.shape(), 1.0), x, &kv);
    EXPECT_TRUE(all_zero(ours.dx));
    for (const NamedParameter& p : ours.gradients.named()) {
      if (p.name == "out_proj.bias") {
        EXPECT_TRUE(same_bits(p.value, Tensor::full({8}, 10.0)));
      } else {
        EXPECT_TRUE(all_zero(p.value)) << p.name;
      }
    }
    // Keys that no query looks at.
    const Tensor no_query = Tensor::empty({2, 0, 6});
    const TensorView keys = x;
    const auto [y_none, saved_none] =
        layer.forward_train(no_query, {.kv = &keys, .engine = engine});
    EXPECT_TRUE(all_zero(LayerBackward(layer, saved_none, y_none, no_query, &keys).dkv));
  }
}

TEST(LayerBackwardTest, nan_in_a_hidden_token_reaches_no_gradient) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 1});
  Tensor x = normal({2, 5, 6}, 1);
  Tensor dy = normal({2, 5, 8}, 2);
  for (const dim_t t : {3, 4}) dy.mutable_view()[1][t].fill(0.0);
  for (const Engine engine : kLayerEngines) {
    const CallOptions call{.mask = lengths({5, 3}, {5, 3}), .engine = engine};
    const auto clean = layer.forward_train(x, call);
    const LayerBackward expected(layer, clean.saved, dy, x);
    Tensor dirty = Tensor::copy(x);
    dirty.mutable_view()[1][3].fill(std::nan(""));
    dirty.set({1, 4, 2}, std::numeric_limits<double>::infinity());
    const auto [y, saved] = layer.forward_train(dirty, call);
    const LayerBackward ours(layer, saved, dy, dirty);
    EXPECT_TRUE(same_bits_of_all(ours, expected));
    EXPECT_TRUE(all_zero(ours.dx[1].slice(0, 3, 5)));
    // A visible one does reach them.
    dirty.set({1, 1, 0}, std::nan(""));
    const auto visible = layer.forward_train(dirty, call);
    EXPECT_FALSE(all_finite(LayerBackward(layer, visible.saved, dy, dirty).dx));
  }
}

TEST(LayerBackwardTest, rung_7_goes_back_under_a_bare_tensor_as_mask) {
  FastMultiHeadAttention layer({.d_model = 8, .num_heads = 2, .seed = 5});
  const Tensor x = normal({2, 4, 8}, 7);
  Tensor lower = Tensor::zeros({4, 4});
  for (dim_t i = 0; i < 4; ++i) {
    for (dim_t j = 0; j <= i; ++j) lower.set({i, j}, 1);
  }
  const Tensor dy = normal({2, 4, 8}, 8);
  const auto bare = layer.forward_train(x, lower);
  const auto named = layer.forward_train(x, {.mask = causal()});
  EXPECT_TRUE(same_bits_of_all(LayerBackward(layer, bare.saved, dy, x),
                               LayerBackward(layer, named.saved, dy, x)));
}

}  // namespace
}  // namespace cephalo
