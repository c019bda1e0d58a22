#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cephalo/attention/engine/engine.h"

namespace cephalo {

// What looks at weights share, whichever engine computes them.

// The selected ones of `count`, or all of them; an error when one is not there.
std::vector<dim_t> selected_or_all(const std::vector<dim_t>& selected, dim_t count,
                                   const char* what);

// How `count` neighbours share `cells` cells evenly: the cell of one, and where a cell begins.
struct CellAxis {
  dim_t count, cells;
  dim_t cell_of(dim_t n) const { return n * cells / count; }
  dim_t begin_of(dim_t cell) const { return (cell * count + cells - 1) / cells; }
  dim_t size_of(dim_t cell) const { return begin_of(cell + 1) - begin_of(cell); }
};

// The cells of one head while pairs are added, and their means at the end.
class CellGrid {
 public:
  CellGrid(const AttendProblem& problem, dim_t cells);
  const CellAxis& queries() const { return queries_; }

  // Pairs of queries of row y of cells with key j: the largest of their weights, and their sum.
  // Rows of cells may be added to by different threads.
  void add(dim_t y, dim_t j, double high, double sum);
  PooledWeights finish() &&;

 private:
  CellAxis queries_, keys_;
  PooledWeights out_;
  float* largest_;
  std::vector<double> sums_;
};

// Adds what one pair contributes to the sums of its row (RowSum).
class RowSummer {
 public:
  // tokens: int64 [kv_tokens of the whole], or empty
  explicit RowSummer(const TensorView& tokens);
  // The query at position p looks at the key at position j, which it may see. Inline: it is called
  // for every pair of every head.
  void add(dim_t p, dim_t j, double weight, double* sums) const {
    const auto at = [&](RowSum sum) -> double& { return sums[static_cast<int>(sum)]; };
    at(RowSum::visible) += 1.0;
    at(RowSum::largest) = std::max(at(RowSum::largest), weight);
    if (weight > 0.0) at(RowSum::entropy) -= weight * std::log(weight);
    at(RowSum::distance) += weight * static_cast<double>(std::abs(p - j));
    if (j == p - 1) at(RowSum::previous) += weight;
    if (j == 0) at(RowSum::first) += weight;
    if (j == p) at(RowSum::current) += weight;
    const bool has_token = 0 <= p && p < count_;
    if (!has_token || j >= p) return;
    if (tokens_[j] == tokens_[p]) {
      at(RowSum::duplicate) += weight;
      at(RowSum::has_duplicate) = 1.0;
    }
    if (j >= 1 && tokens_[j - 1] == tokens_[p]) {
      at(RowSum::induction) += weight;
      at(RowSum::has_induction) = 1.0;
    }
  }

 private:
  const std::int64_t* tokens_;
  dim_t count_;
};

}  // namespace cephalo
