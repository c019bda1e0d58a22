#include "cephalo/effects/branches.h"

#include <utility>

namespace cephalo {

// alike(a, b): do neighbours of one run stay together?
template <typename Alike>
std::vector<dim_t> Branches::part_unless(const Alike& alike) {
  std::vector<dim_t> from;
  std::vector<Run> runs;
  for (dim_t r = 0; r < count(); ++r) {
    const Run& run = runs_[static_cast<std::size_t>(r)];
    for (std::size_t e = run.begin; e < run.end; ++e) {
      if (e > run.begin && alike(*experiments_[e - 1], *experiments_[e])) {
        runs.back().end = e + 1;
      } else {
        runs.push_back({e, e + 1});
        from.push_back(r);
      }
    }
  }
  runs_ = std::move(runs);
  return from;
}

Branches::Branches(std::span<const Changes* const> experiments)
    : experiments_(experiments), runs_{{0, experiments.size()}} {
  part_unless([](const Changes& a, const Changes& b) { return first_row(a) == first_row(b); });
}

std::vector<dim_t> Branches::part(dim_t layer, ChangeStage stage) {
  return part_unless([&](const Changes& a, const Changes& b) {
    return changes_at(a, layer, stage) == changes_at(b, layer, stage);
  });
}

std::vector<dim_t> Branches::part_all() {
  return part_unless([](const Changes&, const Changes&) { return false; });
}

}  // namespace cephalo
