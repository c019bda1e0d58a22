// What the tables of instances share.
#pragma once

#include "cephalo/kernels/cuda/hopper.cuh"
#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/kernels/cuda/instances.h"

namespace cephalo::kernels::cuda {

template <DType kDType>
struct ElementOf;
template <>
struct ElementOf<DType::bf16> {
  using Type = hopper::Bf16;
};
template <>
struct ElementOf<DType::f16> {
  using Type = hopper::F16;
};

// Null where it is not in the table.
template <typename Entry, int kCount>
const Entry* find_instance(const Entry (&entries)[kCount], const Instance& wanted) {
  for (const Entry& each : entries) {
    if (each.instance.dtype == wanted.dtype && each.instance.width == wanted.width &&
        each.instance.looks_at == wanted.looks_at) {
      return &each;
    }
  }
  return nullptr;
}

}  // namespace cephalo::kernels::cuda
