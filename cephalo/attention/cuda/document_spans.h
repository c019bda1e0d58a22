#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/kernels/cuda/hopper.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

// A mask's documents as kernels compare them, numbered in 32 bits, and what they leave to see
// between blocks of queries and tiles of keys (kernels::cuda::DocumentSpans).
struct DocumentNumbers {
  dim_t sequences;                             // one for all that share their ids, or one for each
  std::vector<std::int32_t> q;                 // [sequences, q_tokens]; below 0: of no document
  std::vector<std::int32_t> kv;                // [sequences, kv_tokens]
  dim_t blocks, tiles, kv_blocks;              // of a sequence
  std::vector<kernels::cuda::IndexSpan> keys;  // [sequences, blocks]
  std::vector<kernels::cuda::IndexSpan> queries;  // [sequences, tiles]
  std::vector<int> first_tile;                    // [sequences, blocks]
  std::vector<int> q_one;                         // [sequences, blocks]
  std::vector<int> kv_one;                        // [sequences, kv_blocks]
};

DocumentNumbers number_documents(const BoundMask& mask);

}  // namespace cephalo
