#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cephalo/model/gpt.h"
#include "cephalo/train/history.h"
#include "cephalo/train/run_folder.h"
#include "cephalo/train/schedule.h"
#include "cephalo/world/world.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Fills one row of ids, [tokens + 1]: what is read and, one further on, what is to be predicted.
// The row of a number is always the same: a resumed run sees what it would have seen.
using RowSource = std::function<void(std::int64_t number, std::span<std::int64_t> ids)>;

// How a model is trained: rows, AdamW, clipping.
struct TrainerOptions {
  Schedule schedule;         // of the learning rate; its steps are those of the run
  dim_t batch = 16;          // rows of one pass
  dim_t context_length = 0;  // tokens of a row; 0: the model's
  dim_t accumulate = 1;      // passes whose gradients make one step
  // Runs of neighbouring rows that each pass is cut into, of batch / shards each. Their gradients
  // are computed apart, by any number of threads and of processes up to this one, and added as a
  // balanced tree: the count decides the bits, who computes does not.
  dim_t shards = 1;
  double beta1 = 0.9;  // of AdamW
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of matrices; biases, norms and embeddings keep what they have
  double clip = 1.0;          // largest norm of all gradients together; 0: any
  int max_skipped = 5;        // steps without finite gradients in a row that end the run
};

// What run() does besides the steps themselves; 0 or empty: nothing.
struct RunOptions {
  // Where checkpoints go: before the first step and after the last. In a world of several processes
  // it is that of process 0, and the others have none.
  RunFolder* folder = nullptr;
  std::int64_t save_every = 0;  // steps between checkpoints; 0: none in between
  RowSource validation = {};    // rows kept out of training
  std::int64_t validation_rows = 0;
  std::int64_t validate_every = 0;  // and after the last step
  std::function<void(const StepRecord&)> on_step = {};
  std::function<void(const ValidationRecord&)> on_validation = {};
  std::function<void(std::int64_t step)> on_saved = {};
  // Asked after each step; true, on any process: all save and return.
  std::function<bool()> stop = {};
};

// Teaches a model to predict the next token: AdamW, warm-up and cosine, clipping, accumulation.
//
// A step whose loss or gradient norm is NaN or infinite changes nothing and counts as taken;
// max_skipped of them in a row are an error. Parameters that are not finite are never saved.
//
// In a world of several processes each computes some of the shards, and remembers what AdamW does
// of some of the parameters. All make the same calls with equal models, rows and options; results
// have the bits of one process. Process 0 writes what is saved, and every process reads what is
// loaded.
class Trainer {
 public:
  // The model is changed where it is; model and world must outlive the trainer. world: null: this
  // process alone
  Trainer(Gpt& model, RowSource rows, const TrainerOptions& options, World* world = nullptr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  StepRecord step();
  std::int64_t steps_done() const;
  const TrainerOptions& options() const;
  const TrainingHistory& history() const;

  // Mean loss over rows 0 .. rows of a source, without dropout.
  double validation_loss(const RowSource& source, std::int64_t rows) const;

  // Trains to the end of the schedule, or until it is asked to stop: then false.
  bool run(const RunOptions& options);

  // Another length of the run than its options said; the cosine is stretched to it.
  void set_steps(std::int64_t steps);

  // Parameters, moments, step, position in the data, generator, schedule, options and history.
  // path: that of process 0
  void save(const std::string& path) const;
  void set_notes(const std::string& notes);  // the caller's JSON object, saved as well

  // Continues from a checkpoint, with its options, as if there had been no interruption: the same
  // bits on the same instruction set. A checkpoint of another model is an error, and nothing is
  // changed.
  void load(const std::string& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The largest power of two that divides the rows of a pass, 16 at most: what `cephalo train` cuts
// them into.
dim_t default_shards(dim_t batch);

// Bytes that training takes in one of `processes`, with so many threads.
GptMemory training_memory(const GptOptions& model, const TrainerOptions& options, int threads,
                          int processes = 1);

// What a checkpoint says of itself, without its tensors.
struct CheckpointSummary {
  std::int64_t step = 0;
  GptOptions model;
  TrainerOptions options;
  std::string isa;    // the instruction set that it was computed on
  std::string notes;  // JSON, as given to Trainer::set_notes
};
CheckpointSummary read_checkpoint_summary(const std::string& path);

}  // namespace cephalo
#pragma GCC visibility pop
