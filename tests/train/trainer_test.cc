// The loop of training, and rows R3, R5, R6 and R8 of the list of faults as far as one process can
// show them. tests/cli/train_test.py kills others.
#include "cephalo/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "cephalo/core/error.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/io/file_calls.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Folder;
using testing::read_bytes;
using testing::same_bits;

GptOptions small_model(double dropout = 0.1) {
  GptOptions o;
  o.vocab_size = 17;
  o.context_length = 12;
  o.d_model = 16;
  o.num_heads = 2;
  o.num_layers = 2;
  o.dropout = dropout;
  o.positions = PositionKind::rotary;
  o.seed = 7;
  return o;
}

TrainerOptions small_run(std::int64_t steps = 12) {
  TrainerOptions o;
  o.schedule = {.learning_rate = 1e-2, .warmup = 3, .steps = steps};
  o.batch = 3;
  o.accumulate = 2;
  return o;
}

// Counting up from a place that the row's number decides: easy to learn.
void counting(std::int64_t number, std::span<std::int64_t> ids) {
  const auto start =
      static_cast<std::int64_t>(philox(1, {static_cast<std::uint32_t>(number), 0, 0, 0})[0] % 17);
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = (start + static_cast<std::int64_t>(t)) % 17;
}

bool same_parameters(const Gpt& a, const Gpt& b) {
  for (const GptParameter& p : a.parameters()) {
    if (!same_bits(p.value, b.parameter(p.name))) return false;
  }
  return true;
}

class TrainerTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "checkpoint.safetensors"; }
  Folder folder_;
};

TEST_F(TrainerTest, learns_to_count) {
  Gpt model(small_model(0.0));
  TrainerOptions options = small_run(60);
  options.batch = 8;
  Trainer trainer(model, counting, options);
  const double before = trainer.validation_loss(counting, 16);
  EXPECT_NEAR(before, std::log(17.0), 0.3);
  EXPECT_TRUE(trainer.run({}));
  EXPECT_EQ(trainer.steps_done(), 60);
  EXPECT_LT(trainer.validation_loss(counting, 16), 0.5 * before);
  EXPECT_EQ(trainer.history().steps.size(), 60U);
}

TEST_F(TrainerTest, accumulated_passes_make_the_step_of_one_large_batch) {
  Gpt one(small_model(0.0));
  Gpt two(small_model(0.0));
  TrainerOptions options = small_run();
  options.batch = 6;
  options.accumulate = 1;
  Trainer large(one, counting, options);
  Trainer small(two, counting, small_run());  // 2 passes of 3 rows
  for (int k = 0; k < 3; ++k) {
    const StepRecord a = large.step();
    const StepRecord b = small.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-5);
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-4);
  }
}

TEST_F(TrainerTest, weight_decay_is_for_matrices_alone) {
  Gpt model(small_model(0.0));
  Gpt fresh(small_model(0.0));
  TrainerOptions options = small_run();
  options.schedule.learning_rate = 1e-3;
  options.weight_decay = 500.0;  // halves what it touches
  Trainer trainer(model, counting, options);
  options.weight_decay = 0.0;
  Trainer without(fresh, counting, options);
  trainer.step();
  without.step();
  for (const GptParameter& p : fresh.parameters()) {
    EXPECT_EQ(same_bits(p.value, model.parameter(p.name)), p.kind != ParameterKind::matrix)
        << p.name;
  }
}

TEST_F(TrainerTest, R6_a_resumed_run_is_the_uninterrupted_one_bit_for_bit) {
  RunOptions run;
  run.validation = counting;
  run.validation_rows = 5;
  run.validate_every = 4;
  Gpt whole(small_model());
  Trainer uninterrupted(whole, counting, small_run());
  EXPECT_TRUE(uninterrupted.run(run));
  uninterrupted.save(folder_ / "whole");
  for (const std::int64_t stop_after : {0, 1, 5, 11}) {
    {
      Gpt model(small_model());
      Trainer trainer(model, counting, small_run());
      trainer.set_notes(R"({"files":["a"]})");
      RunOptions part = run;
      part.stop = [&] { return trainer.steps_done() >= stop_after; };
      EXPECT_EQ(stop_after > 0 && trainer.run(part), false);
      trainer.save(path());
    }
    const CheckpointSummary summary = read_checkpoint_summary(path());
    EXPECT_EQ(summary.step, stop_after);
    EXPECT_EQ(summary.notes, R"({"files":["a"]})");
    EXPECT_EQ(summary.model.d_model, 16);
    const UseThreads other(stop_after % 2 == 0 ? 1 : 3);  // nor does the count of threads matter
    Gpt model(summary.model, [](const std::string&, const MutableTensorView&) {});
    Trainer resumed(model, counting, {});
    resumed.load(path());
    EXPECT_EQ(resumed.steps_done(), stop_after);
    EXPECT_TRUE(resumed.run(run));
    EXPECT_TRUE(same_parameters(model, whole)) << stop_after;
    EXPECT_EQ(loss_csv(resumed.history()), loss_csv(uninterrupted.history()));
    resumed.set_notes("{}");
    resumed.save(folder_ / "resumed");
    EXPECT_EQ(read_bytes(folder_ / "resumed"), read_bytes(folder_ / "whole"));
  }
}

TEST_F(TrainerTest, R6_a_run_of_a_model_with_shared_heads_resumes_bit_for_bit) {
  GptOptions options = small_model();
  options.num_heads = 4;
  options.num_kv_heads = 2;
  Gpt whole(options);
  Trainer uninterrupted(whole, counting, small_run());
  EXPECT_TRUE(uninterrupted.run({}));
  {
    Gpt model(options);
    Trainer trainer(model, counting, small_run());
    RunOptions part;
    part.stop = [&] { return trainer.steps_done() >= 5; };
    EXPECT_FALSE(trainer.run(part));
    trainer.save(path());
  }
  const CheckpointSummary summary = read_checkpoint_summary(path());
  EXPECT_EQ(summary.model.num_kv_heads, 2);
  Gpt model(summary.model, [](const std::string&, const MutableTensorView&) {});
  Trainer resumed(model, counting, {});
  resumed.load(path());
  EXPECT_TRUE(resumed.run({}));
  EXPECT_TRUE(same_parameters(model, whole));
}

TEST_F(TrainerTest, R5_a_checkpoint_of_another_model_changes_nothing) {
  Gpt model(small_model());
  Trainer(model, counting, small_run()).save(path());
  GptOptions wider = small_model();
  wider.d_model = 24;
  Gpt other(wider);
  Gpt as_it_was(wider);
  Trainer trainer(other, counting, small_run());
  EXPECT_EQ(error_of([&] { trainer.load(path()); }),
            path() +
                ": transformer.wte.weight: is float32 [17, 16], the model's is float32 [17, 24]; "
                "the checkpoint belongs to another model");
  EXPECT_TRUE(same_parameters(other, as_it_was));
  GptOptions deeper = small_model();
  deeper.num_layers = 3;
  Gpt third(deeper);
  Trainer more(third, counting, small_run());
  EXPECT_EQ(
      error_of([&] { more.load(path()); }),
      path() +
          ": transformer.h.2.ln_1.weight: is missing; the checkpoint belongs to another model");
}

TEST_F(TrainerTest, R3_a_run_whose_checkpoint_cannot_be_written_ends) {
  RunFolder folder(folder_ / "run");
  Gpt model(small_model());
  Trainer trainer(model, counting, small_run());
  RunOptions run;
  run.folder = &folder;
  run.save_every = 2;
  const FileCalls usual = file_calls();
  run.on_step = [&](const StepRecord& record) {
    if (record.step != 5) return;
    file_calls().write = [](int, const void*, std::size_t) -> ssize_t {
      errno = ENOSPC;
      return -1;
    };
  };
  const std::string error = error_of([&] { trainer.run(run); });
  file_calls() = usual;
  EXPECT_EQ(error, folder.checkpoint(6) + ": write: No space left on device");
  EXPECT_EQ(folder.steps(), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(read_checkpoint_summary(folder.checkpoint(4)).step, 4);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() + "/checkpoints"), {}), 3);
}

TEST_F(TrainerTest, R8_steps_without_a_finite_gradient_change_nothing_and_end_the_run) {
  Gpt model(small_model(0.0));
  Gpt before(small_model(0.0));
  TrainerOptions options = small_run(100);
  options.max_skipped = 3;
  Trainer trainer(model, counting, options);
  RunFolder folder(folder_ / "run");
  trainer.step();
  model.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
    before.update_all([&](std::size_t k, const std::string&, const MutableTensorView& to) {
      if (k == index) to.copy_from(p);
    });
  });
  // One number that is not finite, as an overflow would leave it: the loss is NaN from here on.
  const auto spoil = [](Gpt& which, double value) {
    which.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
      if (index == 0) p.set({0, 0}, value);
    });
  };
  const double good = model.parameters().front().value.at({0, 0});
  spoil(model, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(trainer.step().skipped);
  spoil(model, good);
  EXPECT_TRUE(same_parameters(model, before));
  EXPECT_FALSE(trainer.step().skipped);  // it goes on where it can
  spoil(model, std::numeric_limits<double>::infinity());
  RunOptions run;
  run.folder = &folder;
  run.save_every = 50;
  EXPECT_EQ(error_of([&] { trainer.run(run); }).substr(0, 62),
            "Trainer: 3 steps in a row up to step 6 had no finite gradient ");
  EXPECT_EQ(trainer.history().steps.size(), 6U);
  EXPECT_TRUE(trainer.history().steps[1].skipped);
}

TEST_F(TrainerTest, R8_parameters_that_are_not_finite_never_replace_a_checkpoint) {
  Gpt model(small_model());
  Trainer trainer(model, counting, small_run());
  trainer.save(path());
  const std::string good = read_bytes(path());
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    model.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
      if (index == 3) p.set({2, 0}, bad);
    });
    EXPECT_EQ(error_of([&] { trainer.save(path()); }),
              path() + ": " + model.parameters()[3].name +
                  ": has numbers that are NaN or infinite after step 0; nothing was saved and the "
                  "previous checkpoint is unchanged");
    EXPECT_EQ(read_bytes(path()), good);
  }
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(TrainerTest, options_that_make_no_sense_are_refused) {
  Gpt model(small_model());
  const auto with = [&](auto change) {
    TrainerOptions options = small_run();
    change(options);
    return error_of([&] { Trainer(model, counting, options); });
  };
  EXPECT_EQ(with([](TrainerOptions& o) { o.context_length = 13; }),
            "Trainer: context_length (13) must be from 1 to the model's 12");
  EXPECT_EQ(with([](TrainerOptions& o) { o.batch = 0; }),
            "Trainer: batch (0) and accumulate (2) must be >= 1");
  EXPECT_EQ(with([](TrainerOptions& o) { o.clip = -1; }), "Trainer: clip (-1) must be >= 0");
}

}  // namespace
}  // namespace cephalo
