#include "cephalo/attention/layer/multi_head.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/random.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::normal;
using testing::same_bits;

TEST(MultiHeadTest, input_of_rank_2_gives_a_result_of_rank_2) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor x = normal({2, 5, 6}, 1);
  EXPECT_EQ(layer(x[1]).shape(), (Shape{5, 8}));
  EXPECT_TRUE(same_bits(layer(x[1]), layer(x)[1]));
  EXPECT_EQ(layer.trace(x[1]).at("scores").shape, (Shape{2, 5, 5}));
}

TEST(MultiHeadTest, a_strided_input_gives_the_same_bits) {
  MultiHeadAttention layer({.d_in = 6, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor x = normal({5, 2, 6}, 1);
  const TensorView turned = transpose(x, 0, 1);
  EXPECT_TRUE(same_bits(layer(turned), layer(Tensor::copy(turned))));
}

TEST(MultiHeadTest, update_all_changes_each_parameter_where_it_lies_under_one_new_version) {
  for (const Form form : {Form::separate, Form::gpt2, Form::torch}) {
    MultiHeadAttention layer(
        {.d_in = 8, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 1, .form = form});
    MultiHeadAttention one_by_one(
        {.d_in = 8, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 1, .form = form});
    layer.prepare();
    std::vector<std::string> names;
    layer.update_all([&](const std::string& name, const MutableTensorView& p) {
      names.push_back(name);
      p.copy_from(multiply(p, 2.0));
    });
    EXPECT_EQ(layer.version(), 1U);
    EXPECT_FALSE(layer.prepared());
    std::vector<std::string> expected;
    for (const NamedParameter& p : one_by_one.parameters()) {
      expected.push_back(p.name);
      one_by_one.update(p.name, multiply(p.value, 2.0));
    }
    EXPECT_EQ(names, expected);
    const Tensor x = normal({2, 5, 8}, 1);
    EXPECT_TRUE(same_bits(layer(x), one_by_one(x)));
  }
}

TEST(MultiHeadTest, a_change_that_throws_leaves_a_new_version_behind) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  layer.prepare();
  EXPECT_EQ(error_of([&] {
              layer.update_all([](const std::string& name, const MutableTensorView& p) {
                p.fill(0.0);
                if (name == "W_key.weight") throw Error(Error::Kind::value, "no more");
              });
            }),
            "no more");
  EXPECT_EQ(layer.version(), 1U);
  EXPECT_FALSE(layer.prepared());
}

TEST(MultiHeadTest, grouped_heads_equal_a_layer_with_repeated_key_and_value_rows) {
  MultiHeadAttention grouped(
      {.d_in = 10, .d_out = 12, .num_heads = 6, .num_kv_heads = 2, .v_dim = 3, .seed = 1});
  MultiHeadAttention full({.d_in = 10, .d_out = 12, .num_heads = 6, .v_dim = 3, .seed = 2});
  EXPECT_EQ(grouped.parameter("W_key.weight").shape(), (Shape{4, 10}));
  EXPECT_EQ(grouped.parameter("W_value.weight").shape(), (Shape{6, 10}));
  EXPECT_EQ(grouped.parameter("out_proj.weight").shape(), (Shape{12, 18}));
  full.update("W_query.weight", grouped.parameter("W_query.weight"));
  full.update("out_proj.weight", grouped.parameter("out_proj.weight"));
  full.update("out_proj.bias", grouped.parameter("out_proj.bias"));
  for (const auto& [name, width] :
       {std::pair{"W_key.weight", dim_t{2}}, std::pair{"W_value.weight", dim_t{3}}}) {
    const TensorView rows = grouped.parameter(name);
    Tensor repeated = Tensor::empty({6 * width, 10});
    for (dim_t h = 0; h < 6; ++h) {
      const dim_t kv = h / 3;
      repeated.mutable_view()
          .slice(0, h * width, (h + 1) * width)
          .copy_from(rows.slice(0, kv * width, (kv + 1) * width));
    }
    full.update(name, repeated);
  }
  const Tensor x = normal({2, 7, 10}, 1);
  EXPECT_TRUE(same_bits(grouped(x), full(x)));
}

TEST(MultiHeadTest, cross_attention_takes_keys_and_values_of_another_width) {
  MultiHeadAttention layer(
      {.d_in = 6, .d_out = 8, .num_heads = 2, .d_kv = 5, .causal = false, .seed = 1});
  EXPECT_EQ(layer.parameter("W_key.weight").shape(), (Shape{8, 5}));
  const Tensor x = normal({2, 4, 6}, 1);
  const Tensor memory = normal({2, 9, 5}, 2);
  const TensorView kv = memory;
  const Tensor y = layer(x, {.kv = &kv});
  EXPECT_EQ(y.shape(), (Shape{2, 4, 8}));
  EXPECT_EQ(layer.trace(x, {.kv = &kv}).at("scores").shape, (Shape{2, 2, 4, 9}));
  EXPECT_EQ(error_of([&] { layer(x); }),
            "MultiHeadAttention: the last dimension of kv [2, 4, 6] must be d_kv (5)");
}

TEST(MultiHeadTest, rotary_depends_on_distance_alone) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .rotary = Rotary{}, .seed = 1});
  const Tensor x = normal({1, 6, 8}, 1);
  const Trace here = layer.trace(x);
  EXPECT_TRUE(here.has("q_rotated"));
  // The same query two positions further on, with all its keys: queries move by the offset, keys by
  // two zero tokens in front.
  Tensor shifted = Tensor::zeros({1, 8, 8});
  shifted.mutable_view().slice(1, 2, 8).copy_from(x);
  const Trace there = layer.trace(shifted);
  EXPECT_LE(largest_difference(here.at("scores").value,
                               there.at("scores").value.slice(2, 2, 8).slice(3, 2, 8)),
            2e-6);
}

TEST(MultiHeadTest, dropout_acts_in_training_only_and_differs_from_call_to_call) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .dropout = 0.5, .num_heads = 2, .seed = 1});
  MultiHeadAttention plain({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor x = normal({1, 9, 8}, 1);
  EXPECT_TRUE(layer.training());
  const Tensor first = layer(x);
  EXPECT_FALSE(same_bits(first, layer(x)));
  EXPECT_TRUE(same_bits(first, layer(x, {.call = 0})));
  EXPECT_FALSE(same_bits(first, plain(x)));
  layer.eval();
  EXPECT_TRUE(same_bits(layer(x), plain(x)));
  layer.train();
  EXPECT_TRUE(same_bits(first, layer(x, {.call = 0})));
}

// Some sequences of a batch, and some queries of theirs: positions, dropout and gradients are those
// of the whole.
TEST(MultiHeadTest, rectangles_of_a_call_have_the_results_of_the_whole) {
  MultiHeadAttention layer({.d_in = 12,
                            .d_out = 16,
                            .dropout = 0.3,
                            .num_heads = 4,
                            .num_kv_heads = 2,
                            .rotary = Rotary{},
                            .seed = 1,
                            .dtype = DType::f64});
  const Tensor x = normal({3, 30, 12}, 1, DType::f64);
  const Tensor dy = normal({3, 30, 16}, 2, DType::f64);
  const TensorView kv = x;
  for (const Engine engine : {Engine::reference, Engine::fused}) {
    const CallOptions call{.kv = &kv, .mask = alibi(alibi_slopes(4)), .call = 7, .engine = engine};
    const TrainResult whole = layer.forward_train(x, call);
    Tensor dx = Tensor::zeros(x.shape(), DType::f64);
    Tensor dkv = Tensor::zeros(x.shape(), DType::f64);
    Gradients gradients = layer.new_gradients();
    layer.backward(whole.saved, dy, dx, gradients, dkv);
    Gradients sums = layer.new_gradients();
    Tensor kv_sums = Tensor::zeros(x.shape(), DType::f64);
    for (const auto& [b, b_end] : {std::pair{0, 1}, std::pair{1, 3}}) {
      const auto sequences = [b_begin = b, end = b_end](const TensorView& t) {
        return t.slice(0, b_begin, end);
      };
      for (const auto& [i, i_end] : {std::pair{0, 12}, std::pair{12, 30}}) {
        const auto rows = [&, begin = i, end = i_end](const TensorView& t) {
          return sequences(t).slice(1, begin, end);
        };
        const TensorView own_kv = sequences(x);
        CallOptions part = call;
        part.kv = &own_kv;
        part.place = {.batch = {b, 3}, .q_tokens = {i, 30}};
        const TrainResult own = layer.forward_train(rows(x), part);
        EXPECT_LE(largest_difference(own.y, rows(whole.y)), 1e-14);
        Tensor own_dx = Tensor::zeros(rows(x).shape(), DType::f64);
        Tensor own_dkv = Tensor::zeros(own_kv.shape(), DType::f64);
        layer.backward(own.saved, rows(dy), own_dx, sums, own_dkv);
        EXPECT_LE(largest_difference(own_dx, rows(dx)), 1e-13);
        const MutableTensorView to = kv_sums.mutable_view().slice(0, b, b_end);
        to.copy_from(add(to, own_dkv));
      }
    }
    EXPECT_LE(largest_difference(kv_sums, dkv), 1e-13);
    for (const NamedParameter& p : gradients.named()) {
      EXPECT_LE(largest_difference(sums.find(p.name), p.value), 1e-12) << p.name;
    }
  }
}

TEST(MultiHeadTest, seeds_are_told_and_streams_continue) {
  const MultiHeadAttentionOptions options{.d_in = 8, .d_out = 8, .num_heads = 2};
  MultiHeadAttention random(options);
  MultiHeadAttentionOptions again = options;
  again.seed = random.seed();
  const Tensor x = normal({1, 4, 8}, 1);
  EXPECT_TRUE(same_bits(random(x), MultiHeadAttention(again)(x)));
  EXPECT_NE(MultiHeadAttention(options).seed(), random.seed());

  TorchGenerator stream(5);
  MultiHeadAttentionOptions one = options;
  one.generator = &stream;
  MultiHeadAttention first(one);
  MultiHeadAttention second(one);
  EXPECT_FALSE(same_bits(first(x), second(x)));
  EXPECT_NE(first.seed(), second.seed());  // so that they do not share their dropout
  one.seed = 5;
  EXPECT_EQ(error_of([&] { MultiHeadAttention both(one); }),
            "MultiHeadAttention: give a seed or a generator to continue, not both");
}

TEST(MultiHeadTest, forms_name_the_same_memory) {
  const auto names = [](const MultiHeadAttention& layer) {
    std::set<std::string> found;
    for (const NamedParameter& p : layer.parameters()) found.insert(p.name);
    return found;
  };
  MultiHeadAttentionOptions o{.d_in = 8, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 3};
  using Names = std::set<std::string>;
  o.form = Form::joined;
  EXPECT_EQ(names(MultiHeadAttention(o)),
            (Names{"qkv_proj.weight", "qkv_proj.bias", "out_proj.weight", "out_proj.bias"}));
  o.form = Form::torch;
  EXPECT_EQ(names(MultiHeadAttention(o)),
            (Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  o.form = Form::gpt2;
  MultiHeadAttention gpt2(o);
  EXPECT_EQ(names(gpt2), (Names{"attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                                "attn.c_proj.bias"}));
  EXPECT_EQ(gpt2.parameter("attn.c_attn.weight").shape(), (Shape{8, 24}));
  o.form = Form::linear;
  EXPECT_TRUE(names(MultiHeadAttention(o)).contains("q_linear.bias"));
  o.form = Form::heads;
  MultiHeadAttention heads(o);
  EXPECT_EQ(heads.parameter("heads.1.W_key.bias").shape(), Shape{4});
  // gpt2 stores in x out: its transposed columns are the rows of a fused layer.
  o.form = Form::joined;
  MultiHeadAttention fused(o);
  fused.update("qkv_proj.weight", transpose(gpt2.parameter("attn.c_attn.weight"), 0, 1));
  fused.update("qkv_proj.bias", gpt2.parameter("attn.c_attn.bias"));
  fused.update("out_proj.weight", transpose(gpt2.parameter("attn.c_proj.weight"), 0, 1));
  fused.update("out_proj.bias", gpt2.parameter("attn.c_proj.bias"));
  const Tensor x = normal({2, 5, 8}, 1);
  EXPECT_TRUE(same_bits(gpt2(x), fused(x)));
  EXPECT_EQ(gpt2.parameter_count(), fused.parameter_count());
}

TEST(MultiHeadTest, element_types_of_input_and_parameters) {
  const Tensor x = normal({1, 5, 8}, 1);
  MultiHeadAttention wide({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1, .dtype = DType::f64});
  MultiHeadAttention single({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor exact = wide(Tensor::copy(x, DType::f64));
  EXPECT_EQ(exact.dtype(), DType::f64);
  EXPECT_LE(largest_difference(single(x), exact), 1e-6);
  for (const auto& [dtype, bound] : {std::pair{DType::bf16, 2e-2}, std::pair{DType::f16, 2e-3}}) {
    const Tensor y = single(Tensor::copy(x, dtype));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_LE(largest_difference(y, exact), bound);
    MultiHeadAttention narrow({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1, .dtype = dtype});
    EXPECT_EQ(narrow.parameter("W_query.weight").dtype(), dtype);
    EXPECT_EQ(narrow(x).dtype(), DType::f32);
    EXPECT_LE(largest_difference(narrow(x), exact), bound);
  }
  EXPECT_EQ(error_of([&] { wide(x); }),
            "MultiHeadAttention: x is float32, the parameters are float64");
}

TEST(MultiHeadTest, parameters_are_found_and_updated_by_name) {
  MultiHeadAttention layer({.d_in = 4, .d_out = 4, .num_heads = 2, .seed = 1});
  EXPECT_EQ(error_of([&] { layer.parameter("W_q"); }),
            "parameters: there is no W_q; this layer has W_query.weight, W_key.weight, "
            "W_value.weight, out_proj.weight, out_proj.bias");
  EXPECT_EQ(error_of([&] {
              layer.update("W_query.weight", Tensor::zeros({4, 3}));
            }),
            "MultiHeadAttention: W_query.weight has shape [4, 4], not [4, 3]");
}

TEST(MultiHeadTest, N1_sixty_four_threads_may_call_one_layer) {
  MultiHeadAttention layer({.d_in = 32, .d_out = 32, .num_heads = 4, .seed = 1});
  std::vector<Tensor> inputs;
  std::vector<Tensor> expected;
  for (dim_t tokens = 1; tokens <= 24; ++tokens) {
    inputs.push_back(normal({2, tokens, 32}, static_cast<std::uint64_t>(tokens)));
    expected.push_back(layer(inputs.back(), {.threads = 1}));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < 64; ++c) {
    callers.emplace_back([&, c] {
      for (std::size_t round = 0; round < 20; ++round) {
        const std::size_t k = (c + round) % inputs.size();
        if (!same_bits(layer(inputs[k]), expected[k])) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(MultiHeadTest, two_hundred_and_fifty_repeats_give_the_same_bits) {
  MultiHeadAttention layer({.d_in = 64, .d_out = 64, .num_heads = 4, .seed = 1});
  const Tensor x = normal({2, 33, 64}, 1);
  const Tensor first = layer(x);
  for (int round = 0; round < 250; ++round) ASSERT_TRUE(same_bits(layer(x), first));
}

}  // namespace
}  // namespace cephalo
