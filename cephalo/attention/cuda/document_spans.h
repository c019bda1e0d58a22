#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/kernels/cuda/documents.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {

// A mask's documents as kernels compare them, numbered in 32 bits, and what they leave to see
// between blocks of queries and tiles of keys (kernels::cuda::DocumentSpans).
struct DocumentNumbers {
  // Of queries, or of keys.
  struct Side {
    std::vector<kernels::cuda::TokenRun> runs;
    std::vector<std::int32_t> runs_at;              // [sequences + 1]
    std::vector<kernels::cuda::IndexSpan> reaches;  // of each document, here
  };
  dim_t sequences;  // one for all that share their ids, or one for each
  Side q, kv;
  std::vector<std::int32_t> documents_at;         // [sequences]
  dim_t blocks, tiles, kv_blocks;                 // of a sequence
  std::vector<kernels::cuda::IndexSpan> keys;     // [sequences, blocks]
  std::vector<kernels::cuda::IndexSpan> queries;  // [sequences, tiles]
  std::vector<int> first_tile;                    // [sequences, blocks]
  std::vector<int> q_one;                         // [sequences, blocks]
  std::vector<int> kv_one;                        // [sequences, kv_blocks]
  bool together;                                  // as documents_are_together says
};

DocumentNumbers number_documents(const BoundMask& mask);

// Are the tokens of every document neighbours, queries and keys each?
bool documents_are_together(const BoundMask& mask);

}  // namespace cephalo
