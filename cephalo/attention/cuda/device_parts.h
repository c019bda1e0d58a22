#pragma once

#include <cstddef>

#include "cephalo/kernels/cuda/device_parts.h"
#include "cephalo/mask/bound_mask.h"

// Parts of a mask whose numbers are on the device: kernels of their own make of them what other
// kernels read of a mask, in stream order.
namespace cephalo {

bool has_device_lengths(const BoundMask& mask);  // or prefixes: what changes rules
bool has_device_slopes(const BoundMask& mask);
bool has_slopes(const BoundMask& mask);  // there or of the host
bool has_device_documents(const BoundMask& mask);
// Are the tokens of every document neighbours, as far as the caller said?
bool device_documents_are_in_order(const BoundMask& mask);

// How many rules a mask has: one for all sequences, or one for each.
dim_t rule_count(const BoundMask& mask);

// rules: [rule_count]; from: [sequences of the mask], of its other parts; slopes, from:
// [num_heads], likewise. In device memory.
void change_rules(const BoundMask& mask, const kernels::cuda::PositionRule* from,
                  kernels::cuda::PositionRule* rules);
void add_device_slopes(const BoundMask& mask, const double* from, double* slopes);

// Documents whose ids are on the device.
class DeviceDocuments {
 public:
  explicit DeviceDocuments(const BoundMask& mask);
  std::size_t bytes() const { return bytes_; }  // of scratch
  void write(std::byte* scratch, kernels::cuda::MaskArgs& mask,
             kernels::cuda::DocumentSpans& spans) const;

 private:
  struct Side {
    kernels::cuda::DeviceNumbers ids;
    dim_t ends, begin, tokens;
    std::size_t numbers, documents, one, spans;  // where in the scratch
  };
  Side side_of(const DevicePart& part, dim_t begin, dim_t tokens);
  std::size_t place(dim_t count, std::size_t each);
  kernels::cuda::DocumentIds::Side side_in(std::byte* scratch, const Side& side) const;
  dim_t stride(dim_t each) const { return sequences_ > 1 ? each : 0; }

  dim_t batch_begin_, sequences_;
  bool in_order_;
  std::size_t bytes_ = 0;
  Side q_{}, kv_{};
  std::size_t keys_ = 0, queries_ = 0, first_tile_ = 0;
};

}  // namespace cephalo
