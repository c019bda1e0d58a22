#include "cephalo/attention/reference/weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cephalo/attention/engine/looks.h"
#include "cephalo/attention/reference/dropout.h"
#include "cephalo/attention/reference/reference.h"
#include "cephalo/core/rows.h"

namespace cephalo {
namespace {

// weights = exp(scores − lse), each row divided by what it adds up to: lse was rounded. Where keys
// of the whole are missing, rows are to add up to less.
// -> [batch, num_heads, q_tokens, kv_tokens]
template <typename T>
Tensor all_weights(const AttendProblem& problem, const TensorView& lse) {
  AttendProblem scoring = problem;
  scoring.options.return_scores = ScoresTap::masked;
  scoring.options.return_weights = false;
  scoring.options.return_lse = false;
  scoring.options.dropout = 0.0;
  Tensor weights = attend_reference(scoring).scores;
  const dim_t kv_tokens = problem.k.dim(2);
  T* row = weights.mutable_data_as<T>();
  for (dim_t b = 0; b < problem.q.dim(0); ++b) {
    for (dim_t h = 0; h < problem.q.dim(1); ++h) {
      for (dim_t i = 0; i < problem.q.dim(2); ++i, row += kv_tokens) {
        const auto reference = static_cast<double>(lse.data_as<T>()[row_offset(lse, b, h, i)]);
        const bool saw_nothing = reference == -std::numeric_limits<double>::infinity();
        double sum = 0.0;
        for (dim_t j = 0; j < kv_tokens; ++j) {
          const double weight =
              saw_nothing ? 0.0 : std::exp(static_cast<double>(row[j]) - reference);
          sum += weight;
          row[j] = static_cast<T>(weight);
        }
        if (!problem.mask.has_all_keys() || !(sum > 0.0)) continue;
        for (dim_t j = 0; j < kv_tokens; ++j) {
          row[j] = static_cast<T>(static_cast<double>(row[j]) / sum);
        }
      }
    }
  }
  if (problem.options.dropout > 0.0) {
    apply_dropout<T>(weights, draw_kept(problem), problem.options.dropout);
  }
  return weights;
}

Tensor all_weights(const AttendProblem& problem, const TensorView& lse) {
  return problem.q.dtype() == DType::f64 ? all_weights<double>(problem, lse)
                                         : all_weights<float>(problem, lse);
}

// Weights of the keys that query i of a head may see: visit(j, weight).
template <typename Visit>
void for_visible(const AttendProblem& problem, const TensorView& row, dim_t b, dim_t h, dim_t i,
                 std::vector<std::uint8_t>& keep, const Visit& visit) {
  std::fill(keep.begin(), keep.end(), std::uint8_t{1});
  problem.mask.row(b, h, i, keep.data());
  for (dim_t j = 0; j < problem.k.dim(2); ++j) {
    if (keep[static_cast<std::size_t>(j)] != 0) visit(j, row.at({j}));
  }
}

}  // namespace

Tensor weights_reference(const AttendProblem& problem, const TensorView& lse,
                         const WeightsSelection& selection) {
  const std::vector<dim_t> heads = selected_or_all(selection.heads, problem.q.dim(1), "head");
  const std::vector<dim_t> rows = selected_or_all(selection.rows, problem.q.dim(2), "row");
  const Tensor all = all_weights(problem, lse);
  Tensor out = Tensor::empty({problem.q.dim(0), static_cast<dim_t>(heads.size()),
                              static_cast<dim_t>(rows.size()), problem.k.dim(2)},
                             all.dtype());
  for (dim_t b = 0; b < out.dim(0); ++b) {
    for (dim_t h = 0; h < out.dim(1); ++h) {
      for (dim_t i = 0; i < out.dim(2); ++i) {
        out.mutable_view()[b][h][i].copy_from(
            all[b][heads[static_cast<std::size_t>(h)]][rows[static_cast<std::size_t>(i)]]);
      }
    }
  }
  return out;
}

PooledWeights pooled_weights_reference(const AttendProblem& problem, const TensorView& lse,
                                       const HeadCells& cells) {
  const Tensor all = all_weights(problem, lse);
  const TensorView head = all[cells.batch][cells.head];
  CellGrid grid(problem, cells.cells);
  for (dim_t y = 0; y < grid.queries().cells; ++y) {
    for (dim_t i = grid.queries().begin_of(y); i < grid.queries().begin_of(y + 1); ++i) {
      for (dim_t j = 0; j < head.dim(1); ++j) {
        const double weight = head.at({i, j});
        grid.add(y, j, weight, weight);
      }
    }
  }
  return std::move(grid).finish();
}

Tensor row_sums_reference(const AttendProblem& problem, const TensorView& lse,
                          const TensorView& tokens) {
  const Tensor all = all_weights(problem, lse);
  Tensor out = Tensor::zeros({all.dim(0), all.dim(1), all.dim(2), kRowSums}, DType::f64);
  const RowSummer summer(tokens);
  std::vector<std::uint8_t> keep(static_cast<std::size_t>(problem.k.dim(2)));
  auto* sums = out.mutable_data_as<double>();
  for (dim_t b = 0; b < all.dim(0); ++b) {
    for (dim_t h = 0; h < all.dim(1); ++h) {
      for (dim_t i = 0; i < all.dim(2); ++i, sums += kRowSums) {
        const dim_t p = problem.mask.position(b, i);
        for_visible(problem, all[b][h][i], b, h, i, keep, [&](dim_t j, double weight) {
          summer.add(p, problem.mask.key_position(j), weight, sums);
        });
      }
    }
  }
  return out;
}

}  // namespace cephalo
