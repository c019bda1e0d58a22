// Against PyTorch: logits, greedy text and ten training steps of tests/golden/gpt2.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/model/generate.h"
#include "cephalo/model/gpt_file.h"
#include "cephalo/train/adamw.h"
#include "cephalo/train/loss.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::golden_difference;
using testing::report;

// The largest figure that is asked for; what was found is told.
constexpr double kTolerance = 1e-4;

std::string golden_folder() {
  return std::string(CEPHALO_SOURCE_DIR) + "/tests/golden/gpt2";
}

// torch.manual_seed(seed); torch.randint(0, vocab_size, shape)
Tensor torch_ids(std::uint64_t seed, const Shape& shape, dim_t vocab_size) {
  TorchGenerator generator(seed);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

TEST(GptGoldenTest, logits_of_a_hugging_face_gpt2_are_pytorchs) {
  const auto golden = testing::read_golden("gpt.json");
  const LoadedGpt loaded = load_gpt(golden_folder());
  const dim_t vocab_size = golden.at("sizes").at("vocab_size");
  const dim_t tokens = golden.at("sizes").at("context_length");
  const auto& wanted = golden.at("logits");
  const Tensor ids = torch_ids(wanted.at("seed"), {wanted.at("batch"), tokens}, vocab_size);
  const double difference = golden_difference(wanted.at("result"), loaded.model(ids));
  EXPECT_LE(difference, kTolerance);
  report("GPT-2 logits: largest difference from PyTorch " + std::to_string(difference));
}

TEST(GptGoldenTest, greedy_text_is_that_of_transformers) {
  const auto golden = testing::read_golden("gpt.json").at("greedy");
  const LoadedGpt loaded = load_gpt(golden_folder());
  const std::vector<std::int64_t> prompt = golden.at("prompt");
  std::vector<std::int64_t> expected = golden.at("ids");
  expected.erase(expected.begin(), expected.begin() + std::ssize(prompt));
  const Generated found = generate(
      loaded.model, prompt, {.new_tokens = std::ssize(expected), .sampling = {.temperature = 0.0}});
  EXPECT_EQ(found.ids, expected);
}

TEST(GptGoldenTest, ten_training_steps_have_pytorchs_losses) {
  const auto golden = testing::read_golden("gpt.json");
  const auto& training = golden.at("training");
  const dim_t vocab_size = golden.at("sizes").at("vocab_size");
  const dim_t tokens = golden.at("sizes").at("context_length");
  Gpt model = load_gpt(golden_folder()).model;
  GptGradients gradients(model);
  std::vector<AdamWState> states(model.parameters().size());
  const AdamWOptions adamw{.learning_rate = training.at("learning_rate"),
                           .beta1 = training.at("beta1"),
                           .beta2 = training.at("beta2"),
                           .weight_decay = training.at("weight_decay")};
  GptWorkspace workspace;
  double largest = 0.0;
  std::uint64_t seed = training.at("first_seed");
  EXPECT_EQ(training.at("losses").size(), 10U);
  for (const double expected : training.at("losses")) {
    const Tensor batch = torch_ids(seed++, {training.at("batch"), tokens + 1}, vocab_size);
    const Tensor targets = Tensor::copy(batch.slice(1, 1, tokens + 1));
    const TensorView flat(targets.data_as<std::int64_t>(), {targets.numel()});
    gradients.zero();
    const double loss = model.train_pass(batch.slice(1, 0, tokens),
                                         [&](dim_t first, const MutableTensorView& logits) {
                                           return cross_entropy_share(
                                               logits, flat.slice(0, first, first + logits.dim(0)),
                                               flat.numel(), logits);
                                         },
                                         gradients, {.workspace = &workspace});
    model.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
      adamw_step(p, gradients.tensors()[index], states[index], adamw);
    });
    largest = std::max(largest, std::abs(loss - expected));
  }
  EXPECT_LE(largest, kTolerance);
  report("ten training steps: largest difference of a loss from PyTorch " +
         std::to_string(largest));
}

}  // namespace
}  // namespace cephalo
