#include "cephalo/model/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/train/gradcheck.h"
#include "cephalo/train/loss.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::error_of;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::same_bits;
using testing::tiny_options;

Tensor random_ids(const Shape& shape, dim_t vocab_size, std::uint64_t seed = 1) {
  TorchGenerator generator(seed);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

// The next-token loss of rows whose targets are given.
LogitsLoss loss_of(const Tensor& targets) {
  return [&targets](dim_t first, const MutableTensorView& logits) {
    const TensorView flat(targets.data_as<std::int64_t>(), {targets.numel()});
    return cross_entropy_share(logits, flat.slice(0, first, first + logits.dim(0)), targets.numel(),
                               logits);
  };
}

// Parameters far from those of a new model: biases that are not 0, norms that are not 1.
void scatter(Gpt& model) {
  TorchGenerator generator(77);
  model.update_all([&](std::size_t, const std::string& name, const MutableTensorView& p) {
    const Tensor drawn = generator.randn(p.shape());
    const bool scale = name.find("ln_") != std::string::npos && name.ends_with(".weight");
    for (dim_t i = 0; i < p.dim(0); ++i) {
      for (dim_t k = 0; k < (p.rank() == 2 ? p.dim(1) : 1); ++k) {
        const Dims at = p.rank() == 2 ? Dims{i, k} : Dims{i};
        p.set(at, (scale ? 1.0 : 0.0) + 0.4 * drawn.at(at));
      }
    }
  });
}

struct GradientCase {
  const char* name;
  GptOptions options;
};

class GptGradientTest : public ::testing::TestWithParam<GradientCase> {};

std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> cases;
  GptOptions o = tiny_options();
  o.dtype = DType::f64;
  cases.push_back({"learned_tied", o});
  o.dropout = 0.3;
  cases.push_back({"dropout", o});
  o.dropout = 0.0;
  o.tied_head = false;
  o.qkv_bias = false;
  o.positions = PositionKind::rotary;
  cases.push_back({"rotary_separate_head", o});
  o.activation = Activation::gelu_erf;
  cases.push_back({"gelu_erf", o});
  o.num_kv_heads = 1;
  o.qkv_bias = true;
  cases.push_back({"shared_heads", o});
  return cases;
}

TEST_P(GptGradientTest, every_parameter_has_the_gradient_of_central_differences) {
  Gpt model(GetParam().options);
  scatter(model);
  const Tensor ids = random_ids({2, 7}, 11);
  const Tensor targets = random_ids({2, 7}, 11, 2);
  GptGradients gradients(model);
  PassOptions pass{.call = 5};
  model.train_pass(ids, loss_of(targets), gradients, pass);
  GptGradients unused(model);
  GradcheckReport report;
  model.update_all([&](std::size_t index, const std::string& name, const MutableTensorView& p) {
    report.tensors.push_back(check_gradient(
        name, [&] { return model.train_pass(ids, loss_of(targets), unused, pass); }, p,
        gradients.tensors()[index]));
  });
  EXPECT_EQ(report.tensors.size(), model.parameters().size());
  EXPECT_TRUE(report.passed()) << report.to_string();
}

INSTANTIATE_TEST_SUITE_P(Gpt, GptGradientTest, ::testing::ValuesIn(gradient_cases()),
                         [](const auto& each) { return each.param.name; });

// A model with enough rows for several blocks of logits and threads.
GptOptions small_options() {
  return {.vocab_size = 97,
          .context_length = 40,
          .d_model = 48,
          .num_heads = 4,
          .num_layers = 3,
          .dropout = 0.2,
          .seed = 5};
}

double train(const Gpt& model, const Tensor& ids, const Tensor& targets, GptGradients& gradients,
             const PassOptions& options = {}) {
  return model.train_pass(ids, loss_of(targets), gradients, options);
}

void expect_same_bits(const GptGradients& a, const GptGradients& b) {
  for (std::size_t k = 0; k < a.tensors().size(); ++k) {
    EXPECT_TRUE(same_bits(a.tensors()[k], b.tensors()[k])) << k;
  }
}

TEST(GptTest, parts_of_a_batch_drop_what_they_drop_in_the_whole) {
  GptOptions options = small_options();
  options.dtype = DType::f64;
  const Gpt model(options);
  const Tensor ids = random_ids({5, 40}, 97);
  const Tensor targets = random_ids({5, 40}, 97, 2);
  GptGradients expected(model);
  const double loss = train(model, ids, targets, expected, {.call = 3});
  GptGradients sums(model);
  double sum = 0.0;
  for (const auto& [begin, end] : {std::pair{0, 2}, std::pair{2, 5}}) {
    const Tensor own = Tensor::copy(TensorView(targets).slice(0, begin, end));
    const auto share = [&](dim_t first, const MutableTensorView& logits) {
      const TensorView flat(own.data_as<std::int64_t>(), {own.numel()});
      return cross_entropy_share(logits, flat.slice(0, first, first + logits.dim(0)),
                                 targets.numel(), logits);
    };
    sum += model.train_pass(TensorView(ids).slice(0, begin, end), share, sums,
                            {.call = 3, .batch = {begin, 5}});
  }
  EXPECT_NEAR(sum, loss, 1e-13);
  for (std::size_t k = 0; k < sums.tensors().size(); ++k) {
    EXPECT_LE(largest_difference(sums.tensors()[k], expected.tensors()[k]), 1e-13) << k;
  }
  EXPECT_EQ(error_of([&] {
              train(model, ids, targets, sums, {.batch = {1, 5}});
            }),
            "MultiHeadAttention: place.batch: 5 from 1 on are not inside a whole of 5");
}

TEST(GptTest, a_training_pass_has_the_same_bits_for_any_number_of_threads) {
  const Gpt model(small_options());
  const Tensor ids = random_ids({11, 40}, 97);
  const Tensor targets = random_ids({11, 40}, 97, 2);
  GptGradients expected(model);
  const double loss = train(model, ids, targets, expected, {.threads = 1});
  for (const int threads : {2, 3, 7}) {
    GptGradients found(model);
    EXPECT_EQ(train(model, ids, targets, found, {.threads = threads}), loss);
    expect_same_bits(found, expected);
  }
}

TEST(GptTest, gradients_of_several_passes_add_up) {
  GptOptions options = small_options();
  options.dtype = DType::f64;
  options.dropout = 0.0;
  const Gpt model(options);
  const Tensor ids = random_ids({4, 20}, 97);
  const Tensor targets = random_ids({4, 20}, 97, 2);
  GptGradients whole(model);
  const double loss = train(model, ids, targets, whole);
  GptGradients parts(model);
  double sum = 0.0;
  for (dim_t b = 0; b < 4; b += 2) {
    const Tensor some = Tensor::copy(targets.slice(0, b, b + 2));
    sum += train(model, Tensor::copy(ids.slice(0, b, b + 2)), some, parts);
  }
  EXPECT_NEAR(sum / 2, loss, 1e-12);
  for (std::size_t k = 0; k < whole.tensors().size(); ++k) {
    const TensorView sum_of_means = parts.tensors()[k];
    Tensor halved = Tensor::copy(sum_of_means);
    double* x = halved.mutable_data_as<double>();
    for (dim_t i = 0; i < halved.numel(); ++i) x[i] /= 2;
    EXPECT_LE(largest_difference(halved, whole.tensors()[k]), 1e-12);
  }
  parts.zero();
  for (const MutableTensorView& t : parts.tensors()) EXPECT_TRUE(all_zero(t));
}

TEST(GptTest, a_workspace_changes_no_bit_and_serves_any_batch) {
  const Gpt model(small_options());
  GptWorkspace workspace;
  for (const dim_t batch : {3, 5, 2}) {
    const Tensor ids = random_ids({batch, 17 + batch}, 97);
    const Tensor targets = random_ids({batch, 17 + batch}, 97, 2);
    GptGradients expected(model);
    const double loss = train(model, ids, targets, expected);
    for (int repeat = 0; repeat < 2; ++repeat) {
      GptGradients found(model);
      EXPECT_EQ(train(model, ids, targets, found, {.workspace = &workspace}), loss);
      expect_same_bits(found, expected);
    }
  }
  EXPECT_GT(workspace.bytes(), 0U);
  workspace.clear();
  EXPECT_EQ(workspace.bytes(), 0U);
}

TEST(GptTest, dropout_is_a_function_of_the_call_number) {
  const Gpt model(small_options());
  const Tensor ids = random_ids({2, 9}, 97);
  const Tensor targets = random_ids({2, 9}, 97, 2);
  GptGradients unused(model);
  const double first = train(model, ids, targets, unused, {.call = 7});
  EXPECT_EQ(train(model, ids, targets, unused, {.call = 7}), first);
  EXPECT_NE(train(model, ids, targets, unused, {.call = 8}), first);
}

TEST(GptTest, parameters_laid_out_for_training_change_no_bit) {
  for (const bool tied : {true, false}) {
    GptOptions options = small_options();
    options.tied_head = tied;
    Gpt model(options);
    const Tensor ids = random_ids({3, 40}, 97);
    const Tensor targets = random_ids({3, 40}, 97, 2);
    GptGradients plain(model);
    const double loss = train(model, ids, targets, plain);
    for (const Prepare what : {Prepare::calls, Prepare::training}) {
      model.prepare(what);
      GptGradients gradients(model);
      EXPECT_EQ(train(model, ids, targets, gradients), loss);
      for (std::size_t k = 0; k < plain.tensors().size(); ++k) {
        EXPECT_TRUE(same_bits(gradients.tensors()[k], plain.tensors()[k]));
      }
    }
  }
}

TEST(GptTest, gradients_are_told_once_and_do_not_change_any_more) {
  for (const bool tied : {true, false}) {
    GptOptions options = small_options();
    options.tied_head = tied;
    options.positions = tied ? PositionKind::rotary : PositionKind::learned;
    const Gpt model(options);
    const Tensor ids = random_ids({3, 40}, 97);
    GptGradients gradients(model);
    std::vector<Tensor> told(gradients.tensors().size());
    std::vector<std::size_t> order;
    PassOptions pass;
    pass.on_gradients = [&](std::size_t first, std::size_t end) {
      order.push_back(first);
      for (std::size_t k = first; k < end; ++k) {
        EXPECT_EQ(told[k].numel(), 0) << "twice";
        told[k] = Tensor::copy(gradients.tensors()[k]);
      }
    };
    train(model, ids, ids, gradients, pass);
    for (std::size_t k = 0; k < told.size(); ++k) {
      EXPECT_TRUE(same_bits(told[k], gradients.tensors()[k])) << model.parameters()[k].name;
    }
    EXPECT_EQ(order.size(), static_cast<std::size_t>(options.num_layers) + 2);
    EXPECT_TRUE(std::is_sorted(order.rbegin(), order.rend()));
  }
}

TEST(GptTest, loss_pass_is_the_loss_of_the_logits_and_drops_nothing) {
  const Gpt model(small_options());
  const Tensor ids = random_ids({12, 40}, 97);  // 480 rows: two blocks
  const Tensor targets = random_ids({12, 40}, 97, 2);
  const Tensor logits = model(ids).reshaped({480, 97});
  const TensorView flat(targets.data_as<std::int64_t>(), {480});
  const double expected = cross_entropy(logits, flat);
  EXPECT_NEAR(model.loss_pass(ids, loss_of(targets)), expected, 1e-9);
}

TEST(GptTest, a_cache_gives_the_logits_of_the_whole) {
  for (const PositionKind positions : {PositionKind::learned, PositionKind::rotary}) {
    GptOptions options = small_options();
    options.positions = positions;
    Gpt model(options);
    model.prepare();
    const Tensor ids = random_ids({2, 30}, 97);
    const Tensor whole = model(ids);
    GptCache cache = model.new_cache(2);
    dim_t begin = 0;
    for (const dim_t count : {11, 1, 1, 7, 10}) {
      const Tensor part = model(ids.slice(1, begin, begin + count), {.cache = &cache});
      EXPECT_LE(largest_difference(part, whole.slice(1, begin, begin + count)), 1e-5);
      begin += count;
    }
    EXPECT_EQ(cache.tokens(), 30);
    cache.clear();
    EXPECT_EQ(cache.tokens(), 0);
  }
}

TEST(GptTest, last_only_is_the_last_row_and_one_sequence_needs_no_batch) {
  const Gpt model(small_options());
  const Tensor ids = random_ids({2, 12}, 97);
  const Tensor whole = model(ids);
  const Tensor last = model(ids, {.last_only = true});
  EXPECT_EQ(last.shape(), (Shape{2, 1, 97}));
  EXPECT_TRUE(same_bits(last, whole.slice(1, 11, 12)));
  const Tensor one = model(ids[1]);
  EXPECT_EQ(one.shape(), (Shape{12, 97}));
  EXPECT_LE(largest_difference(one, whole[1]), 1e-6);
  EXPECT_EQ(model(Tensor::empty({0, 12}, DType::i32)).shape(), (Shape{0, 12, 97}));
}

TEST(GptTest, what_attention_layers_are_given_can_be_seen) {
  const Gpt model(small_options());
  const Tensor ids = random_ids({1, 6}, 97);
  std::vector<dim_t> layers;
  model(ids, {.on_attention = [&](dim_t layer, const TensorView& x) {
          layers.push_back(layer);
          EXPECT_EQ(x.shape(), (Shape{1, 6, 48}));
          EXPECT_EQ(model.attention(layer).trace(x).at("weights").shape, (Shape{1, 4, 6, 6}));
        }});
  EXPECT_EQ(layers, (std::vector<dim_t>{0, 1, 2}));
}

// What a layer worked with on x, from a call of its own.
void expect_worked_on(const MultiHeadAttention& layer, const TensorView& x, const SavedPass& kept) {
  const SavedPass own = layer.forward_train(x, {.drop = false}).saved;
  EXPECT_TRUE(same_bits(kept.heads().q, own.heads().q));
  EXPECT_TRUE(same_bits(kept.heads().k, own.heads().k));
  EXPECT_TRUE(same_bits(kept.heads().v, own.heads().v));
  EXPECT_TRUE(same_bits(kept.heads().lse, own.heads().lse));
  EXPECT_EQ(kept.heads().mask.to_string(), "causal()");
}

TEST(GptTest, a_call_keeps_what_attention_worked_with_and_changes_nothing) {
  GptOptions options = small_options();
  options.dropout = 0.5;  // of training: keeping is not dropping
  const Gpt model(options);
  std::vector<SavedPass> saved;
  for (const dim_t tokens : {1, 2, 6}) {
    const Tensor ids = random_ids({2, tokens}, 97);
    std::vector<Tensor> inputs;
    const GptCall call{.saved = &saved, .on_attention = [&](dim_t, const TensorView& x) {
                         inputs.push_back(Tensor::copy(x));
                       }};
    EXPECT_TRUE(same_bits(model(ids, call), model(ids))) << tokens;
    ASSERT_EQ(std::ssize(saved), options.num_layers);
    for (dim_t l = 0; l < options.num_layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      expect_worked_on(model.attention(l), inputs[at], saved[at]);
    }
  }
}

TEST(GptTest, what_a_call_kept_goes_back_on_its_own) {
  const Gpt model(small_options());
  std::vector<SavedPass> saved;
  std::vector<Tensor> inputs;
  model(random_ids({2, 5}, 97), {.saved = &saved, .on_attention = [&](dim_t, const TensorView& x) {
                                   inputs.push_back(Tensor::copy(x));
                                 }});
  // The first layer's x was overwritten by those after it: the pass must have a copy.
  const MultiHeadAttention& layer = model.attention(0);
  const TrainResult own = layer.forward_train(inputs[0], {.drop = false});
  Gradients kept_sums = layer.new_gradients();
  Gradients own_sums = layer.new_gradients();
  Tensor dx = Tensor::empty(inputs[0].shape(), DType::f32);
  Tensor own_dx = Tensor::empty(inputs[0].shape(), DType::f32);
  layer.backward(saved[0], own.y, dx, kept_sums);
  layer.backward(own.saved, own.y, own_dx, own_sums);
  EXPECT_TRUE(same_bits(dx, own_dx));
  for (std::size_t p = 0; p < own_sums.named().size(); ++p) {
    EXPECT_TRUE(same_bits(kept_sums.named()[p].value, own_sums.named()[p].value)) << p;
  }
}

TEST(GptTest, a_call_with_a_cache_keeps_nothing_else) {
  const Gpt model(small_options());
  GptCache cache = model.new_cache(1);
  std::vector<SavedPass> saved;
  EXPECT_EQ(error_of([&] {
              model(random_ids({1, 3}, 97), {.cache = &cache, .saved = &saved});
            }),
            "Gpt: saved takes what attention worked with on these ids alone; it does not go with a "
            "cache");
  model(random_ids({1, 3}, 97), {.saved = &saved});
  model(random_ids({1, 0}, 97), {.saved = &saved});
  EXPECT_TRUE(saved.empty());
}

TEST(GptTest, prepared_and_unprepared_models_agree_and_an_update_is_seen) {
  Gpt model(small_options());
  const Tensor ids = random_ids({1, 6}, 97);
  const Tensor before = model(ids);
  model.prepare();
  EXPECT_TRUE(same_bits(model(ids), before));
  const std::uint64_t version = model.version();
  model.update("transformer.ln_f.weight", Tensor::full({48}, 2.0));
  EXPECT_GT(model.version(), version);
  EXPECT_NEAR(largest_magnitude(model(ids)), 2 * largest_magnitude(before), 1e-5);
}

TEST(GptTest, A14_ids_outside_the_vocabulary_are_named) {
  const Gpt model(small_options());
  Tensor ids = random_ids({2, 5}, 97);
  GptGradients gradients(model);
  ids.set({1, 3}, 97);
  EXPECT_EQ(error_of([&] { model(ids); }),
            "Gpt: id 97 at position 3 of sequence 1 is outside the vocabulary of 97");
  EXPECT_EQ(error_of([&] { model(ids[1]); }),
            "Gpt: id 97 at position 3 is outside the vocabulary of 97");
  ids.set({1, 3}, -1);
  EXPECT_EQ(error_of([&] { train(model, ids, ids, gradients); }),
            "Gpt::train_pass: id -1 at position 3 of sequence 1 is outside the vocabulary of 97");
  for (const MutableTensorView& t : gradients.tensors()) EXPECT_TRUE(all_zero(t));
}

TEST(GptTest, errors_name_the_rule_and_the_numbers) {
  const Gpt model(small_options());
  EXPECT_EQ(error_of([&] { model(random_ids({41}, 97)); }),
            "Gpt: 41 tokens exceed context_length (40)");
  GptCache cache = model.new_cache(1);
  model(random_ids({1, 38}, 97), {.cache = &cache});
  EXPECT_EQ(error_of([&] {
              model(random_ids({1, 3}, 97), {.cache = &cache});
            }),
            "Gpt: tokens (38 in the cache and 3 new) exceed context_length (40)");
  EXPECT_EQ(error_of([&] {
              model(Tensor::zeros({1, 3}));
            }),
            "Gpt: ids are float32, int32 or int64 is needed");
  const auto error_with = [](auto&& change) {
    GptOptions options = small_options();
    change(options);
    return error_of([&] { Gpt{options}; });
  };
  EXPECT_EQ(error_with([](GptOptions& o) { o.num_heads = 5; }),
            "Gpt: d_model (48) must be a multiple of num_heads (5)");
  EXPECT_EQ(error_with([](GptOptions& o) { o.num_layers = 0; }), "Gpt: num_layers (0) must be > 0");
  EXPECT_EQ(error_with([](GptOptions& o) { o.dropout = 1.0; }),
            "Gpt: dropout (1) must be in [0, 1)");
  EXPECT_NE(
      error_with([](GptOptions& o) { o.num_layers = 1'000'000'000; }).find("this machine has"),
      std::string::npos);
  GptOptions other = small_options();
  other.num_layers = 2;
  GptGradients gradients{Gpt(other)};
  const Tensor ids = random_ids({1, 3}, 97);
  EXPECT_NE(error_of([&] { train(model, ids, ids, gradients); }).find("of other sizes"),
            std::string::npos);
}

TEST(GptTest, the_gpt2_family_has_its_numbers_of_parameters) {
  const std::pair<const char*, dim_t> sizes[] = {{"gpt2", 124'439'808},
                                                 {"gpt2-medium", 354'823'168},
                                                 {"gpt2-large", 774'030'080},
                                                 {"gpt2-xl", 1'557'611'200}};
  for (const auto& [name, count] : sizes) EXPECT_EQ(parameter_count(gpt_preset(name)), count);
  for (const char* name : {"gpt2-small", "124M"}) {
    EXPECT_EQ(parameter_count(gpt_preset(name)), 124'439'808);
  }
  EXPECT_NEAR(static_cast<double>(parameter_count(gpt_preset("gpt3"))), 175e9, 1e9);
  EXPECT_NE(error_of([] { gpt_preset("gpt5"); }).find("gpt2-small, gpt2-medium"),
            std::string::npos);
  const Gpt model(small_options());
  dim_t counted = 0;
  for (const GptParameter& p : model.parameters()) counted += p.value.numel();
  EXPECT_EQ(counted, model.parameter_count());
}

TEST(GptTest, only_matrices_that_multiply_are_decayed) {
  GptOptions options = small_options();
  options.tied_head = false;
  int decayed = 0;
  for (const GptParameter& p : Gpt(options).parameters()) {
    const bool matrix = p.name.find(".c_") != std::string::npos && p.name.ends_with(".weight");
    EXPECT_EQ(is_decayed(p.kind), matrix || p.name == "lm_head.weight") << p.name;
    decayed += is_decayed(p.kind) ? 1 : 0;
  }
  EXPECT_EQ(decayed, 3 * 4 + 1);
}

TEST(GptTest, new_parameters_are_drawn_as_documented) {
  const Gpt model(small_options());
  const TensorView token = model.parameter("transformer.wte.weight");
  double squares = 0.0;
  const float* x = token.data_as<float>();
  for (dim_t i = 0; i < token.numel(); ++i) squares += double{x[i]} * x[i];
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(token.numel())), 0.02, 0.001);
  EXPECT_TRUE(all_zero(model.parameter("transformer.h.1.attn.c_attn.bias")));
  EXPECT_EQ(model.parameter("transformer.h.1.ln_2.weight").at({3}), 1.0);
  EXPECT_TRUE(same_bits(Gpt(small_options()).parameter("transformer.wte.weight"), token));
}

TEST(GptTest, memory_is_told_before_it_is_taken) {
  const Gpt model(small_options());
  const GptMemory told = memory_bytes(small_options(), 11, 40);
  EXPECT_EQ(told.parameters, 4 * model.parameter_count());
  EXPECT_EQ(told.optimiser, 2 * told.parameters);
  GptWorkspace workspace;
  GptGradients gradients(model);
  const Tensor ids = random_ids({11, 40}, 97);
  train(model, ids, ids, gradients, {.workspace = &workspace});
  // The workspace is most of it; the rest are matrices laid out, and what threads keep.
  EXPECT_LE(static_cast<dim_t>(workspace.bytes()), told.pass);
  EXPECT_GE(static_cast<dim_t>(workspace.bytes()), told.pass / 2);
  EXPECT_NE(error_of([] { memory_bytes(small_options(), 1, 41); }), "");
}

}  // namespace
}  // namespace cephalo
