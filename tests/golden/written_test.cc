// Files that earlier versions wrote are read forever: tests/golden/written_by_0.1 has layers, model
// folders and a training run, with what the version that wrote them computed. make_written.py says
// how they came about.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/io/npy.h"
#include "cephalo/model/gpt_file.h"
#include "cephalo/model/text_model.h"
#include "cephalo/text/windows.h"
#include "cephalo/train/best_model.h"
#include "cephalo/train/trainer.h"
#include "tests/support/files.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;
using testing::Folder;
using testing::largest_difference;
using testing::largest_magnitude;

const std::string kFolder = std::string(CEPHALO_SOURCE_DIR) + "/tests/golden/written_by_0.1/";

// Instruction sets round differently; a parameter in the wrong place is off by far more.
constexpr double kTolerance = 1e-6;

void expect_near(const TensorView& found, const std::string& recorded) {
  const Tensor expected = read_npy(kFolder + recorded);
  ASSERT_EQ(found.shape(), expected.shape()) << recorded;
  EXPECT_LE(largest_difference(found, expected), kTolerance * (1.0 + largest_magnitude(expected)))
      << recorded;
}

struct WrittenLayer {
  const char* kind;
  std::vector<Form> forms;  // that have a place for it
  MultiHeadAttentionOptions options;
};

std::vector<WrittenLayer> written_layers() {
  const std::vector<Form> with_biases{Form::separate, Form::heads, Form::linear,
                                      Form::joined,   Form::torch, Form::gpt2};
  return {{"bias",
           with_biases,
           {.context_length = 16, .dropout = 0.1, .num_heads = 2, .qkv_bias = true}},
          {"bare",
           {Form::separate, Form::raw, Form::heads, Form::joined},
           {.num_heads = 1, .out_proj = false, .causal = false}},
          {"rotary",
           {Form::separate, Form::joined},
           {.num_heads = 4, .num_kv_heads = 2, .rotary = Rotary{.interleaved = true}}},
          {"half",
           with_biases,
           {.context_length = 16, .num_heads = 2, .qkv_bias = true, .dtype = DType::bf16}}};
}

TEST(WrittenTest, layers_of_every_form) {
  const Tensor x = read_npy(kFolder + "x.npy");
  int files = 0;
  for (const WrittenLayer& written : written_layers()) {
    for (const Form form : written.forms) {
      const char* word = form == Form::joined ? "fused" : name(form);  // its name in 0.1
      const std::string file = std::string("layers/") + written.kind + "-" + word;
      SCOPED_TRACE(file);
      const MultiHeadAttention layer = load_layer(kFolder + file + ".safetensors");
      const MultiHeadAttentionOptions& found = layer.options();
      const MultiHeadAttentionOptions& expected = written.options;
      EXPECT_EQ(found.form, form);
      EXPECT_EQ(found.d_in, 12);
      EXPECT_EQ(found.num_heads, expected.num_heads);
      const dim_t kv_heads = found.num_kv_heads == 0 ? found.num_heads : found.num_kv_heads;
      EXPECT_EQ(kv_heads, expected.num_kv_heads == 0 ? expected.num_heads : expected.num_kv_heads);
      EXPECT_EQ(found.context_length, expected.context_length);
      EXPECT_EQ(found.dropout, expected.dropout);
      EXPECT_EQ(found.causal, expected.causal);
      EXPECT_EQ(found.out_proj, expected.out_proj);
      EXPECT_EQ(found.qkv_bias, expected.qkv_bias);
      EXPECT_EQ(found.dtype, expected.dtype);
      ASSERT_EQ(found.rotary.has_value(), expected.rotary.has_value());
      EXPECT_TRUE(!found.rotary || found.rotary->interleaved);
      expect_near(layer(x), file + ".y.npy");
      ++files;
    }
  }
  const auto all = fs::directory_iterator(kFolder + "layers");
  EXPECT_EQ(files, std::count_if(fs::begin(all), fs::end(all), [](const fs::directory_entry& e) {
              return e.path().extension() == ".safetensors";
            }));
}

Tensor logits_of(const Gpt& model) {
  return model(read_npy(kFolder + "ids.npy"));
}

TEST(WrittenTest, a_folder_that_training_exported) {
  const TextModel model = load_text_model(kFolder + "exported");
  const GptOptions& o = model.gpt.options();
  EXPECT_EQ(o.positions, PositionKind::rotary);
  EXPECT_TRUE(o.tied_head);
  EXPECT_TRUE(o.qkv_bias);
  EXPECT_EQ(o.num_layers, 2);
  EXPECT_EQ(o.d_mlp, 48);
  EXPECT_EQ(o.dropout, 0.1);
  EXPECT_EQ(model.config.bos_token_id, 261);
  EXPECT_TRUE(model.config.add_bos_token);
  EXPECT_EQ(model.piece(261), "<|endoftext|>");
  expect_near(logits_of(model.gpt), "exported.logits.npy");
}

TEST(WrittenTest, folders_with_learned_positions_and_a_head_of_their_own) {
  for (const std::string folder : {"learned", "book"}) {
    SCOPED_TRACE(folder);
    const LoadedGpt loaded = load_gpt(kFolder + folder);
    const GptOptions& o = loaded.model.options();
    EXPECT_EQ(o.positions, PositionKind::learned);
    EXPECT_FALSE(o.tied_head);
    EXPECT_TRUE(o.qkv_bias);
    EXPECT_EQ(o.activation, Activation::gelu_tanh);
    EXPECT_EQ(o.d_mlp, 64);
    expect_near(logits_of(loaded.model), folder + ".logits.npy");
  }
}

TEST(WrittenTest, folders_in_shards_and_in_16_bits) {
  for (const std::string folder : {"shards", "half"}) {
    SCOPED_TRACE(folder);
    const LoadedGpt loaded = load_gpt(kFolder + folder);
    const GptOptions& o = loaded.model.options();
    EXPECT_EQ(o.positions, PositionKind::rotary);
    EXPECT_TRUE(o.rotary.interleaved);
    EXPECT_EQ(o.rotary.base, 500.0);
    EXPECT_TRUE(o.tied_head);
    EXPECT_FALSE(o.qkv_bias);
    EXPECT_EQ(o.activation, Activation::gelu_erf);
    EXPECT_EQ(o.norm_epsilon, 1e-6);
    EXPECT_EQ(o.d_mlp, 24);
    expect_near(logits_of(loaded.model), folder + ".logits.npy");
  }
}

// The rows that `cephalo train` learned from: windows of its token file, each begun by
// <|endoftext|>; a fifth of them repeat.
RowSource rows_of_run(const std::string& run, const CheckpointSummary& summary) {
  const Bpe bpe = Bpe::load(run);
  const auto tokens = std::make_shared<TokenFile>(run + "/tokens.bin", &bpe);
  WindowOptions options;
  options.context_length = summary.model.context_length;
  options.shuffle = true;
  options.drop_last = false;
  options.seed = summary.model.seed.value();
  options.repeated_rows = 0.2;
  options.sentence_ends = sentence_ends(bpe);
  options.range = split_tokens(tokens->tokens(), 0.05).first;
  return [windows = std::make_shared<Windows>(tokens, options), first = *bpe.find("<|endoftext|>")](
             std::int64_t number, std::span<std::int64_t> ids) {
    windows->row(number, ids);
    std::copy_backward(ids.begin(), ids.end() - 1, ids.end());
    ids[0] = first;
  };
}

TEST(WrittenTest, an_interrupted_run_goes_on) {
  const auto expected = testing::read_golden("written_by_0.1/expected.json");
  const Folder folder;
  const std::string path = folder / "run";
  fs::copy(kFolder + "run", path, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const RunFolder run(path);
  EXPECT_TRUE(run.repairs().empty());
  const std::int64_t step = expected.at("step");
  ASSERT_EQ(run.steps(), std::vector<std::int64_t>{step});

  const CheckpointSummary summary = read_checkpoint_summary(run.checkpoint(step));
  EXPECT_EQ(summary.step, step);
  EXPECT_EQ(summary.model.d_model, 12);
  EXPECT_EQ(summary.model.dropout, 0.1);
  EXPECT_EQ(summary.options.accumulate, 2);
  EXPECT_EQ(summary.options.schedule.steps, 300);
  EXPECT_EQ(summary.options.schedule.warmup, 10);
  Gpt model(summary.model, [](const std::string&, const MutableTensorView&) {});
  Trainer trainer(model, rows_of_run(path, summary), {});
  trainer.load(run.checkpoint(step));
  EXPECT_EQ(trainer.steps_done(), step);
  EXPECT_EQ(std::ssize(trainer.history().steps), step);
  for (const double loss : expected.at("losses_after")) {
    EXPECT_NEAR(trainer.step().loss, loss, kTolerance * (1.0 + loss));
  }
}

TEST(WrittenTest, the_best_model_of_a_run) {
  const BestModel kept(kFolder + "run");
  const std::int64_t step = testing::read_golden("written_by_0.1/expected.json").at("step");
  ASSERT_TRUE(kept.has(step));
  const LoadedGpt exported = load_gpt(kFolder + "run");
  const Gpt best = kept.read(step, exported.model.options());
  for (const GptParameter& p : best.parameters()) {
    EXPECT_TRUE(testing::same_bits(p.value, exported.model.parameter(p.name))) << p.name;
  }
}

}  // namespace
}  // namespace cephalo
