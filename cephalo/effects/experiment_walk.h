#pragma once

// Inside the library only.
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "cephalo/effects/beginning.h"
#include "cephalo/effects/branches.h"
#include "cephalo/effects/head_change.h"
#include "cephalo/effects/sweep.h"
#include "cephalo/model/model_steps.h"
#include "cephalo/model/pass_memory.h"

namespace cephalo {

// Which rows of the stream are read in the end.
struct WantedRows {
  bool all = false;  // otherwise that of `position` alone
  dim_t position = 0;
};

// Experiments that begin alike on their way through the layers. Those that have been changed alike
// so far are one run; where their changes begin to differ, it branches. What a change adds to the
// stream is added to what the run has without it, so branching never shows in the bits.
class ExperimentWalk {
 public:
  ExperimentWalk(const KeptPass& text, const SweepOptions& options, const Beginning& beginning,
                 const WantedRows& wanted);

  bool reaches() const { return first_ < end_; }  // false: nothing that is read changes
  dim_t rows_each() const { return end_ - first_; }
  std::size_t bytes_each() const;  // memory that one more experiment needs
  // Room for so many, until `memory` is begun again.
  void reserve(dim_t experiments, PassMemory& memory);

  // Of at most as many as reserved -> rows(), a sequence for each, and normed():
  // [batch · tokens, d_model], after the last norm
  void run(std::span<const Changes* const> experiments);
  const StepRows& rows() const { return rows_; }
  TensorView normed() const { return used(normed_); }

 private:
  void enter(dim_t layer);
  void attention(dim_t layer);
  void patch_streams(dim_t layer);
  QkvHeads project(dim_t layer);
  QkvHeads project_single(dim_t layer);
  QkvHeads project_narrow();
  void widen(const MutableTensorView& rows, const TensorView& kept) const;
  void narrow(const MutableTensorView& rows) const;
  void attend(dim_t layer, const QkvHeads& heads);
  void change_runs(dim_t layer, const QkvHeads& heads);
  void add_kept_changes(dim_t layer, const Changes& changes, const MutableTensorView& x) const;
  void add_changes(dim_t layer, const Changes& changes, const QkvHeads& heads, dim_t run,
                   const MutableTensorView& x) const;
  void add_change(dim_t layer, const HeadChange& change, HeadRun run,
                  const MutableTensorView& x) const;
  void mlp(dim_t layer);

  bool is_narrow(dim_t layer) const;  // is one row of it enough?
  void part(const std::vector<dim_t>& from, std::initializer_list<MutableTensorView> rows);

  const Changes& changes(dim_t run) const { return branches_.changes(run); }
  MutableTensorView used(const MutableTensorView& t) const { return t.slice(0, 0, rows_.rows()); }
  MutableTensorView of(const MutableTensorView& t, dim_t run) const {
    return t.slice(0, run * rows_.tokens, (run + 1) * rows_.tokens);
  }

  const KeptPass& text_;
  const ModelSteps& steps_;
  const GptOptions& o_;
  const SweepOptions& options_;
  Beginning beginning_;
  WantedRows wanted_;
  dim_t first_;
  dim_t end_;

  Branches branches_;
  StepRows rows_;     // a sequence for each run
  bool single_;       // rows are `first` alone; the others are as kept
  TensorView added_;  // what x still lacks
  MutableTensorView x_, normed_, y_, context_, qkv_, hidden_;
  MutableTensorView earlier_context_, lse_, earlier_lse_;  // where the first row is not that of all
};

}  // namespace cephalo
