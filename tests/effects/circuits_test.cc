#include "cephalo/effects/circuits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/effects/golden_model.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::golden_effects;
using testing::GoldenEffects;

const std::pair<const char*, Composition> kKinds[] = {
    {"query", Composition::query}, {"key", Composition::key}, {"value", Composition::value}};

class CircuitsTest : public testing::GoldenEffectsTest {};

TEST_P(CircuitsTest, composition_is_that_of_the_whole_matrices) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const GoldenEffects c = of(dtype);
    const GptOptions& o = c.model.options();
    for (const auto& [name, kind] : kKinds) {
      const auto& wanted = c.golden.at("composition").at(name);
      const Tensor found = composition(c.model, kind).scores;
      for (dim_t e = 0; e < o.num_layers; ++e) {
        for (dim_t eh = 0; eh < o.num_heads; ++eh) {
          for (dim_t l = 0; l < o.num_layers; ++l) {
            for (dim_t lh = 0; lh < o.num_heads; ++lh) {
              const auto& score = wanted.at(e).at(eh).at(l).at(lh);
              const double ours = found.at({e, eh, l, lh});
              EXPECT_EQ(score.is_null(), std::isnan(ours)) << name << e << eh << l << lh;
              if (score.is_null()) continue;
              EXPECT_NEAR(ours, score, dtype == DType::f64 ? 1e-12 : 1e-6)
                  << name << e << eh << l << lh;
            }
          }
        }
      }
    }
  }
}

TEST_P(CircuitsTest, copying_has_the_eigenvalues_of_the_whole_matrix) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const GoldenEffects c = of(dtype);
    const Tensor found = copying(c.model);
    for (dim_t l = 0; l < found.dim(0); ++l) {
      for (dim_t h = 0; h < found.dim(1); ++h) {
        EXPECT_NEAR(found.at({l, h}), c.golden.at("copying").at(l).at(h),
                    dtype == DType::f64 ? 1e-10 : 1e-5)
            << l << h;
      }
    }
  }
}

GptOptions random_options() {
  return {.vocab_size = 50,
          .context_length = 16,
          .d_model = 64,
          .num_heads = 4,
          .num_layers = 3,
          .seed = 3,
          .dtype = DType::f64};
}

TEST(CircuitsBaselineTest, heads_of_an_untrained_model_score_the_baseline) {
  const Gpt model(random_options());
  for (const auto& [name, kind] : kKinds) {
    const CompositionScores found = composition(model, kind);
    double sum = 0.0;
    int pairs = 0;
    for (dim_t i = 0; i < found.scores.numel(); ++i) {
      const double score = found.scores.data_as<double>()[i];
      if (std::isnan(score)) continue;
      sum += score;
      ++pairs;
    }
    EXPECT_EQ(pairs, 3 * 16) << name;
    EXPECT_NEAR(sum / pairs, found.baseline, 0.03 * found.baseline) << name;
  }
}

TEST(CircuitsBaselineTest, the_baseline_depends_on_its_seed_alone) {
  const Gpt model(random_options());
  EXPECT_EQ(composition(model, Composition::key, 5).baseline,
            composition(model, Composition::key, 5).baseline);
  EXPECT_NE(composition(model, Composition::key, 5).baseline,
            composition(model, Composition::key, 6).baseline);
}

// Stored [out, in], q, k and v below each other.
std::string qkv_name(dim_t layer) {
  return "transformer.h." + std::to_string(layer) + ".attn.c_attn.weight";
}

std::string out_name(dim_t layer) {
  return "transformer.h." + std::to_string(layer) + ".attn.c_proj.weight";
}

TEST(CircuitsMeaningTest, a_head_whose_keys_read_what_another_writes_stands_out) {
  Gpt model(random_options());
  // W_K of layer 2 head 1 is W_Oᵀ of layer 0 head 2.
  const dim_t d = model.options().d_model;
  const dim_t width = model.options().head_dim();
  const Tensor out = Tensor::copy(model.parameter(out_name(0)));
  Tensor qkv = Tensor::copy(model.parameter(qkv_name(2)));
  for (dim_t i = 0; i < width; ++i) {
    for (dim_t c = 0; c < d; ++c) qkv.set({d + width + i, c}, out.at({c, 2 * width + i}));
  }
  model.update(qkv_name(2), qkv);
  const CompositionScores keys = composition(model, Composition::key);
  EXPECT_GT(keys.scores.at({0, 2, 2, 1}), 1.8 * keys.baseline);
  EXPECT_LT(keys.scores.at({0, 1, 2, 1}), 1.3 * keys.baseline);
  const CompositionScores queries = composition(model, Composition::query);
  EXPECT_LT(queries.scores.at({0, 2, 2, 1}), 1.3 * queries.baseline);
}

TEST(CircuitsMeaningTest, a_head_that_hands_on_what_it_reads_copies) {
  // W_O = W_Vᵀ: then W_V W_O is symmetric and of no negative eigenvalue, W_E being W_Uᵀ.
  for (const double sign : {1.0, -1.0}) {
    Gpt model(random_options());
    const dim_t d = model.options().d_model;
    const dim_t width = model.options().head_dim();
    const Tensor qkv = Tensor::copy(model.parameter(qkv_name(1)));
    Tensor out = Tensor::copy(model.parameter(out_name(1)));
    for (dim_t i = 0; i < width; ++i) {
      for (dim_t c = 0; c < d; ++c) out.set({c, i}, sign * qkv.at({2 * d + i, c}));
    }
    model.update(out_name(1), out);
    const Tensor found = copying(model);
    EXPECT_NEAR(found.at({1, 0}), sign, 1e-9);
    EXPECT_LT(std::abs(found.at({1, 1})), 0.9);
  }
}

TEST(CircuitsMeaningTest, a_head_of_zeros_has_no_score) {
  Gpt model(random_options());
  Tensor out = Tensor::copy(model.parameter(out_name(0)));
  out.mutable_view().slice(1, 0, model.options().head_dim()).fill(0.0);
  model.update(out_name(0), out);
  EXPECT_TRUE(std::isnan(copying(model).at({0, 0})));
  EXPECT_FALSE(std::isnan(copying(model).at({1, 0})));
  EXPECT_TRUE(std::isnan(composition(model, Composition::key).scores.at({0, 0, 1, 0})));
}

TEST(CircuitsMeaningTest, A17_nan_in_a_head_leaves_the_others_their_scores) {
  Gpt model(random_options());
  const Tensor whole = copying(model);
  Tensor out = Tensor::copy(model.parameter(out_name(0)));
  out.set({3, 0}, std::nan(""));
  model.update(out_name(0), out);
  const Tensor found = copying(model);
  const Tensor keys = composition(model, Composition::key).scores;
  EXPECT_TRUE(std::isnan(found.at({0, 0})) && std::isnan(keys.at({0, 0, 1, 0})));
  EXPECT_EQ(found.at({0, 1}), whole.at({0, 1}));
  EXPECT_FALSE(std::isnan(keys.at({0, 1, 1, 0})));
}

INSTANTIATE_TEST_SUITE_P(Models, CircuitsTest, ::testing::Values("learned", "rotary"));

}  // namespace
}  // namespace cephalo
