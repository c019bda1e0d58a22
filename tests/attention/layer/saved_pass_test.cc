// What a saved pass promises, and what misuse of it gets.
#include <gtest/gtest.h>

#include <vector>

#include "cephalo/attention/kv_cache.h"
#include "cephalo/core/ops.h"
#include "tests/support/layer_backward.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::error_of;
using testing::kLayerEngines;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::LayerBackward;
using testing::normal;
using testing::same_bits;
using testing::same_bits_of_all;
using testing::small_layer;

TEST(SavedPassTest, a_second_backward_of_one_pass_adds_the_same_again) {
  const MultiHeadAttention layer = small_layer();
  const Tensor x = normal({2, 5, 6}, 1);
  const auto [y, saved] = layer.forward_train(x);
  const Tensor dy = normal(y.shape(), 2);
  const LayerBackward once(layer, saved, dy, x);
  LayerBackward twice(layer, saved, dy, x);
  layer.backward(saved, dy, twice.dx, twice.gradients);
  EXPECT_TRUE(same_bits(twice.dx, once.dx));  // written, not added to
  for (const NamedParameter& p : once.gradients.named()) {
    EXPECT_LE(largest_difference(twice.gradients.find(p.name), multiply(p.value, 2.0)),
              1e-6 * largest_magnitude(p.value))
        << p.name;
  }
  twice.gradients.zero();
  for (const NamedParameter& p : twice.gradients.named()) EXPECT_TRUE(all_zero(p.value)) << p.name;
  layer.backward(saved, dy, twice.dx, twice.gradients);
  EXPECT_TRUE(same_bits_of_all(twice, once));
}

TEST(SavedPassTest, many_forwards_go_back_in_any_order) {
  const MultiHeadAttention layer = small_layer();
  std::vector<Tensor> x;
  std::vector<TrainResult> passes;
  std::vector<LayerBackward> at_once;
  const Tensor dy = normal({2, 5, 8}, 2);
  for (std::uint64_t n = 0; n < 4; ++n) {
    x.push_back(normal({2, 5, 6}, n));
    passes.push_back(layer.forward_train(x.back()));
    at_once.emplace_back(layer, passes.back().saved, dy, x.back());
  }
  layer(x[0]);  // calls that save nothing do not matter
  for (const std::size_t n : {2U, 0U, 3U, 1U, 2U}) {
    EXPECT_TRUE(same_bits_of_all(LayerBackward(layer, passes[n].saved, dy, x[n]), at_once[n])) << n;
  }
  EXPECT_FALSE(same_bits(at_once[0].dx, at_once[1].dx));
}

TEST(SavedPassTest, a_pass_owns_what_it_needs_unless_told_to_borrow) {
  const MultiHeadAttention layer = small_layer();
  Tensor hidden = Tensor::zeros({5, 5}, DType::boolean);
  hidden.set({4, 1}, 1);
  Tensor x = normal({2, 5, 6}, 1);
  Tensor kv = normal({2, 5, 6}, 4);
  const TensorView kv_view = kv;
  const Tensor dy = normal({2, 5, 8}, 2);
  const CallOptions call{.kv = &kv_view, .mask = drop(hidden), .call = 1};
  const auto [y, saved] = layer.forward_train(x, call);
  const auto [y_borrowing, borrowing] = layer.forward_train(x, call, KeepInput::borrow);
  EXPECT_EQ(saved.bytes(), borrowing.bytes() + x.bytes() + kv.bytes() + hidden.bytes());
  const LayerBackward before(layer, saved, dy, x, &kv_view);
  EXPECT_TRUE(same_bits_of_all(LayerBackward(layer, borrowing, dy, x, &kv_view), before));
  for (Tensor* t : {&x, &kv, &hidden}) t->mutable_view().fill(1.0);
  EXPECT_TRUE(same_bits_of_all(LayerBackward(layer, saved, dy, x, &kv_view), before));
  EXPECT_FALSE(same_bits_of_all(LayerBackward(layer, borrowing, dy, x, &kv_view), before));
}

TEST(SavedPassTest, a_pass_into_memory_of_an_older_one_has_the_same_bits) {
  MultiHeadAttention layer(
      {.d_in = 12, .d_out = 18, .dropout = 0.3, .num_heads = 3, .rotary = Rotary{}, .seed = 3});
  for (const Engine engine : kLayerEngines) {
    SavedPass saved;
    for (const dim_t tokens : {9, 14, 14, 5}) {
      const Tensor x = normal({2, tokens, 12}, static_cast<std::uint64_t>(tokens));
      const Tensor dy = normal({2, tokens, 18}, 7);
      CallOptions call;
      call.call = 4;
      call.engine = engine;
      const TrainResult expected = layer.forward_train(x, call);
      Tensor y = Tensor::full({2, tokens, 18}, 99.0);
      layer.forward_train_into(x, y, saved, call, KeepInput::borrow);
      EXPECT_TRUE(same_bits(y, expected.y));
      EXPECT_TRUE(same_bits_of_all(LayerBackward(layer, saved, dy, x),
                                   LayerBackward(layer, expected.saved, dy, x)));
      call.drop = false;
      EXPECT_FALSE(same_bits(layer(x, call), expected.y));
    }
    EXPECT_NE(error_of([&] {
                Tensor wrong = Tensor::empty({2, 5, 17});
                layer.forward_train_into(normal({2, 5, 12}, 1), wrong, saved);
              }),
              "");
    EXPECT_TRUE(saved.empty());
  }
}

TEST(SavedPassTest, a_call_without_drop_is_one_of_eval_mode) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .dropout = 0.5, .num_heads = 2, .seed = 3});
  const Tensor x = normal({6, 8}, 1);
  CallOptions call;
  call.drop = false;
  const Tensor y = layer(x, call);
  layer.eval();
  EXPECT_TRUE(same_bits(layer(x), y));
}

TEST(SavedPassTest, a_pass_outlives_a_move_of_its_layer_and_of_itself) {
  MultiHeadAttention layer = small_layer();
  const Tensor x = normal({2, 5, 6}, 1);
  const Tensor dy = normal({2, 5, 8}, 2);
  TrainResult result = layer.forward_train(x);
  const LayerBackward before(layer, result.saved, dy, x);
  const MultiHeadAttention moved = std::move(layer);
  const SavedPass saved = std::move(result.saved);
  EXPECT_TRUE(same_bits_of_all(LayerBackward(moved, saved, dy, x), before));
}

TEST(SavedPassTest, memory_of_a_pass_is_linear_in_tokens) {
  const MultiHeadAttention layer = small_layer();
  const std::size_t small = layer.forward_train(normal({1, 100, 6}, 1)).saved.bytes();
  EXPECT_EQ(layer.forward_train(normal({1, 400, 6}, 1)).saved.bytes(), 4 * small);
}

TEST(SavedPassTest, misuse_is_a_named_error_and_leaves_everything_usable) {
  MultiHeadAttention layer = small_layer();
  const MultiHeadAttention other = small_layer();
  const Tensor x = normal({2, 5, 6}, 1);
  const auto [y, saved] = layer.forward_train(x);
  const SavedPass& pass = saved;
  const Tensor dy = normal({2, 5, 8}, 2);
  Tensor dx = Tensor::empty({2, 5, 6});
  Gradients gradients = layer.new_gradients();
  const auto error = [&](const MultiHeadAttention& of, const SavedPass& from, const TensorView& d,
                         const MutableTensorView& to, Gradients& sums,
                         const MutableTensorView& dkv = {}) {
    return error_of([&] { of.backward(from, d, to, sums, dkv); });
  };
  EXPECT_EQ(error(layer, SavedPass(), dy, dx, gradients),
            "MultiHeadAttention: backward needs the pass that forward_train saved; this one is "
            "empty");
  EXPECT_EQ(error(other, pass, dy, dx, gradients),
            "MultiHeadAttention: backward: this pass was saved by another layer");
  EXPECT_EQ(error(layer, pass, dy.slice(1, 0, 4), dx, gradients),
            "MultiHeadAttention: backward: dy is [2, 4, 8], y is [2, 5, 8]");
  EXPECT_EQ(error(layer, pass, dy[0], dx, gradients),
            "MultiHeadAttention: backward: dy is [5, 8], y is [2, 5, 8]");
  EXPECT_EQ(error(layer, pass, dy, dx.mutable_view().slice(2, 0, 5), gradients),
            "MultiHeadAttention: backward: dx is [2, 5, 5], x is [2, 5, 6]");
  EXPECT_EQ(error(layer, pass, dy, dx, gradients, dx),
            "MultiHeadAttention: backward: dkv is wanted, but this pass had no kv");
  EXPECT_EQ(error(layer, pass, Tensor::copy(dy, DType::f64), dx, gradients),
            "MultiHeadAttention: backward: dy is float64, the parameters are float32");
  Gradients wrong = MultiHeadAttention({.d_in = 6, .d_out = 8, .num_heads = 4}).new_gradients();
  EXPECT_EQ(error(layer, pass, dy, dx, wrong),
            "MultiHeadAttention: backward: these gradients belong to a layer of other sizes; "
            "new_gradients() makes matching ones");
  for (const NamedParameter& p : gradients.named()) EXPECT_TRUE(all_zero(p.value)) << p.name;
  EXPECT_EQ(error(layer, pass, dy, dx, gradients), "");

  layer.update("W_key.bias", Tensor::zeros({8}));
  EXPECT_EQ(error(layer, pass, dy, dx, gradients),
            "MultiHeadAttention: backward: the parameters changed after this pass (version 0 then, "
            "1 now); run forward_train again");
  const auto [y_new, saved_new] = layer.forward_train(x);
  EXPECT_NO_THROW(layer.backward(saved_new, dy, dx, gradients));
}

TEST(SavedPassTest, forward_train_refuses_a_cache) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .seed = 1});
  auto cache = KVCache::growing({.batch = 1, .num_kv_heads = 2, .head_dim = 4, .v_dim = 4});
  EXPECT_EQ(error_of([&] {
              layer.forward_train(normal({1, 3, 6}, 1), {.cache = &cache});
            }),
            "MultiHeadAttention: forward_train takes no cache: gradients reach the tokens of x "
            "alone");
}

}  // namespace
}  // namespace cephalo
