#include "tests/model/spread_claims.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/model/gpt.h"
#include "cephalo/train/loss.h"
#include "tests/support/ring_rows.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

constexpr dim_t kBatch = 2;

double relative_difference(const TensorView& a, const TensorView& b) {
  return largest_difference(a, b) / std::max(1.0, largest_magnitude(b));
}

RingShare share_of_mine(const World& world, dim_t tokens) {
  return ring_share(tokens, world.rank(), world.size());
}

// Rows round in another order where they are fewer and keys come in pieces, layer after layer.
double bound_of(DType dtype) {
  return dtype == DType::f32 ? 2e-5 : 1e-13;
}

struct LayerCase {
  std::optional<Rotary> rotary = {};
  dim_t num_kv_heads = 4;
  double dropout = 0.0;
  Spread::By by = Spread::By::ring;
  DType dtype = DType::f32;
  dim_t v_dim = 0;
};

std::string name_of(const LayerCase& c, dim_t tokens) {
  return format_text("{} tokens, rotary {}, {} kv heads, dropout {}, by {}, {}", tokens,
                     c.rotary.has_value(), c.num_kv_heads, c.dropout,
                     c.by == Spread::By::ring ? "ring" : "heads", name(c.dtype));
}

MultiHeadAttention layer_of(const LayerCase& c) {
  MultiHeadAttentionOptions options{.d_in = 24, .d_out = 32, .num_heads = 4};
  options.dropout = c.dropout;
  options.qkv_bias = true;
  options.num_kv_heads = c.num_kv_heads;
  options.v_dim = c.v_dim;
  options.rotary = c.rotary;
  options.seed = 9;
  options.dtype = c.dtype;
  return MultiHeadAttention(options);
}

void compare_layers(World& world, const LayerCase& c, dim_t tokens, const Mask& mask) {
  const MultiHeadAttention layer = layer_of(c);
  const Tensor x = normal({kBatch, tokens, 24}, 1, c.dtype);
  const Tensor dy = normal({kBatch, tokens, 32}, 2, c.dtype);
  const RingShare share = share_of_mine(world, tokens);
  CallOptions call;
  call.mask = mask;
  call.call = 3;

  const TrainResult whole = layer.forward_train(x, call);
  Gradients all = layer.new_gradients();
  Tensor dx = Tensor::empty(x.shape(), c.dtype);
  layer.backward(whole.saved, dy, dx, all);

  call.spread = {&world, tokens, c.by};
  const Tensor mine = rows_of(x, 1, share);
  const TrainResult own = layer.forward_train(mine, call);
  Gradients sums = layer.new_gradients();
  Tensor dmine = Tensor::empty(mine.shape(), c.dtype);
  layer.backward(own.saved, rows_of(dy, 1, share), dmine, sums);

  const double bound = bound_of(c.dtype);
  const std::string name = name_of(c, tokens);
  EXPECT_LE(relative_difference(own.y, rows_of(whole.y, 1, share)), bound) << name;
  EXPECT_LE(relative_difference(dmine, rows_of(dx, 1, share)), bound) << name;
  for (const NamedParameter& p : all.named()) {
    Tensor sum = Tensor::copy(sums.find(p.name));
    world.sum(sum);
    EXPECT_LE(relative_difference(sum, all.find(p.name)), bound) << name << ' ' << p.name;
  }
  EXPECT_TRUE(same_bits(layer(mine, call), own.y)) << name;
}

void a_layer_gives_the_results_of_one_process(World& world) {
  using enum Spread::By;
  for (const dim_t tokens : {std::max<dim_t>(5, world.size()), dim_t{16}, dim_t{97}}) {
    compare_layers(world, {}, tokens, {});
    compare_layers(world, {.rotary = Rotary{}, .num_kv_heads = 2}, tokens, {});
    compare_layers(world, {.rotary = Rotary{}, .dropout = 0.3, .dtype = DType::f64}, tokens, {});
    compare_layers(world, {.num_kv_heads = 1, .dropout = 0.3, .v_dim = 6}, tokens, window(7, 0));
    compare_layers(world, {.rotary = Rotary{}, .dropout = 0.3, .by = heads}, tokens, {});
    compare_layers(world, {.rotary = Rotary{.interleaved = true}, .by = heads}, tokens,
                   lengths({tokens, tokens - 2}));
  }
}

GptOptions model_options() {
  return {.vocab_size = 51,
          .context_length = 128,
          .d_model = 32,
          .num_heads = 4,
          .num_layers = 2,
          .dropout = 0.2,
          .seed = 3};
}

Tensor random_ids(const Shape& shape, dim_t vocab_size, std::uint64_t seed) {
  TorchGenerator generator(seed);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

// The next-token loss of rows whose targets are given, of `count` in the whole.
LogitsLoss loss_of(const Tensor& targets, dim_t count) {
  return [&targets, count](dim_t first, const MutableTensorView& logits) {
    const TensorView flat(targets.data_as<std::int64_t>(), {targets.numel()});
    return cross_entropy_share(logits, flat.slice(0, first, first + logits.dim(0)), count, logits);
  };
}

struct Trained {
  double loss;
  double validation;
  GptGradients gradients;
};

// Two passes, whose gradients add up.
Trained train(const Gpt& model, const Tensor& ids, const Tensor& targets, dim_t count,
              PassOptions options) {
  Trained found{0.0, 0.0, GptGradients(model)};
  for (const std::uint64_t call : {4, 5}) {
    options.call = call;
    found.loss += model.train_pass(ids, loss_of(targets, count), found.gradients, options);
  }
  found.validation = model.loss_pass(ids, loss_of(targets, count), options);
  return found;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.validation, b.validation);
  for (std::size_t n = 0; n < a.gradients.tensors().size(); ++n) {
    EXPECT_TRUE(same_bits(a.gradients.tensors()[n], b.gradients.tensors()[n]));
  }
}

// The bytes of all gradients, for processes to compare.
std::string bytes_of(const Trained& found) {
  std::string bytes = format_text("{} {}", found.loss, found.validation);
  for (const MutableTensorView& t : found.gradients.tensors()) {
    bytes.append(static_cast<const char*>(t.data()),
                 static_cast<std::size_t>(t.numel()) * item_size(t.dtype()));
  }
  return bytes;
}

void compare_models(World& world, const GptOptions& options, dim_t tokens, const Mask& mask) {
  const Gpt model(options);
  const Tensor ids = random_ids({kBatch, tokens}, options.vocab_size, 1);
  const Tensor targets = random_ids({kBatch, tokens}, options.vocab_size, 2);
  const RingShare share = share_of_mine(world, tokens);
  const Tensor mine = rows_of(ids, 1, share);
  const Tensor my_targets = rows_of(targets, 1, share);
  const Spread spread{&world, tokens};
  const double bound = bound_of(options.dtype);

  const Tensor logits = model(ids, {.mask = mask});
  EXPECT_LE(
      relative_difference(model(mine, {.mask = mask, .spread = spread}), rows_of(logits, 1, share)),
      bound);

  const Trained whole = train(model, ids, targets, ids.numel(), {.mask = mask});
  const PassOptions over{.mask = mask, .spread = spread};
  const Trained own = train(model, mine, my_targets, ids.numel(), over);
  EXPECT_NEAR(own.loss, whole.loss, bound * whole.loss) << tokens;
  EXPECT_NEAR(own.validation, whole.validation, bound * whole.validation) << tokens;
  for (std::size_t n = 0; n < whole.gradients.tensors().size(); ++n) {
    EXPECT_LE(relative_difference(own.gradients.tensors()[n], whole.gradients.tensors()[n]), bound)
        << tokens << " tokens, " << model.parameters()[n].name;
  }
  expect_same_bits(train(model, mine, my_targets, ids.numel(), over), own);
  world.require_same("gradient", bytes_of(own));
}

void a_model_gives_the_results_of_one_process(World& world) {
  for (const dim_t tokens : {std::max<dim_t>(7, world.size()), dim_t{64}, dim_t{101}}) {
    GptOptions options = model_options();
    compare_models(world, options, tokens, {});
    options.positions = PositionKind::rotary;
    options.num_kv_heads = 2;
    options.tied_head = false;
    compare_models(world, options, tokens, window(12, 0));
    options.dtype = DType::f64;
    compare_models(world, options, tokens, {});
  }
}

// Some rows of a larger batch, whose tokens are spread as well.
void a_part_of_a_batch_drops_what_it_drops_in_the_whole(World& world) {
  const Gpt model(model_options());
  constexpr dim_t kTokens = 33;
  const Tensor ids = random_ids({kBatch, kTokens}, 51, 1);
  const Tensor targets = random_ids({kBatch, kTokens}, 51, 2);
  const RingShare share = share_of_mine(world, kTokens);
  const Trained whole = train(model, ids, targets, ids.numel(), {});
  double loss = 0.0;
  for (dim_t b = 0; b < kBatch; ++b) {
    const Tensor mine = rows_of(ids.slice(0, b, b + 1), 1, share);
    const Tensor my_targets = rows_of(targets.slice(0, b, b + 1), 1, share);
    loss += train(model, mine, my_targets, ids.numel(),
                  {.batch = {b, kBatch}, .spread = {&world, kTokens}})
                .loss;
  }
  EXPECT_NEAR(loss, whole.loss, bound_of(DType::f32) * whole.loss);
}

void what_does_not_go_together_is_refused(World& world) {
  const Gpt model(model_options());
  const Tensor ids = random_ids({1, 1}, 51, 1);
  GptCache cache = model.new_cache(1);
  EXPECT_NE(error_of([&] {
              model(ids, {.cache = &cache, .spread = {&world, 1}});
            }).find("cache"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              model(ids, {.last_only = true, .spread = {&world, 1}});
            }).find("last_only"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              model(ids, {.spread = {&world, 129}});
            }).find("context_length (128)"),
            std::string::npos);
  const MultiHeadAttention& layer = model.attention(0);
  const Tensor x = normal({1, 1, 32}, 1);
  const TensorView kv = x;
  CallOptions call;
  call.spread = {&world, world.size() - 1};
  EXPECT_NE(error_of([&] { layer(x, call); }).find("too few"), std::string::npos);
  call.spread.tokens = 128;
  EXPECT_NE(error_of([&] { layer(x, call); }).find("of 128 tokens (ring_share)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { layer.trace(x, call); }).find("trace"), std::string::npos);
  call.kv = &kv;
  EXPECT_NE(error_of([&] { layer(x, call); }).find("kv"), std::string::npos);
}

}  // namespace

const std::vector<std::pair<std::string, WorldClaim>>& spread_claims() {
  static const std::vector<std::pair<std::string, WorldClaim>> claims{
      {"a_layer_gives_the_results_of_one_process", a_layer_gives_the_results_of_one_process},
      {"a_model_gives_the_results_of_one_process", a_model_gives_the_results_of_one_process},
      {"a_part_of_a_batch_drops_what_it_drops_in_the_whole",
       a_part_of_a_batch_drops_what_it_drops_in_the_whole},
      {"what_does_not_go_together_is_refused", what_does_not_go_together_is_refused}};
  return claims;
}

}  // namespace cephalo::testing
