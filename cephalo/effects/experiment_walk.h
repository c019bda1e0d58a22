#pragma once

// Inside the library only.
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "cephalo/effects/beginning.h"
#include "cephalo/effects/branches.h"
#include "cephalo/effects/head_change.h"
#include "cephalo/effects/run_rows.h"
#include "cephalo/effects/sweep.h"
#include "cephalo/model/model_steps.h"
#include "cephalo/model/pass_memory.h"

namespace cephalo {

// Which rows of the stream are read in the end.
struct WantedRows {
  bool all = false;  // otherwise that of `position` alone
  dim_t position = 0;
};

// Experiments that begin in one layer on their way through the rest. Those that have been changed
// alike so far are one run; where their changes begin to differ, it parts. What a change adds to
// the stream is added to what the run has without it, so parting never shows in the bits. Runs
// begin at rows of their own: everything but attention goes over the rows of all.
class ExperimentWalk {
 public:
  ExperimentWalk(const KeptPass& text, const SweepOptions& options, const Beginning& beginning,
                 const WantedRows& wanted);

  dim_t rows_of_one(const Changes& changes) const { return end_ - first_row(changes); }
  std::size_t bytes_of_row() const;
  // Room for so many, until `memory` is begun again.
  void reserve(dim_t rows, PassMemory& memory);

  // Of no more rows than reserved, each experiment with at least one -> runs(), one for each, and
  // normed(): [rows, d_model], after the last norm
  void run(std::span<const Changes* const> experiments);
  const RunLayout& runs() const { return runs_; }
  TensorView normed() const { return used(normed_); }

 private:
  // Neighbouring runs with the same rows of the text: a batch.
  struct Batch {
    dim_t begin, end;
    dim_t count() const { return end - begin; }
  };
  std::vector<Batch> batches() const;

  void enter(dim_t layer);
  void attention(dim_t layer);
  void patch_streams(dim_t layer);
  void project(dim_t layer);
  void widen(dim_t layer);
  void project_narrow();
  void narrow(const MutableTensorView& rows) const;
  void set_narrow();
  QkvHeads heads(const Batch& batch) const;
  void attend(dim_t layer, const Batch& batch);
  void change_runs(dim_t layer);
  void add_kept_changes(dim_t layer, dim_t run) const;
  void add_changes(dim_t layer, dim_t run, dim_t from) const;
  void add_change(dim_t layer, const HeadChange& change, HeadRun head, dim_t run,
                  const MutableTensorView& x) const;
  void mlp(dim_t layer);

  bool is_narrow(dim_t layer) const;  // is one row of it enough?
  void part(const std::vector<dim_t>& from, std::initializer_list<MutableTensorView> rows);

  const Changes& changes(dim_t run) const { return branches_.changes(run); }
  const RunRows& at(const RunLayout& runs, dim_t run) const {
    return runs[static_cast<std::size_t>(run)];
  }
  MutableTensorView used(const MutableTensorView& t) const { return t.slice(0, 0, rows_of(runs_)); }
  // Rows of neighbouring runs.
  static MutableTensorView of(const MutableTensorView& t, const RunLayout& runs,
                              const Batch& batch);
  MutableTensorView of(const MutableTensorView& t, dim_t run) const {
    return of(t, runs_, {run, run + 1});
  }

  const KeptPass& text_;
  const ModelSteps& steps_;
  const GptOptions& o_;
  const SweepOptions& options_;
  Beginning beginning_;
  WantedRows wanted_;
  dim_t end_;  // rows from it on are not computed

  Branches branches_;
  RunLayout runs_;      // rows of every run
  RunLayout keys_;      // before they part: rows whose keys it has
  RunLayout contexts_;  // and rows that attend, which may be fewer
  bool single_;         // rows are the first alone; the others are as kept
  bool halves_;         // k and v are in kv_, q in q_; otherwise all are in qkv_
  TensorView added_;    // what x still lacks
  MutableTensorView x_, normed_, y_, context_, qkv_, kv_, q_, hidden_;
  MutableTensorView earlier_context_, lse_, earlier_lse_;  // where runs do not begin at the first
};

}  // namespace cephalo
