#pragma once

#include <cstddef>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/model/gpt.h"
#include "cephalo/world/world.h"

namespace cephalo {

// Elements of one parameter that one process updates. Every parameter is a row of pieces of
// ops::kSquaresPiece elements, and a process has a run of neighbouring pieces.
struct Part {
  std::size_t parameter;
  Share elements;
  int owner;
  Share pieces;  // their numbers among those of all parameters
};
// In the order of parameters and elements.
std::vector<Part> make_parts(const std::vector<GptParameter>& parameters, int processes);

dim_t piece_count(const std::vector<GptParameter>& parameters);

// Some elements of a dense tensor in row-major order: [elements]
MutableTensorView elements_of(const MutableTensorView& tensor, const Share& elements);
TensorView elements_of(const TensorView& tensor, const Share& elements);

// A dense tensor as bytes.
inline std::span<std::byte> bytes_of(const MutableTensorView& t) {
  return {static_cast<std::byte*>(t.mutable_data()), t.bytes()};
}
inline std::span<const std::byte> bytes_of(const TensorView& t) {
  return {static_cast<const std::byte*>(t.data()), t.bytes()};
}

}  // namespace cephalo
