#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/c_api.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

// The C interface beside the C++ one; tests/c_api_test.c asks it from C.
namespace cephalo {
namespace {

using testing::Folder;
using testing::normal;
using testing::same_bits;

cephalo_tensor c_tensor(const TensorView& t) {
  cephalo_tensor result{};
  result.data = const_cast<void*>(t.data());
  result.dtype = static_cast<std::int32_t>(t.dtype());
  result.rank = t.rank();
  for (int axis = 0; axis < t.rank(); ++axis) {
    result.shape[axis] = t.dim(axis);
    result.strides[axis] = t.strides()[axis];
  }
  return result;
}

Tensor forward(const cephalo_layer* layer, const TensorView& x, const Shape& shape) {
  Tensor y = Tensor::empty(shape, x.dtype());
  const cephalo_tensor c_x = c_tensor(x);
  const cephalo_tensor c_y = c_tensor(y);
  EXPECT_EQ(cephalo_layer_forward(layer, &c_x, &c_y, 2), CEPHALO_OK) << cephalo_last_error();
  return y;
}

TEST(CApi, a_layer_is_the_cpp_layer_bit_for_bit) {
  const MultiHeadAttentionOptions plain{.d_in = 12,
                                        .d_out = 8,
                                        .context_length = 16,
                                        .num_heads = 4,
                                        .qkv_bias = true,
                                        .num_kv_heads = 2,
                                        .v_dim = 3,
                                        .out_bias = false,
                                        .seed = 123};
  cephalo_layer_options options = cephalo_layer_options_default();
  options.d_in = 12;
  options.d_out = 8;
  options.context_length = 16;
  options.num_heads = 4;
  options.qkv_bias = 1;
  options.num_kv_heads = 2;
  options.v_dim = 3;
  options.out_bias = 0;
  options.seed = 123;
  for (const bool projected : {true, false}) {
    MultiHeadAttentionOptions cpp_options = plain;
    cpp_options.out_proj = projected;
    options.out_proj = projected ? 1 : 0;
    cephalo_layer* layer = nullptr;
    ASSERT_EQ(cephalo_layer_create(&options, &layer), CEPHALO_OK) << cephalo_last_error();
    const MultiHeadAttention expected(cpp_options);
    const Tensor x = normal({2, 7, 12}, 1);
    const dim_t width = projected ? 8 : 4 * 3;
    EXPECT_TRUE(same_bits(forward(layer, x, {2, 7, width}), expected(x)));
    EXPECT_TRUE(same_bits(forward(layer, x[1], {7, width}), expected(x[1])));
    cephalo_layer_destroy(layer);
  }
}

TEST(CApi, dropout_is_on_in_training_and_off_in_eval) {
  cephalo_layer_options options = cephalo_layer_options_default();
  options.d_in = options.d_out = 8;
  options.num_heads = 2;
  options.dropout = 0.5;
  options.seed = 3;
  MultiHeadAttention expected({.d_in = 8, .d_out = 8, .dropout = 0.5, .num_heads = 2, .seed = 3});
  cephalo_layer* layer = nullptr;
  ASSERT_EQ(cephalo_layer_create(&options, &layer), CEPHALO_OK) << cephalo_last_error();
  const Tensor x = normal({2, 9, 8}, 2);
  const Tensor trained = forward(layer, x, x.shape());
  EXPECT_TRUE(same_bits(trained, expected(x)));  // a new layer is in training mode
  EXPECT_EQ(cephalo_layer_eval(layer), CEPHALO_OK);
  expected.eval();
  const Tensor evaluated = forward(layer, x, x.shape());
  EXPECT_TRUE(same_bits(evaluated, expected(x)));
  EXPECT_FALSE(same_bits(evaluated, trained));
  cephalo_layer_destroy(layer);
}

TEST(CApi, a_layer_comes_from_a_file_and_its_parameters_from_tensors) {
  const Folder folder;
  const std::string path = folder / "layer.safetensors";
  MultiHeadAttention saved({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  save_layer(saved, path);
  cephalo_layer* layer = nullptr;
  ASSERT_EQ(cephalo_layer_load(path.c_str(), 0, &layer), CEPHALO_OK) << cephalo_last_error();
  const Tensor x = normal({1, 5, 8}, 3);
  EXPECT_TRUE(same_bits(forward(layer, x, x.shape()), saved(x)));

  const Tensor weight = normal({8, 8}, 4);
  const cephalo_tensor value = c_tensor(weight);
  ASSERT_EQ(cephalo_layer_set_parameter(layer, "W_key.weight", &value), CEPHALO_OK);
  saved.update("W_key.weight", weight);
  EXPECT_TRUE(same_bits(forward(layer, x, x.shape()), saved(x)));
  cephalo_layer_destroy(layer);

  EXPECT_EQ(cephalo_layer_load(path.c_str(), 3, &layer), CEPHALO_ERROR_VALUE);
  EXPECT_NE(std::string(cephalo_last_error()).find("num_heads (3)"), std::string::npos);
}

Tensor gradient(const cephalo_gradients* gradients, const NamedParameter& parameter) {
  Tensor value = Tensor::empty(parameter.value.shape(), parameter.value.dtype());
  const cephalo_tensor out = c_tensor(value);
  EXPECT_EQ(cephalo_gradients_get(gradients, parameter.name.c_str(), &out), CEPHALO_OK)
      << cephalo_last_error();
  return value;
}

TEST(CApi, a_backward_pass_is_the_cpp_layers_bit_for_bit_and_adds_up) {
  cephalo_layer_options options = cephalo_layer_options_default();
  options.d_in = 12;
  options.d_out = 8;
  options.num_heads = 2;
  options.qkv_bias = 1;
  options.seed = 5;
  cephalo_layer* layer = nullptr;
  cephalo_gradients* gradients = nullptr;
  ASSERT_EQ(cephalo_layer_create(&options, &layer), CEPHALO_OK) << cephalo_last_error();
  ASSERT_EQ(cephalo_gradients_create(layer, &gradients), CEPHALO_OK) << cephalo_last_error();
  const MultiHeadAttention expected(
      {.d_in = 12, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 5});
  Gradients expected_gradients = expected.new_gradients();
  for (const std::uint64_t seed : {1, 2}) {
    const Tensor x = normal({2, 7, 12}, seed);
    const Tensor dy = normal({2, 7, 8}, seed + 10);
    Tensor expected_dx = Tensor::empty(x.shape());
    const auto [expected_y, saved] = expected.forward_train(x);
    expected.backward(saved, dy, expected_dx, expected_gradients);

    Tensor y = Tensor::empty(dy.shape());
    Tensor dx = Tensor::empty(x.shape());
    const cephalo_tensor c_x = c_tensor(x), c_y = c_tensor(y), c_dy = c_tensor(dy),
                         c_dx = c_tensor(dx);
    cephalo_pass* pass = nullptr;
    ASSERT_EQ(cephalo_layer_forward_train(layer, &c_x, &c_y, 2, &pass), CEPHALO_OK)
        << cephalo_last_error();
    ASSERT_EQ(cephalo_layer_backward(layer, pass, &c_dy, &c_dx, gradients), CEPHALO_OK)
        << cephalo_last_error();
    cephalo_pass_destroy(pass);
    EXPECT_TRUE(same_bits(y, expected_y));
    EXPECT_TRUE(same_bits(dx, expected_dx));
  }
  for (const NamedParameter& p : expected_gradients.named()) {
    EXPECT_TRUE(same_bits(gradient(gradients, p), p.value)) << p.name;
  }
  EXPECT_EQ(cephalo_gradients_zero(gradients), CEPHALO_OK);
  EXPECT_TRUE(testing::all_zero(gradient(gradients, expected_gradients.named()[0])));
  cephalo_gradients_destroy(gradients);
  cephalo_layer_destroy(layer);
}

TEST(CApi, each_thread_has_its_own_last_error) {
  EXPECT_EQ(cephalo_set_threads(-1), CEPHALO_ERROR_VALUE);
  std::string seen = "nothing was read";
  std::thread([&] { seen = cephalo_last_error(); }).join();
  EXPECT_EQ(seen, "");
  EXPECT_NE(std::string(cephalo_last_error()), "");
}

}  // namespace
}  // namespace cephalo
