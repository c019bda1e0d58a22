#include "cephalo/model/model_steps.h"

#include <gtest/gtest.h>

#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::largest_difference;
using testing::same_bits;
using testing::tiny_options;

Tensor random_ids(const Shape& shape, dim_t vocab_size) {
  TorchGenerator generator(5);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

// What later rows of a walk look back at.
struct LayerKept {
  Tensor resid_pre;  // [rows, d_model]
  Tensor qkv;        // [rows, qkv_width], rotated
};

// ids: [batch, tokens] -> logits: [rows, vocab_size]
Tensor walk(const ModelSteps& steps, const TensorView& ids, std::vector<LayerKept>* kept) {
  const GptOptions& o = steps.options();
  const StepRows rows{ids.dim(0), ids.dim(1), 0};
  Tensor x = Tensor::empty({rows.rows(), o.d_model}, o.dtype);
  Tensor normed = Tensor::empty(x.shape(), o.dtype);
  Tensor context = Tensor::empty(x.shape(), o.dtype);
  Tensor y = Tensor::empty(x.shape(), o.dtype);
  Tensor hidden = Tensor::empty({rows.rows(), o.d_mlp}, o.dtype);
  steps.embed(ids, 0, x);
  TensorView added;
  for (dim_t layer = 0; layer < o.num_layers; ++layer) {
    steps.norm_1(layer, {x, added, normed});
    if (kept != nullptr) kept->push_back({Tensor::copy(x), {}});
    Tensor qkv = Tensor::empty({rows.rows(), steps.qkv_width()}, o.dtype);
    steps.project(layer, normed, qkv);
    const QkvHeads heads = steps.heads(qkv, rows);
    steps.rotate(heads, rows);
    steps.attend(heads.q, heads.k, heads.v, context);
    steps.project_out(layer, context, y);
    steps.norm_2(layer, {x, y, normed});
    steps.mlp(layer, normed, hidden, hidden, y);
    added = y;
    if (kept != nullptr) kept->back().qkv = std::move(qkv);
  }
  steps.last_norm({x, added, normed});
  Tensor logits = Tensor::empty({rows.rows(), o.vocab_size}, o.dtype);
  steps.logits(normed, logits);
  return logits;
}

class ModelStepsTest : public ::testing::TestWithParam<PositionKind> {
 protected:
  GptOptions options() const {
    GptOptions o = tiny_options();
    o.positions = GetParam();
    o.context_length = 200;
    o.d_model = 64;
    o.num_heads = 4;
    o.num_kv_heads = GetParam() == PositionKind::rotary ? 2 : 4;
    o.num_layers = 2;
    o.d_mlp = 0;
    return o;
  }
};

TEST_P(ModelStepsTest, steps_one_by_one_have_the_bits_of_the_model) {
  const Gpt model(options());
  const ModelSteps steps(model);
  const Tensor ids = random_ids({3, 150}, model.options().vocab_size);
  const Tensor logits = walk(steps, ids, nullptr);
  EXPECT_TRUE(same_bits(view(logits, {3, 150, model.options().vocab_size}), model(ids)));
}

TEST_P(ModelStepsTest, a_sequence_has_the_same_bits_alone) {
  const Gpt model(options());
  const ModelSteps steps(model);
  const Tensor ids = random_ids({5, 97}, model.options().vocab_size);
  const Tensor together = walk(steps, ids, nullptr);
  for (dim_t b = 0; b < 5; ++b) {
    const Tensor alone = walk(steps, ids.slice(0, b, b + 1), nullptr);
    EXPECT_TRUE(same_bits(alone, together.slice(0, b * 97, (b + 1) * 97))) << b;
  }
}

TEST_P(ModelStepsTest, rows_from_a_position_on_are_what_they_are_in_the_whole) {
  const Gpt model(options());
  const ModelSteps steps(model);
  const GptOptions& o = model.options();
  constexpr dim_t kTokens = 150;
  const Tensor ids = random_ids({1, kTokens}, o.vocab_size);
  std::vector<LayerKept> kept;
  walk(steps, ids, &kept);
  for (const dim_t first : {1, 37, 64, 149}) {
    // Layer 0, rows ≥ first, their keys being those of all rows.
    const StepRows rows{1, kTokens - first, first};
    Tensor x = Tensor::copy(kept[0].resid_pre.slice(0, first, kTokens));
    Tensor normed = Tensor::empty(x.shape(), o.dtype);
    Tensor context = Tensor::empty(x.shape(), o.dtype);
    Tensor y = Tensor::empty(x.shape(), o.dtype);
    Tensor hidden = Tensor::empty({rows.rows(), o.d_mlp}, o.dtype);
    Tensor qkv = Tensor::empty({rows.rows(), steps.qkv_width()}, o.dtype);
    steps.norm_1(0, {x, {}, normed});
    steps.project_rotated(0, normed, qkv, rows);
    EXPECT_TRUE(same_bits(qkv, kept[0].qkv.slice(0, first, kTokens)));
    const QkvHeads whole =
        steps.heads(kept[0].qkv.mutable_view(), {.batch = 1, .tokens = kTokens, .first = 0});
    steps.attend(steps.heads(qkv, rows).q, whole.k, whole.v, context);
    steps.project_out(0, context, y);
    steps.norm_2(0, {x, y, normed});
    steps.mlp(0, normed, hidden, hidden, y);
    steps.norm_1(1, {x, y, normed});
    // Tiles of the engine begin elsewhere: sums of weights · v are rounded in another order.
    EXPECT_LT(largest_difference(x, kept[1].resid_pre.slice(0, first, kTokens)), 1e-6) << first;
  }
}

TEST_P(ModelStepsTest, the_last_layer_in_halves_has_the_bits_of_the_whole) {
  const Gpt model(options());
  const ModelSteps steps(model);
  const GptOptions& o = model.options();
  const StepRows rows{.batch = 2, .tokens = 11, .first = 7};
  const Tensor normed = testing::normal({rows.rows(), o.d_model}, 3);
  Tensor qkv = Tensor::empty({rows.rows(), steps.qkv_width()});
  Tensor kv = Tensor::empty({rows.rows(), 2 * o.kv_width()});
  Tensor q = Tensor::empty({2, o.d_model});
  steps.project_rotated(1, normed, qkv, rows);
  steps.project_last_kv(normed, kv);
  steps.rotate(steps.kv_heads(kv, 2).k, rows);
  EXPECT_TRUE(same_bits(kv, qkv.slice(1, o.d_model, steps.qkv_width())));
  // The fifth row of each sequence.
  const TensorView fifth(normed.data_as<float>() + 4 * o.d_model, DType::f32, {2, o.d_model},
                         {11 * o.d_model, 1});
  steps.project_last_q(fifth, q);
  steps.rotate(steps.query_heads(q, 2), {.batch = 2, .tokens = 1, .first = 11});
  for (dim_t b = 0; b < 2; ++b) {
    EXPECT_TRUE(same_bits(q[b], qkv[b * 11 + 4].slice(0, 0, o.d_model))) << b;
  }
}

TEST_P(ModelStepsTest, changes_of_heads_add_up_to_that_of_the_context) {
  const Gpt model(options());
  const ModelSteps steps(model);
  const GptOptions& o = model.options();
  const Tensor context = testing::normal({13, o.d_model}, 3);
  Tensor whole = Tensor::empty(context.shape());
  steps.project_out(1, context, whole);
  Tensor parts = Tensor::empty(context.shape());
  for (dim_t i = 0; i < 13; ++i) parts.mutable_view()[i].copy_from(steps.out_bias(1));
  for (dim_t h = 0; h < o.num_heads; ++h) {
    steps.add_projected(1, h, context.slice(1, h * o.head_dim(), (h + 1) * o.head_dim()), parts);
  }
  EXPECT_LT(largest_difference(parts, whole), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Positions, ModelStepsTest,
                         ::testing::Values(PositionKind::learned, PositionKind::rotary));

}  // namespace
}  // namespace cephalo
