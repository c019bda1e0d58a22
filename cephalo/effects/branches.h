#pragma once

// Inside the library only.
#include <cstddef>
#include <span>
#include <vector>

#include "cephalo/effects/beginning.h"

namespace cephalo {

// Experiments on one way, of which those with the same first row that have been changed alike so
// far are one run. Neighbours among them, that is: sweeps put experiments that share changes side
// by side.
class Branches {
 public:
  Branches() = default;
  explicit Branches(std::span<const Changes* const> experiments);

  std::span<const Changes* const> experiments() const { return experiments_; }
  dim_t count() const { return std::ssize(runs_); }
  // So far these are the changes of a run; later ones may be those of one experiment.
  const Changes& changes(dim_t run) const {
    return *experiments_[runs_[static_cast<std::size_t>(run)].begin];
  }

  // Runs part where their experiments' changes of this layer differ -> the run that each comes
  // from, which is never a later one.
  std::vector<dim_t> part(dim_t layer, ChangeStage stage);
  std::vector<dim_t> part_all();  // a run for each experiment, though some are alike

 private:
  struct Run {
    std::size_t begin, end;  // of the experiments
  };
  template <typename Alike>
  std::vector<dim_t> part_unless(const Alike& alike);

  std::span<const Changes* const> experiments_;
  std::vector<Run> runs_;
};

}  // namespace cephalo
