#include "cephalo/effects/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cephalo/core/ops.h"
#include "cephalo/core/random.h"
#include "tests/support/memory.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::normal;
using testing::same_bits;
using testing::tiny_options;

constexpr dim_t kTokens = 37;

struct Kind {
  PositionKind positions;
  DType dtype;
};

Tensor random_ids(const Shape& shape, std::uint64_t seed) {
  TorchGenerator generator(seed);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, 11);
  }
  return ids;
}

// Parameters far from those of a new model, whose weights are nearly uniform and whose biases are
// 0.
Gpt model_of(const Kind& kind) {
  GptOptions o = tiny_options();
  o.positions = kind.positions;
  o.dtype = kind.dtype;
  o.context_length = 64;
  o.d_model = 32;
  o.num_heads = 4;
  o.num_kv_heads = kind.positions == PositionKind::rotary ? 2 : 4;
  Gpt model(o);
  model.update_all([](std::size_t index, const std::string&, const MutableTensorView& p) {
    p.copy_from(add(p, multiply(normal(p.shape(), index, p.dtype()), 0.2)));
  });
  return model;
}

std::vector<std::string> all_names(const GptOptions& o, bool transformer_lens) {
  std::vector<std::string> names;
  for (const SiteInfo& info : sites()) {
    if (info.site == Site::position_embedding && o.positions == PositionKind::rotary) continue;
    const bool in_layer = std::string(info.name).find("{}") != std::string::npos;
    for (dim_t layer = 0; layer < (in_layer ? o.num_layers : 1); ++layer) {
      names.push_back(name_of({info.site, layer, transformer_lens}));
    }
  }
  return names;
}

ModelRunOptions keeping(std::vector<std::string> names) {
  return {.keep = std::move(names)};
}

ModelRunOptions replacing(const std::string& name,
                          std::function<void(const MutableTensorView& value)> change,
                          std::vector<std::string> keep = {}) {
  return {.keep = std::move(keep), .replace = {{name, std::move(change)}}};
}

class RunTest : public ::testing::TestWithParam<Kind> {
 protected:
  double tolerance() const { return GetParam().dtype == DType::f64 ? 1e-13 : 2e-5; }

  Gpt model_ = model_of(GetParam());
  Tensor ids_ = random_ids({2, kTokens}, 5);
};

TEST_P(RunTest, keeping_everything_has_the_bits_of_the_model) {
  const Tensor logits = model_(ids_);
  EXPECT_TRUE(same_bits(run_model(model_, ids_).logits, logits));
  for (const bool transformer_lens : {false, true}) {
    const std::vector<std::string> names = all_names(model_.options(), transformer_lens);
    const RunResult run = run_model(model_, ids_, keeping(names));
    EXPECT_TRUE(same_bits(run.logits, logits));
    ASSERT_EQ(run.kept.size(), names.size());
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(run.kept[i].name, names[i]);
    EXPECT_TRUE(same_bits(run.at("logits"), logits));
  }
}

TEST_P(RunTest, one_sequence_may_come_without_a_batch) {
  const Tensor ids = random_ids({kTokens}, 5);
  const RunResult run = run_model(model_, ids, keeping({"layer.1.weights"}));
  EXPECT_EQ(run.logits.shape(), Shape({1, kTokens, 11}));
  EXPECT_TRUE(same_bits(run.logits[0], model_(ids)));
  EXPECT_EQ(run.at("layer.1.weights").shape(), Shape({1, 4, kTokens, kTokens}));
}

TEST_P(RunTest, names_of_transformer_lens_give_the_same_numbers_tokens_first) {
  const RunResult run = run_model(
      model_, ids_,
      keeping({"layer.1.k", "blocks.1.attn.hook_k", "layer.0.head_out", "blocks.0.attn.hook_result",
               "layer.0.weights", "blocks.0.attn.hook_pattern"}));
  EXPECT_EQ(run.at("blocks.1.attn.hook_k").shape(),
            Shape({2, kTokens, model_.options().num_kv_heads, 8}));
  EXPECT_TRUE(same_bits(run.at("blocks.1.attn.hook_k"), transpose(run.at("layer.1.k"), 1, 2)));
  EXPECT_TRUE(
      same_bits(run.at("blocks.0.attn.hook_result"), transpose(run.at("layer.0.head_out"), 1, 2)));
  EXPECT_TRUE(same_bits(run.at("blocks.0.attn.hook_pattern"), run.at("layer.0.weights")));
}

TEST_P(RunTest, what_is_kept_follows_from_what_came_before_it) {
  const GptOptions& o = model_.options();
  const RunResult run = run_model(model_, ids_, keeping(all_names(o, false)));
  const auto at = [&](const char* name) { return run.at("layer.1." + std::string(name)); };
  EXPECT_TRUE(same_bits(at("resid_pre"), run.at("layer.0.resid_post")));
  EXPECT_TRUE(same_bits(at("resid_mid"), add(at("resid_pre"), at("attention_out"))));
  EXPECT_TRUE(same_bits(at("resid_post"), add(at("resid_mid"), at("mlp_out"))));
  // scores = q · k / √head_dim below the diagonal, −inf above it
  const dim_t group = o.num_heads / o.num_kv_heads;
  for (dim_t h = 0; h < o.num_heads; ++h) {
    const Tensor product =
        multiply(matmul(at("rotated_q")[1][h], transpose(at("rotated_k")[1][h / group], 0, 1)),
                 1.0 / std::sqrt(8.0));
    const TensorView scores = at("scores")[1][h];
    EXPECT_EQ(scores.at({3, 4}), -std::numeric_limits<double>::infinity());
    EXPECT_NEAR(scores.at({30, 7}), product.at({30, 7}), tolerance());
    EXPECT_LT(largest_difference(at("weights")[1][h], softmax(scores)), tolerance());
    EXPECT_LT(
        largest_difference(at("context")[1][h], matmul(at("weights")[1][h], at("v")[1][h / group])),
        tolerance());
  }
  // What heads add, and the bias, is what attention adds.
  Tensor sum = Tensor::copy(
      broadcast_to(model_.parameter("transformer.h.1.attn.c_proj.bias"), {2, kTokens, o.d_model}));
  for (dim_t h = 0; h < o.num_heads; ++h) sum = add(sum, at("head_out").select(1, h));
  EXPECT_LT(largest_difference(sum, at("attention_out")), tolerance());
}

TEST_P(RunTest, rotary_turns_q_and_k_and_learned_positions_leave_them) {
  const RunResult run = run_model(
      model_, ids_, keeping({"layer.0.q", "layer.0.rotated_q", "layer.0.k", "layer.0.rotated_k"}));
  const bool turned = GetParam().positions == PositionKind::rotary;
  EXPECT_EQ(same_bits(run.at("layer.0.q"), run.at("layer.0.rotated_q")), !turned);
  EXPECT_EQ(same_bits(run.at("layer.0.k"), run.at("layer.0.rotated_k")), !turned);
  EXPECT_TRUE(
      same_bits(run.at("layer.0.q").select(2, 0), run.at("layer.0.rotated_q").select(2, 0)));
}

TEST_P(RunTest, norms_divide_by_the_scale_they_show) {
  const RunResult run = run_model(
      model_, ids_, keeping({"layer.1.resid_mid", "layer.1.norm_2_scale", "layer.1.norm_2"}));
  const TensorView x = run.at("layer.1.resid_mid")[1][9];
  double mean = 0.0;
  for (dim_t d = 0; d < 32; ++d) mean += x.at({d}) / 32.0;
  double variance = 0.0;
  for (dim_t d = 0; d < 32; ++d) variance += (x.at({d}) - mean) * (x.at({d}) - mean) / 32.0;
  const double scale = std::sqrt(variance + model_.options().norm_epsilon);
  EXPECT_NEAR(run.at("layer.1.norm_2_scale").at({1, 9, 0}), scale, tolerance());
  const TensorView weight = model_.parameter("transformer.h.1.ln_2.weight");
  const TensorView bias = model_.parameter("transformer.h.1.ln_2.bias");
  EXPECT_NEAR(run.at("layer.1.norm_2").at({1, 9, 4}),
              (x.at({4}) - mean) / scale * weight.at({4}) + bias.at({4}), tolerance());
}

// By what is there already: scores go through softmax, weights through v, heads through their sum.
TEST_P(RunTest, replacing_any_site_by_itself_changes_nothing) {
  const Tensor logits = model_(ids_);
  for (const bool transformer_lens : {false, true}) {
    for (const std::string& name : all_names(model_.options(), transformer_lens)) {
      const RunResult run =
          run_model(model_, ids_, replacing(name, [](const MutableTensorView&) {}));
      EXPECT_LT(largest_difference(run.logits, logits), 10 * tolerance()) << name;
    }
  }
}

TEST_P(RunTest, replacing_any_site_by_something_else_changes_the_logits) {
  const Tensor logits = model_(ids_);
  for (const std::string& name : all_names(model_.options(), false)) {
    const RunResult run =
        run_model(model_, ids_, replacing(name, [](const MutableTensorView& it) {
                    const Tensor kept = Tensor::copy(it);
                    for (dim_t d = 0; d < it.dim(-1); ++d) {  // a column that nothing else is like
                      if (d % 3 == 0)
                        it.slice(it.rank() - 1, d, d + 1).fill(0.25 * static_cast<double>(d + 1));
                    }
                    EXPECT_FALSE(same_bits(kept, it));
                  }));
    EXPECT_GT(largest_difference(run.logits, logits), 1e-3) << name;
  }
}

TEST_P(RunTest, the_stream_of_another_text_brings_its_logits) {
  const Tensor other = random_ids({2, kTokens}, 6);
  const Tensor logits = model_(other);
  for (const char* name : {"token_embedding", "layer.0.resid_pre", "blocks.1.hook_resid_mid",
                           "layer.1.resid_post", "last_norm", "logits"}) {
    const RunResult from = run_model(model_, other, keeping({name}));
    const RunResult run = run_model(model_, ids_, replacing(name, [&](const MutableTensorView& it) {
                                      it.copy_from(from.at(name));
                                    }));
    EXPECT_TRUE(same_bits(run.logits, logits)) << name;
  }
}

TEST_P(RunTest, a_head_zeroed_is_a_head_without_output_parameters) {
  constexpr dim_t kHead = 2;
  const RunResult ours =
      run_model(model_, ids_, replacing("layer.0.context", [](const MutableTensorView& z) {
                  z.select(1, kHead).fill(0.0);
                }));
  const RunResult theirs =
      run_model(model_, ids_, replacing("blocks.0.attn.hook_z", [](const MutableTensorView& z) {
                  z.select(2, kHead).fill(0.0);
                }));
  const RunResult of_outs =
      run_model(model_, ids_, replacing("layer.0.head_out", [](const MutableTensorView& y) {
                  y.select(1, kHead).fill(0.0);
                }));
  Gpt edited = model_of(GetParam());
  Tensor weight = Tensor::copy(edited.parameter("transformer.h.0.attn.c_proj.weight"));
  weight.mutable_view().slice(1, kHead * 8, (kHead + 1) * 8).fill(0.0);
  edited.update("transformer.h.0.attn.c_proj.weight", weight);
  EXPECT_TRUE(same_bits(ours.logits, theirs.logits));
  EXPECT_LT(largest_difference(ours.logits, edited(ids_)), tolerance());
  EXPECT_LT(largest_difference(of_outs.logits, edited(ids_)), tolerance());
  EXPECT_GT(largest_difference(ours.logits, model_(ids_)), 1e-3);
}

TEST_P(RunTest, an_mlp_zeroed_is_an_mlp_without_parameters) {
  const auto zero = [](const MutableTensorView& it) { it.fill(0.0); };
  Gpt edited = model_of(GetParam());
  edited.update_all([](std::size_t, const std::string& name, const MutableTensorView& p) {
    if (name.starts_with("transformer.h.1.mlp.c_proj")) p.fill(0.0);
  });
  const RunResult run = run_model(model_, ids_, replacing("layer.1.mlp_out", zero));
  EXPECT_TRUE(same_bits(run.logits, edited(ids_)));
  // gelu(0) = 0, so nothing but the bias is added.
  const RunResult hidden =
      run_model(model_, ids_, replacing("layer.1.mlp_hidden", zero, {"layer.1.mlp_active"}));
  EXPECT_TRUE(testing::all_zero(hidden.at("layer.1.mlp_active")));
}

TEST_P(RunTest, a_hidden_key_leaves_its_weight_to_the_others) {
  const RunResult run = run_model(model_, ids_,
                                  replacing("layer.0.scores",
                                            [](const MutableTensorView& scores) {
                                              scores.slice(3, 0, 1)
                                                  .slice(2, 1, kTokens)
                                                  .fill(-std::numeric_limits<double>::infinity());
                                            },
                                            {"layer.0.weights", "layer.0.context", "layer.0.v"}));
  const RunResult before = run_model(model_, ids_, keeping({"layer.0.weights"}));
  const TensorView weights = run.at("layer.0.weights");
  for (dim_t i = 1; i < kTokens; ++i) {
    EXPECT_EQ(weights.at({1, 3, i, 0}), 0.0);
    const double rest = 1.0 - before.at("layer.0.weights").at({1, 3, i, 0});
    EXPECT_NEAR(weights.at({1, 3, i, 1}) * rest, before.at("layer.0.weights").at({1, 3, i, 1}),
                tolerance());
  }
  const dim_t kv_head = model_.options().num_kv_heads - 1;
  EXPECT_LT(largest_difference(run.at("layer.0.context")[1][3],
                               matmul(weights[1][3], run.at("layer.0.v")[1][kv_head])),
            tolerance());
}

TEST_P(RunTest, replaced_weights_multiply_the_values_as_they_are) {
  const RunResult run = run_model(
      model_, ids_,
      replacing("layer.1.weights", [](const MutableTensorView& it) { it.fill(1.0 / kTokens); },
                {"layer.1.context", "layer.1.v"}));
  double mean = 0.0;  // of all tokens, later ones too
  for (dim_t j = 0; j < kTokens; ++j) {
    mean += run.at("layer.1.v").at({0, 0, j, 5}) / static_cast<double>(kTokens);
  }
  EXPECT_NEAR(run.at("layer.1.context").at({0, 0, 0, 5}), mean, tolerance());
  EXPECT_NEAR(run.at("layer.1.context").at({0, 0, kTokens - 1, 5}), mean, tolerance());
}

TEST_P(RunTest, a_scale_twice_as_large_halves_what_the_norm_has_centred) {
  const auto twice = [](const MutableTensorView& it) { it.copy_from(multiply(it, 2.0)); };
  const RunResult before = run_model(model_, ids_, keeping({"last_norm"}));
  const RunResult run =
      run_model(model_, ids_, replacing("ln_final.hook_scale", twice, {"last_norm"}));
  const Tensor bias =
      Tensor::copy(broadcast_to(model_.parameter("transformer.ln_f.bias"), {2, kTokens, 32}));
  const Tensor centred = add(before.at("last_norm"), multiply(bias, -1.0));
  EXPECT_LT(largest_difference(run.at("last_norm"), add(multiply(centred, 0.5), bias)),
            tolerance());
}

INSTANTIATE_TEST_SUITE_P(Models, RunTest,
                         ::testing::Values(Kind{PositionKind::learned, DType::f32},
                                           Kind{PositionKind::learned, DType::f64},
                                           Kind{PositionKind::rotary, DType::f32},
                                           Kind{PositionKind::rotary, DType::f64}));

class RunsTest : public ::testing::Test {
 protected:
  Gpt model_ = model_of({PositionKind::learned, DType::f32});
  Tensor ids_ = random_ids({kTokens}, 5);
};

TEST_F(RunsTest, replacements_follow_each_other_and_come_before_what_is_kept) {
  std::vector<double> seen;
  ModelRunOptions options{.keep = {"layer.0.resid_pre"}};
  options.replace.push_back({"layer.0.resid_pre", [](const MutableTensorView& it) { it.fill(1); }});
  options.replace.push_back({"blocks.0.hook_resid_pre", [&](const MutableTensorView& it) {
                               seen.push_back(it.at({0, 3, 4}));
                               it.fill(2.0);
                             }});
  const RunResult run = run_model(model_, ids_, options);
  EXPECT_EQ(seen, std::vector<double>{1.0});
  EXPECT_EQ(run.at("layer.0.resid_pre").at({0, 3, 4}), 2.0);
}

TEST_F(RunsTest, a_name_is_kept_once) {
  const RunResult run =
      run_model(model_, ids_, keeping({"layer.0.q", "layer.0.q", "blocks.0.attn.hook_q"}));
  ASSERT_EQ(run.kept.size(), 2U);
  EXPECT_EQ(error_of([&] { static_cast<void>(run.at("layer.0.k")); }),
            "RunResult: \"layer.0.k\" was not kept");
}

TEST_F(RunsTest, the_same_bits_for_any_number_of_threads) {
  ModelRunOptions options = replacing(
      "layer.0.scores", [](const MutableTensorView& it) { it.copy_from(multiply(it, 0.5)); });
  options.keep = all_names(model_.options(), false);
  options.threads = 1;
  const RunResult one = run_model(model_, ids_, options);
  options.threads = 3;
  const RunResult three = run_model(model_, ids_, options);
  for (const KeptActivation& it : one.kept) {
    EXPECT_TRUE(same_bits(it.value, three.at(it.name))) << it.name;
  }
}

TEST_F(RunsTest, what_cannot_run_is_refused) {
  EXPECT_EQ(error_of([&] { run_model(model_, Tensor::empty({0}, DType::i64)); }),
            "run: ids [0] holds no token");
  EXPECT_EQ(error_of([&] { run_model(model_, random_ids({65}, 1)); }),
            "Gpt: 65 tokens exceed context_length (64)");
  EXPECT_EQ(error_of([&] { run_model(model_, ids_, keeping({"layer.0.contxt"})); }),
            "no activation is called \"layer.0.contxt\"; did you mean \"layer.0.context\"?");
  EXPECT_EQ(error_of([&] { run_model(model_, ids_, replacing("layer.0.q", {})); }),
            "run: nothing replaces \"layer.0.q\"");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(RunsTest, memory_is_linear_in_tokens_unless_pairs_are_wanted) {
  GptOptions o = tiny_options();
  o.positions = PositionKind::rotary;
  o.context_length = 4096;
  o.d_model = 32;
  const Gpt model(o);
  const Tensor ids = random_ids({4096}, 5);
  const double linear = testing::extra_mib([&] {
    run_model(model, ids, keeping({"layer.0.context", "layer.1.resid_post", "layer.1.head_out"}));
  });
  EXPECT_LT(linear, 24.0);  // one head's pairs would be 64 MiB
}
#endif

}  // namespace
}  // namespace cephalo
