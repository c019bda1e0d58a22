#pragma once

// Inside the library only.
#include <compare>
#include <cstddef>
#include <span>

#include "cephalo/effects/sweep.h"
#include "cephalo/model/model_steps.h"

namespace cephalo {

// Where an experiment leaves the kept pass: a matter of the experiment alone, so that its bits do
// not depend on its company.
struct Beginning {
  enum class Entry {
    resid_pre,  // of `layer`
    resid_mid,  // of `layer`: its attention is known
    resid_post  // of `layer`, whose MLP adds nothing
  };
  dim_t layer = 0;
  dim_t first = 0;  // rows before it stay as they are
  Entry entry = Entry::resid_mid;
  bool whole = false;  // a mean over all positions is taken on the way: no row may be left out
  auto operator<=>(const Beginning&) const = default;
};
Beginning beginning_of(const Changes& changes);  // of at least one

// Which rows of the stream are read in the end.
struct WantedRows {
  bool all = false;  // otherwise that of `position` alone
  dim_t position = 0;
};

// Experiments that begin alike on their way through the layers, one sequence each. Memory is taken
// once for many walks.
class ExperimentWalk {
 public:
  ExperimentWalk(const KeptPass& text, const SweepOptions& options, const Beginning& beginning,
                 const WantedRows& wanted);

  bool reaches() const { return first_ < end_; }  // false: nothing that is read changes
  dim_t rows_each() const { return end_ - first_; }
  std::size_t bytes_each() const;  // memory of one experiment
  void reserve(dim_t experiments);

  // Of at most as many as reserved -> rows() and normed(): [batch · tokens, d_model], after the
  // last norm
  void run(std::span<const Changes* const> experiments);
  const StepRows& rows() const { return rows_; }
  TensorView normed() const { return normed_.slice(0, 0, rows_.rows()); }

 private:
  // Of all positions up to the last row's.
  struct Keys {
    TensorView k, v;  // [batch, num_kv_heads, end, head_dim]
  };
  bool is_narrow(dim_t layer) const;  // is one row of it enough?
  void enter(dim_t layer);
  void add_changes(dim_t layer, const Changes& changes, const MutableTensorView& x) const;
  void attention(dim_t layer);
  void patch_streams(dim_t layer);
  MutableTensorView project(dim_t layer, KvHeads* own);
  MutableTensorView project_narrow(KvHeads* own);
  void narrow(Tensor& rows) const;
  Keys after_earlier(dim_t layer, const KvHeads& own);
  void change_contexts(dim_t layer, const TensorView& q, const Keys& keys);
  void mlp(dim_t layer);
  void clear_removed(dim_t layer, ModelSection section);

  MutableTensorView used(Tensor& t) const { return t.mutable_view().slice(0, 0, rows_.rows()); }
  MutableTensorView of(Tensor& t, dim_t experiment) const {
    return t.mutable_view().slice(0, experiment * rows_.tokens, (experiment + 1) * rows_.tokens);
  }
  const Changes& changes(dim_t experiment) const {
    return *experiments_[static_cast<std::size_t>(experiment)];
  }

  const KeptPass& text_;
  const ModelSteps& steps_;
  const GptOptions& o_;
  const SweepOptions& options_;
  Beginning beginning_;
  WantedRows wanted_;
  dim_t first_;
  dim_t end_;

  std::span<const Changes* const> experiments_;
  StepRows rows_;
  TensorView added_;  // what x still lacks
  Tensor x_, normed_, y_, context_, qkv_, hidden_;
  Tensor kv_;  // k and v of all positions, where the walk does not begin at the first
};

}  // namespace cephalo
