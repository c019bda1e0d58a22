#include "cephalo/attention/engine/looks.h"

#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"

namespace cephalo {

std::vector<dim_t> selected_or_all(const std::vector<dim_t>& selected, dim_t count,
                                   const char* what) {
  std::vector<dim_t> chosen = selected;
  if (chosen.empty()) {
    for (dim_t k = 0; k < count; ++k) chosen.push_back(k);
  }
  for (const dim_t k : chosen) {
    require(0 <= k && k < count, "weights: {} {} is not in [0, {})", what, k, count);
  }
  return chosen;
}

CellGrid::CellGrid(const AttendProblem& problem, dim_t cells)
    : queries_{problem.q.dim(2), std::min(cells, problem.q.dim(2))},
      keys_{problem.k.dim(2), std::min(cells, problem.k.dim(2))},
      out_{Tensor::zeros({queries_.cells, keys_.cells}),
           Tensor::zeros({queries_.cells, keys_.cells})},
      largest_(out_.largest.mutable_data_as<float>()),
      sums_(static_cast<std::size_t>(queries_.cells * keys_.cells), 0.0) {}

void CellGrid::add(dim_t y, dim_t j, double high, double sum) {
  const dim_t cell = y * keys_.cells + keys_.cell_of(j);
  largest_[cell] = std::max(largest_[cell], static_cast<float>(high));
  sums_[static_cast<std::size_t>(cell)] += sum;
}

PooledWeights CellGrid::finish() && {
  float* mean = out_.mean.mutable_data_as<float>();
  for (dim_t y = 0; y < queries_.cells; ++y) {
    for (dim_t x = 0; x < keys_.cells; ++x) {
      const dim_t cell = y * keys_.cells + x;
      const auto pairs = static_cast<double>(queries_.size_of(y) * keys_.size_of(x));
      mean[cell] = static_cast<float>(sums_[static_cast<std::size_t>(cell)] / pairs);
    }
  }
  return std::move(out_);
}

RowSummer::RowSummer(const TensorView& tokens)
    : tokens_(tokens.numel() > 0 ? tokens.data_as<std::int64_t>() : nullptr),
      count_(tokens.numel()) {}

}  // namespace cephalo
