#pragma once

#include "cephalo/kernels/cuda/hopper.h"

// Parts of a mask whose numbers are in device memory become what kernels read of a mask: in stream
// order, without the host knowing them. A number out of range counts as the nearest one inside.
// Functions launch into a stream and return cudaError_t's number.
namespace cephalo::kernels::cuda {

// int32 or int64 [sequences, tokens], or [sequences] by the first stride alone; a stride of 0: one
// for all.
struct DeviceNumbers {
  const void* data;  // null: there is no such part
  bool is_wide;      // int64
  std::int64_t stride[2];
};

// Lengths and prefixes of sequences, as the whole has them that a problem is a rectangle of.
struct RuleParts {
  DeviceNumbers q_lengths, kv_lengths, prefix;
  std::int64_t q_whole, kv_whole;    // tokens of the whole,
  std::int64_t q_begin, kv_begin;    // where the rectangle begins in it,
  std::int64_t q_tokens, kv_tokens;  // and how many it has
  bool is_from_the_end;              // the last query is at the last key
  std::int64_t count;                // of rules
};
// rules: what all parts say together. from: those of the mask's other parts, one for each sequence,
// or, by a from_stride of 0, one for all.
int change_rules(PositionRule* rules, const PositionRule* from, std::int64_t from_stride,
                 const RuleParts& parts, void* stream);

// slopes[h] = from[h] + more[h · stride] for h < count; below 0 counts as 0.
int add_slopes(double* slopes, const double* from, const float* more, std::int64_t stride,
               std::int64_t count, void* stream);

// Ids of documents, and room for what is made of them. Documents have the numbers that their ids
// are, up to 2^31 − 3.
struct DocumentIds {
  struct Side {
    DeviceNumbers ids;      // of [sequences, tokens], or where documents end
    std::int32_t ends;      // how many of those there are, with the 0 in front; 0: ids
    std::int32_t begin;     // the first token's place, where ends count from
    std::int32_t* numbers;  // [sequences, tokens]
    IndexSpan* documents;   // [sequences, blocks of 64 tokens]: the lowest number and the highest
    int* one;               // as DocumentSpans' q_one and kv_one
    IndexSpan* spans;       // [sequences, tokens], as of_query and of_key; null: not wanted
    std::int32_t tokens;
  };
  Side q, kv;
  IndexSpan* keys;  // the others as in DocumentSpans
  IndexSpan* queries;
  int* first_tile;
  std::int32_t sequences;
};
// Spans of tokens ask for numbers that never fall, with those of no document last. If that does not
// hold, who sees whom is not defined, but nothing else is read or written.
int number_documents(const DocumentIds& args, void* stream);

}  // namespace cephalo::kernels::cuda
