#pragma once

#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo::kernels::cuda {

// Neighbouring tokens of one document, up to `end`; below 0: of none.
struct TokenRun {
  std::int32_t end, document;
};

// What documents are told of queries, or of keys: their runs in, numbers and spans of tokens out.
struct DocumentSide {
  const TokenRun* runs;
  const std::int32_t* runs_at;  // [sequences + 1]: a sequence's first run
  const IndexSpan* reaches;     // of each document, on the other side
  std::int32_t* numbers;        // [sequences, tokens]
  IndexSpan* spans;             // [sequences, tokens]; null: not wanted
  std::int32_t tokens;
};
struct DocumentSides {
  DocumentSide sides[2];             // queries, keys
  const std::int32_t* documents_at;  // [sequences]: a sequence's first document
  std::int32_t sequences;
};

// A few runs become the numbers of all tokens: less to send than those. Returns cudaError_t's
// number.
int write_documents(const DocumentSides& args, void* stream);

}  // namespace cephalo::kernels::cuda
