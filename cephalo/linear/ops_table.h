#pragma once

#include "cephalo/linear/ops.h"

namespace cephalo::ops {

// What a kind of device computes: an entry for each op. Null: nothing of that.
struct Table {
  decltype(ops::linear)* linear = nullptr;
  decltype(ops::linear_backward)* linear_backward = nullptr;
  decltype(ops::rotate)* rotate = nullptr;
  decltype(ops::norm)* norm = nullptr;
  decltype(ops::norm_backward)* norm_backward = nullptr;
  decltype(ops::embed)* embed = nullptr;
  decltype(ops::embed_backward)* embed_backward = nullptr;
  decltype(ops::join_contexts)* join_contexts = nullptr;
  decltype(ops::drop)* drop = nullptr;
  decltype(ops::cross_entropy)* cross_entropy = nullptr;
  decltype(ops::adamw)* adamw = nullptr;
  decltype(ops::sgd)* sgd = nullptr;
  decltype(ops::sum_of_squares)* sum_of_squares = nullptr;
  decltype(ops::sums_of_squares)* sums_of_squares = nullptr;
  decltype(ops::row_norms)* row_norms = nullptr;
  decltype(ops::scale)* scale = nullptr;
  decltype(ops::add)* add = nullptr;
  void (*zero)(std::span<const MutableTensorView> tensors) = nullptr;
  decltype(ops::copy)* copy = nullptr;
};

// For tests: what a kind of device computes, as long as this lives.
class ScopedTable {
 public:
  ScopedTable(DeviceKind kind, const Table& table);
  ~ScopedTable();
  ScopedTable(const ScopedTable&) = delete;
  ScopedTable& operator=(const ScopedTable&) = delete;

 private:
  DeviceKind kind_;
  const Table* before_;
};

}  // namespace cephalo::ops
