// What the state of a checkpoint may say. Its checksum has no key, so every number in it is checked
// as if a stranger had written it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "cephalo/core/error.h"
#include "cephalo/train/checkpoint.h"
#include "cephalo/train/trainer.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using nlohmann::json;
using testing::error_of;
using testing::Folder;

void zeros(std::int64_t, std::span<std::int64_t> ids) {
  std::fill(ids.begin(), ids.end(), 0);
}

class CheckpointStateTest : public ::testing::Test {
 protected:
  CheckpointStateTest() : model_(testing::tiny_options()), trainer_(model_, zeros, two_steps()) {
    RunOptions run;
    run.validation = zeros;
    run.validation_rows = 1;
    run.validate_every = 1;
    trainer_.run(run);
    trainer_.save(path());
  }

  static TrainerOptions two_steps() {
    TrainerOptions options;
    options.schedule.steps = 2;
    options.batch = 3;
    options.accumulate = 2;
    return options;
  }

  std::string path() const { return folder_ / "step-00000002.safetensors"; }

  // Writes the checkpoint again with another state and, where one is given, another table; the
  // checksum is right. Returns what reading it says, without the path.
  std::string refusal(const std::function<void(json&)>& change, const std::string& replaced = "",
                      const Tensor& by = Tensor()) const {
    const std::string other = folder_ / "other.safetensors";
    const SafetensorsFile file(path());
    json inside = json::parse(file.metadata().at("cephalo_checkpoint"));
    change(inside.at("state"));
    std::vector<Tensor> tensors;
    std::vector<std::pair<std::string, TensorView>> named;
    tensors.reserve(file.entries().size());
    for (const auto& entry : file.entries()) {
      if (entry.name == kChecksumTensor) continue;
      tensors.push_back(file.read(entry));
      named.emplace_back(entry.name, entry.name == replaced ? TensorView(by) : tensors.back());
    }
    write_checked_safetensors(other, named, {{"cephalo_checkpoint", inside.dump()}}, true);
    Gpt model(testing::tiny_options());
    Trainer trainer(model, zeros, two_steps());
    const std::string summary = error_of([&] { read_checkpoint_summary(other); });
    const std::string load = error_of([&] { trainer.load(other); });
    EXPECT_TRUE(load.empty() || load.starts_with(other + ": ")) << load;
    const std::string error = summary.empty() ? load : summary;
    return error.empty() ? "" : error.substr(other.size() + 2);
  }
  std::string refusal_of(const char* object, const char* key, const json& value) const {
    return refusal([&](json& state) { state.at(object).at(key) = value; });
  }

  Folder folder_;
  Gpt model_;
  Trainer trainer_;
};

TEST_F(CheckpointStateTest, as_it_was_written_it_is_read) {
  EXPECT_EQ(refusal([](json&) {}), "");
}

TEST_F(CheckpointStateTest, numbers_are_whole_and_in_their_range) {
  const std::string size = " must be a whole number from 0 to 2147483647";
  const std::string count = " must be a whole number from 0 to 9007199254740992";
  EXPECT_EQ(refusal_of("model", "num_heads", 1.5), "state: model: num_heads: 1.5" + size);
  EXPECT_EQ(refusal_of("model", "num_heads", "2"), "state: model: num_heads: \"2\"" + size);
  EXPECT_EQ(refusal_of("model", "num_layers", -1), "state: model: num_layers: -1" + size);
  EXPECT_EQ(refusal_of("model", "d_model", 1e10), "state: model: d_model: 10000000000.0" + size);
  EXPECT_EQ(refusal_of("options", "batch", std::int64_t{1} << 40),
            "state: options: batch: 1099511627776" + size);
  EXPECT_EQ(refusal_of("progress", "step", std::int64_t{1} << 62),
            "state: progress: step: 4611686018427387904" + count);
  EXPECT_EQ(refusal_of("progress", "rows", INT64_MAX - 1),
            "state: progress: rows: 9223372036854775806" + count);
  EXPECT_EQ(refusal_of("progress", "skipped", true),
            "state: progress: skipped: true must be a "
            "whole number from 0 to 2147483647");
  EXPECT_EQ(refusal_of("model", "qkv_bias", 1), "state: model: qkv_bias: 1 must be true or false");
  EXPECT_EQ(refusal_of("model", "dropout", "0"), "state: model: dropout: \"0\" must be a number");
  EXPECT_EQ(refusal_of("model", "seed", -1),
            "state: model: seed: -1 must be a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(refusal_of("model", "positions", "up"),
            "state: model: positions: \"up\" must be one of learned, rotary");
  EXPECT_EQ(refusal_of("model", "dtype", "int8"),
            "state: model: dtype: \"int8\" must be one of float32, float64");
}

TEST_F(CheckpointStateTest, parts_that_are_missing_or_of_another_kind) {
  EXPECT_EQ(refusal([](json& s) { s.erase("progress"); }), "state: progress: is missing");
  EXPECT_EQ(refusal([](json& s) { s.at("model").erase("d_mlp"); }),
            "state: model: d_mlp: is missing");
  EXPECT_EQ(refusal([](json& s) { s["options"] = json::array(); }),
            "state: options: is not a JSON object");
  EXPECT_EQ(refusal([](json& s) { s["notes"] = "text"; }),
            "state: notes: \"text\" must be a JSON object");
  EXPECT_EQ(refusal([](json& s) { s["isa"] = std::string(1000, 'x'); }),
            "state: isa: \"" + std::string(99, 'x') +
                "... (1002 bytes) must be the name of an instruction set");
}

TEST_F(CheckpointStateTest, rules_of_models_and_trainers_hold_and_the_message_names_the_file) {
  EXPECT_EQ(refusal_of("model", "num_heads", 3),
            "state: model: d_model (8) must be a multiple of num_heads (3)");
  EXPECT_EQ(refusal_of("options", "batch", 0),
            "state: Trainer: batch (0) and accumulate (2) must be >= 1");
  EXPECT_EQ(refusal_of("options", "beta1", 1.0),
            "state: Trainer: beta1 (1) and beta2 (0.95) must be in [0, 1)");
  const std::string huge = refusal([](json& s) {
    for (const char* key : {"vocab_size", "d_model", "num_heads", "num_layers", "d_mlp"}) {
      s.at("model").at(key) = 2147483647;
    }
  });
  EXPECT_TRUE(huge.starts_with("state: size overflows: ")) << huge;
}

TEST_F(CheckpointStateTest, counts_fit_together) {
  EXPECT_EQ(refusal_of("progress", "rows", 13),
            "state: progress: step 2, updates 2, passes 4, rows 13 and skipped 0 do not fit "
            "together, nor a batch of 3 and accumulate 2");
  EXPECT_NE(refusal_of("progress", "updates", 3), "");
  EXPECT_NE(refusal_of("progress", "skipped", 1), "");
  EXPECT_EQ(
      refusal([](json& s) {
        s.at("progress") = {
            {"step", 1000}, {"updates", 1000}, {"passes", 2000}, {"rows", 6000}, {"skipped", 0}};
      }),
      "history.steps: has 2 rows, the run is at step 1000");
}

TEST_F(CheckpointStateTest, a_model_larger_than_the_tensors_is_not_made) {
  EXPECT_EQ(refusal_of("model", "vocab_size", 1'000'000'000),
            "tensors: 3720 numbers, the model that the state describes has 8000001152 parameters "
            "and twice as many moments");
  EXPECT_NE(refusal_of("model", "num_layers", 2'000'000'000).find("numbers, the model that"),
            std::string::npos);
}

TEST_F(CheckpointStateTest, steps_of_the_history_are_whole_and_in_order) {
  const auto with_steps = [&](double first, double second) {
    Tensor table = Tensor::zeros({2, 5}, DType::f64);
    table.set({0, 0}, first);
    table.set({1, 0}, second);
    return refusal([](json&) {}, "history.steps", table);
  };
  EXPECT_EQ(with_steps(1, 2), "");
  EXPECT_EQ(with_steps(1, 1e300),
            "history.steps: step 1e+300 cannot follow step 1 in a run that is at step 2");
  EXPECT_NE(with_steps(2, 1), "");
  EXPECT_NE(with_steps(1, 1.5), "");
  EXPECT_NE(with_steps(std::nan(""), 2), "");
  Tensor validation = Tensor::zeros({1, 2}, DType::f64);
  validation.set({0, 0}, 3);
  EXPECT_EQ(refusal([](json&) {}, "history.validation", validation),
            "history.validation: step 3 cannot follow step -1 in a run that is at step 2");
}

TEST_F(CheckpointStateTest, notes_that_no_checkpoint_could_hold_are_refused_when_they_are_set) {
  EXPECT_EQ(error_of([&] { trainer_.set_notes("[1]"); }), "Trainer: notes: are not a JSON object");
  EXPECT_EQ(error_of([&] { trainer_.set_notes("{"); }),
            "Trainer: notes: not valid UTF-8 JSON at byte 2");
  EXPECT_EQ(error_of([&] { trainer_.set_notes("{\"a\":" + std::string(200'000, '[')); }),
            "Trainer: notes: objects and arrays nested more than 32 deep at byte 37");
  // The largest that may be set can be read again, quotes and all.
  std::string quotes;
  for (int k = 0; k < 50'000; ++k) quotes += "\\\"";
  std::string notes = "{\"a\":[";
  while (notes.size() < 3'000'000) notes += "\"" + quotes + "\",";
  trainer_.set_notes(notes + "0]}");
  trainer_.save(path());
  EXPECT_EQ(error_of([&] { read_checkpoint_summary(path()); }), "");
}

}  // namespace
}  // namespace cephalo
