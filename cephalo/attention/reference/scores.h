#pragma once

#include "cephalo/attention/engine/problem.h"
#include "cephalo/core/parallel.h"

namespace cephalo {

// Query i of head h of sequence b: one row of a tensor that has a number for every pair.
struct PairRow {
  dim_t b, h, i;
};

// pairs: [batch, num_heads, q_tokens, kv_tokens], dense, of T
// Calls body(row, its kv_tokens numbers, scratch doubles) for every query of every head.
template <typename T, typename Body>
void for_rows(Tensor& pairs, double flops_per_pair, std::size_t scratch_doubles, Body&& body) {
  if (pairs.numel() == 0) return;
  T* data = pairs.mutable_data_as<T>();
  const dim_t num_heads = pairs.dim(1), q_tokens = pairs.dim(2), kv_tokens = pairs.dim(3);
  const Region region{.pieces = pairs.numel() / kv_tokens,
                      .flops = flops_per_pair * static_cast<double>(pairs.numel()),
                      .scratch_bytes = scratch_doubles * sizeof(double)};
  parallel_for(region, [&](dim_t r, std::byte* scratch) {
    const PairRow row{r / q_tokens / num_heads, r / q_tokens % num_heads, r % q_tokens};
    body(row, data + r * kv_tokens, reinterpret_cast<double*>(scratch));
  });
}

// k or v: [batch, num_kv_heads, kv_tokens, dim] as its query heads see it:
// [batch, num_kv_heads, group, kv_tokens, dim], the group sharing memory.
TensorView shared_by_group(const TensorView& t, dim_t num_heads);

// t: [batch, num_heads, rows, columns] -> [batch, num_kv_heads, group, rows, columns]
TensorView grouped(const TensorView& t, dim_t num_kv_heads);
MutableTensorView grouped(const MutableTensorView& t, dim_t num_kv_heads);

// The textbook's way to the scores, one method a step on one tensor of all pairs: what both
// directions of the reference engine begin with. T is the type that steps are stored in: float, or
// double for float64 inputs.
template <typename T>
class ReferenceScores {
 public:
  // `function` begins the message when there is no room for a number for every pair.
  ReferenceScores(const AttendProblem& problem, const char* function);

  void multiply_queries_and_keys();  // 4a  scores = q kᵀ
  void scale();
  void softcap();
  void add_bias();
  void hide();  // 4b  scores = −inf where the query may not look

  Tensor& tensor() { return scores_; }  // [batch, num_heads, q_tokens, kv_tokens]

 private:
  const AttendProblem& p_;
  dim_t kv_tokens_;
  Tensor scores_;
};

}  // namespace cephalo
