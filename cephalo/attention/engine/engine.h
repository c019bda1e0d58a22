#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include "cephalo/attention/engine/backward_problem.h"
#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/engine/second_problem.h"
#include "cephalo/attention/weights.h"

namespace cephalo {

// What is asked of an engine. `decode` is attend against the keys of a cache.
enum class Job {
  attend,
  decode,
  backward,
  weights,
  pooled_weights,
  row_sums,
  scores,
  tangent,
  second
};
const char* name(Job job);

// One head of one sequence, seen from afar in cells × cells.
struct HeadCells {
  dim_t cells, head, batch;
};

// An engine, as its list has it. A function that is null is a job that it refuses.
struct EngineEntry {
  Engine engine;                         // what options and the C interface call it by
  const char* name;                      // and people
  DeviceKind device = DeviceKind::host;  // where it computes
  // Null: that device is there. Otherwise why it is not; the host always is.
  const char* (*absent)(Device device) = nullptr;
  // Null: it does this job of this problem. Otherwise the reason why not.
  const char* (*refuses)(const AttendProblem& problem, Job job);

  // Context and, unless it is empty, lse.
  void (*attend)(const AttendProblem& problem, const AttendOutput& output);
  void (*attend_backward)(const BackwardProblem& problem) = nullptr;
  // lse: [batch, num_heads, q_tokens], checked; the options without dropout, unless weights after
  // dropout are wanted.
  Tensor (*weights)(const AttendProblem& problem, const TensorView& lse,
                    const WeightsSelection& selection) = nullptr;
  PooledWeights (*pooled_weights)(const AttendProblem& problem, const TensorView& lse,
                                  const HeadCells& cells) = nullptr;
  Tensor (*row_sums)(const AttendProblem& problem, const TensorView& lse,
                     const TensorView& tokens) = nullptr;
  Tensor (*scores)(const AttendProblem& problem) = nullptr;  // at options.return_scores
  // Everything that the options ask for at once, by an engine that stores every step. Null: each is
  // a job of its own.
  AttendResult (*attend_whole)(const AttendProblem& problem) = nullptr;

  // Bytes besides inputs and results, over all threads.
  std::size_t (*scratch)(const AttendProblem& problem, Job job) = nullptr;
  // May context lie where q lies? Null: it may not.
  bool (*writes_over_q)(const AttendProblem& problem) = nullptr;
  const char* (*runs_on)(DType dtype) = nullptr;  // "avx512", for plan
  bool textbook_layer = false;                    // a layer on it goes step by step too

  // Forward mode, the problem's tangents alone; and second derivatives, tangents included.
  void (*attend_tangent)(const SecondProblem& problem) = nullptr;
  void (*attend_second)(const SecondProblem& problem) = nullptr;
};

// All of them, the most preferred first.
std::span<const EngineEntry* const> engines();

// The engine that will do all of these jobs: the one that the options ask for, or the first of the
// list that refuses none. An error when the options ask for or require another.
const EngineEntry& choose_engine(const AttendProblem& problem, std::initializer_list<Job> jobs,
                                 const char* function);

// An error that names q's device, unless an engine computes there.
void require_engine_on(const char* function, const TensorView& q);

// Attend or decode, as the problem is.
Job forward_job(const AttendProblem& problem);

// Scores are stored by whoever can, whichever engine attends; plan says who.
const EngineEntry& choose_scores_engine(const AttendProblem& problem, const char* function);

// Null when the engine does it.
const char* why_not(const EngineEntry& entry, const AttendProblem& problem, Job job);

// For tests: one more engine, before all others, as long as this lives. One at a time.
class ScopedEngine {
 public:
  explicit ScopedEngine(const EngineEntry& entry);
  ~ScopedEngine();
  ScopedEngine(const ScopedEngine&) = delete;
  ScopedEngine& operator=(const ScopedEngine&) = delete;
};

}  // namespace cephalo
