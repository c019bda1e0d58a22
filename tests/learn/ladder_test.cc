#include "cephalo/learn/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "cephalo/core/ops.h"
#include "cephalo/core/print.h"
#include "cephalo/core/random.h"
#include "cephalo/model/presets.h"
#include "tests/support/golden.h"
#include "tests/support/golden_layer.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_finite;
using testing::golden_difference;
using testing::golden_differing_bits;
using testing::golden_layer;
using testing::golden_magnitude;
using testing::headline;
using testing::normal;
using testing::same_bits;

// The book's six tokens.
Tensor journey() {
  return Tensor::of({{0.43, 0.15, 0.89},
                     {0.55, 0.87, 0.66},
                     {0.57, 0.85, 0.64},
                     {0.22, 0.58, 0.33},
                     {0.77, 0.25, 0.10},
                     {0.05, 0.80, 0.55}});
}

TEST(LadderTest, rung_1_is_softmax_of_x_with_itself) {
  const SimpleAttention r = simple_attention(journey());
  EXPECT_EQ(to_string(r.weights[1]), "[0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581]");
  EXPECT_EQ(to_string(r.context[1]), "[0.4419, 0.6515, 0.5683]");
  const Tensor batch = normal({2, 5, 7}, 1);
  EXPECT_TRUE(same_bits(simple_attention(batch).context[1], simple_attention(batch[1]).context));
}

TEST(LadderTest, rung_2_prints_the_numbers_of_the_book) {
  SelfAttention raw({.d_in = 3, .d_out = 2, .form = Form::raw, .seed = 123});
  EXPECT_EQ(to_string(raw(journey())[0]), "[0.2996, 0.8053]");
  SelfAttention linear({.d_in = 3, .d_out = 2, .seed = 789});
  EXPECT_EQ(to_string(linear(journey())[0]), "[-0.0739, 0.0713]");
}

TEST(LadderTest, transposed_linear_parameters_in_the_raw_form_give_the_same_output) {
  SelfAttention linear({.d_in = 3, .d_out = 2, .seed = 789});
  SelfAttention raw({.d_in = 3, .d_out = 2, .form = Form::raw, .seed = 1});
  for (const char* name : {"W_query", "W_key", "W_value"}) {
    raw.update(name, transpose(linear.parameter(std::string(name) + ".weight"), 0, 1));
  }
  EXPECT_TRUE(same_bits(raw(journey()), linear(journey())));
}

void expect_golden_parameters(const nlohmann::json& c, const MultiHeadAttention& layer) {
  const auto named = layer.parameters();
  EXPECT_EQ(named.size(), c.at("parameters").size());
  for (const NamedParameter& p : named) {
    ASSERT_TRUE(c.at("parameters").contains(p.name)) << p.name;
    EXPECT_EQ(golden_differing_bits(c.at("parameters").at(p.name), p.value), 0) << p.name;
  }
}

TEST(LadderTest, every_rung_equals_pytorch_parameters_bit_for_bit) {
  const auto golden = testing::read_golden("ladder.json");
  int compared = 0;
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != "rung") continue;
    const auto layer = golden_layer(c);
    expect_golden_parameters(c, *layer);
    const Tensor x = normal({2, c.at("tokens"), c.at("d_in")}, c.at("x_seed"));
    TorchGenerator generator(c.at("dropout_seed").get<std::uint64_t>());
    const Tensor y = (*layer)(x, {.generator = &generator});
    const double bound = 1e-6 * std::max(1.0, golden_magnitude(c.at("output")));
    EXPECT_LE(golden_difference(c.at("output"), y), bound) << headline(c);
    ++compared;
  }
  EXPECT_EQ(compared, 57);
}

TEST(LadderTest, rung_7_takes_a_bare_tensor_as_mask_where_0_is_hidden) {
  const auto golden = testing::read_golden("ladder.json");
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != "masked") continue;
    FastMultiHeadAttention layer({.d_model = 16, .num_heads = 4, .seed = 5});
    const Tensor x = normal({2, 6, 16}, 7);
    Tensor lower = Tensor::zeros({6, 6});
    for (dim_t i = 0; i < 6; ++i) {
      for (dim_t j = 0; j <= i; ++j) lower.set({i, j}, 1);
    }
    EXPECT_LE(golden_difference(c.at("output"), layer(x, lower)), 1e-6);
    EXPECT_TRUE(same_bits(layer(x, lower), layer(x, {.mask = causal()})));
    return;
  }
  FAIL() << "no golden case";
}

TEST(LadderTest, the_torch_form_is_nn_multihead_attention) {
  const auto golden = testing::read_golden("ladder.json");
  int compared = 0;
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != "torch_module") continue;
    MultiHeadAttention layer({.d_in = 24,
                              .d_out = 24,
                              .num_heads = 3,
                              .qkv_bias = true,
                              .causal = false,
                              .seed = c.at("seed").get<std::uint64_t>(),
                              .form = Form::torch});
    expect_golden_parameters(c, layer);
    const Tensor x = normal({2, 5, 24}, 7);
    const Tensor kv = normal({2, 6, 24}, 8);
    Tensor padding = Tensor::zeros({2, 1, 1, 5}, DType::boolean);  // true = hidden, as PyTorch says
    padding.set({1, 0, 0, 3}, 1);
    padding.set({1, 0, 0, 4}, 1);
    const CallOptions padded{.mask = drop(padding)};
    EXPECT_LE(golden_difference(c.at("output"), layer(x, padded)), 1e-6);
    EXPECT_LE(golden_difference(c.at("weights"), layer.trace(x, padded).at("weights").value), 1e-6);
    EXPECT_TRUE(same_bits(layer(x, padded), layer(x, {.mask = lengths({5, 3})})));
    const TensorView memory = kv;
    EXPECT_LE(golden_difference(c.at("cross"), layer(x, {.kv = &memory})), 1e-6);
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(LadderTest, rotary_layers_equal_pytorch) {
  const auto golden = testing::read_golden("attend.json");
  int compared = 0;
  for (const auto& c : golden.at("cases")) {
    if (c.at("case") != "rotary") continue;
    MultiHeadAttention layer({.d_in = 12,
                              .d_out = 24,
                              .num_heads = 3,
                              .rotary = Rotary{.interleaved = c.at("interleaved")},
                              .seed = 123,
                              .dtype = DType::f64});
    const Tensor x = normal({2, 6, 12}, 7, DType::f64);
    EXPECT_LE(golden_difference(c.at("output"), layer(x)), 1e-12);
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(LadderTest, a_head_wrapper_stacked_into_one_projection_gives_the_same_output) {
  HeadWrapper wrapper({.d_in = 12, .d_out = 4, .context_length = 8, .num_heads = 3, .seed = 1});
  MultiHeadAttention stacked(
      {.d_in = 12, .d_out = 12, .num_heads = 3, .out_proj = false, .seed = 2});
  for (const char* name : {"W_query", "W_key", "W_value"}) {
    Tensor rows = Tensor::empty({12, 12});
    for (dim_t h = 0; h < 3; ++h) {
      const std::string part = "heads." + std::to_string(h) + "." + name + ".weight";
      rows.mutable_view().slice(0, 4 * h, 4 * h + 4).copy_from(wrapper.parameter(part));
    }
    stacked.update(std::string(name) + ".weight", rows);
  }
  const Tensor x = normal({2, 8, 12}, 3);
  EXPECT_TRUE(same_bits(wrapper(x), stacked(x)));
}

TEST(LadderTest, step_by_step_shapes) {
  const auto shape_of = [](const Trace& trace, const char* key) { return trace.at(key).shape; };
  {
    EasyMultiHeadAttention layer({.d_model = 8, .num_heads = 2, .seed = 0});
    const Trace t = layer.trace(normal({2, 4, 8}, 1));
    EXPECT_EQ(shape_of(t, "q_split"), (Shape{2, 4, 2, 4}));
    EXPECT_EQ(shape_of(t, "q_heads"), (Shape{2, 2, 4, 4}));
    EXPECT_EQ(shape_of(t, "scores"), (Shape{2, 2, 4, 4}));
    EXPECT_EQ(shape_of(t, "context"), (Shape{2, 4, 8}));
    EXPECT_EQ(shape_of(layer.trace(normal({1, 4, 8}, 1)), "output"), (Shape{1, 4, 8}));
  }
  {
    MultiHeadAttention layer({.d_in = 512, .d_out = 512, .num_heads = 8, .seed = 0});
    EXPECT_EQ(layer.head_dim(), 64);
  }
  {
    CausalAttention layer({.d_in = 256, .d_out = 256, .context_length = 4, .seed = 0});
    const Trace t = layer.trace(normal({8, 4, 256}, 1));
    EXPECT_EQ(shape_of(t, "q"), (Shape{8, 4, 256}));
    EXPECT_EQ(shape_of(t, "scores"), (Shape{8, 4, 4}));
    EXPECT_EQ(shape_of(t, "context"), (Shape{8, 4, 256}));
  }
  {
    MultiHeadAttention layer(preset("gpt2-small"));
    const Trace t = layer.trace(normal({8, 4, 768}, 1));
    EXPECT_EQ(shape_of(t, "q_heads"), (Shape{8, 12, 4, 64}));
    EXPECT_EQ(shape_of(t, "context_heads"), (Shape{8, 12, 4, 64}));
    EXPECT_EQ(shape_of(t, "output"), (Shape{8, 4, 768}));
    EXPECT_EQ(shape_of(layer.trace(normal({4, 100, 768}, 1)), "weights"), (Shape{4, 12, 100, 100}));
    const Tensor y = layer(normal({2, 50, 768}, 1));
    EXPECT_EQ(y.shape(), (Shape{2, 50, 768}));
    EXPECT_TRUE(all_finite(y));
  }
}

TEST(LadderTest, presets_have_the_published_parameter_counts) {
  const std::pair<const char*, dim_t> counts[] = {{"gpt2-small", 2360064},
                                                  {"gpt2-medium", 4195328},
                                                  {"gpt2-large", 6554880},
                                                  {"gpt2-xl", 10241600},
                                                  {"gpt3", 603992064}};
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(parameter_count(preset(name)), count) << name;
  }
  EXPECT_EQ(MultiHeadAttention(preset("gpt2-small")).parameter_count(), 2360064);
  EXPECT_EQ(testing::error_of([] { preset("gpt5"); }),
            "preset: unknown name gpt5; known are gpt2-small, gpt2-medium, gpt2-large, gpt2-xl, "
            "gpt3-small, gpt3-medium, gpt3-large, gpt3-xl, gpt3-2.7b, gpt3-6.7b, gpt3-13b, gpt3");
}

TEST(LadderTest, a_preset_goes_by_each_of_its_names) {
  EXPECT_EQ(model_sizes().size(), 12U);
  std::set<std::string> names;
  for (const ModelSizes& sizes : model_sizes()) {
    EXPECT_EQ(sizes.d_model % sizes.num_heads, 0) << sizes.name;
    for (const std::string name : {sizes.name, sizes.other_name, sizes.parameters}) {
      if (name.empty()) continue;
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(&find_model_sizes(name, "test"), &sizes) << name;
    }
  }
  EXPECT_NE(testing::error_of([] { preset(""); }), "");
}

TEST(LadderTest, changing_future_tokens_changes_no_earlier_output) {
  MultiHeadAttention layer({.d_in = 16, .d_out = 16, .num_heads = 4, .seed = 1});
  Tensor x = normal({2, 9, 16}, 1);
  const Tensor before = layer(x);
  x.mutable_view()[1][6].fill(std::nan(""));
  const Tensor after = layer(x);
  EXPECT_TRUE(same_bits(after[0], before[0]));
  EXPECT_TRUE(same_bits(after[1].slice(0, 0, 6), before[1].slice(0, 0, 6)));
  EXPECT_FALSE(all_finite(after[1][6]));
}

TEST(LadderTest, a_window_as_wide_as_the_context_is_no_window) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  const Tensor x = normal({1, 9, 8}, 1);
  EXPECT_TRUE(same_bits(layer(x), layer(x, {.mask = window(8, 0)})));
  EXPECT_FALSE(same_bits(layer(x), layer(x, {.mask = window(7, 0)})));
}

}  // namespace
}  // namespace cephalo
