#pragma once

#include "cephalo/kernels/cuda/problem.h"

// Attention on the tensor cores of Hopper: 16-bit elements, or float32 numbers as several of them;
// sums in float32. Functions launch into a stream and return cudaError_t's number.
namespace cephalo::kernels::cuda {

// A tensor as the copy engine sees it: what the driver's cuTensorMapEncodeTiled wrote, with boxes
// of box_rows() rows.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// What a kernel looks at: nothing, since every query sees every key; positions; positions and one
// thing more; or every pair, for all that can be said. The one thing: alibi, or a 16-bit bias for
// every pair, softcap, dropout. Documents whose tokens are neighbours come along with any of them.
enum class LooksAt { nothing, positions, alibi, bias, softcap, dropout, pairs };

template <LooksAt kWhat>
struct Looks {
  static constexpr bool kSpans = kWhat != LooksAt::nothing;
  static constexpr bool kAlibi = kWhat == LooksAt::alibi, kBias = kWhat == LooksAt::bias;
  static constexpr bool kSoftcap = kWhat == LooksAt::softcap, kDropout = kWhat == LooksAt::dropout;
  static constexpr bool kPairs = kWhat == LooksAt::pairs;
  static constexpr bool kOneThing = kAlibi || kBias || kSoftcap || kDropout;
  static constexpr bool kDocuments = kOneThing || kPairs;
};

// Which kernel: one of instances.h. Narrower rows are read as if zeros followed. Of float32 numbers
// there are several parts, of type dtype: a row has its columns' first parts, then their second.
struct Instance {
  DType dtype;
  int width, v_width;
  int parts;
  LooksAt looks_at;
  bool has_documents = false;  // forward: a kernel for them, where there is one
  bool is_wide() const { return parts > 1 || width > 128; }
};

// Between which keys and queries documents leave anything to see. All count from the sequence's
// beginning; a stride of 0: all sequences share their documents.
struct IndexSpan {
  int begin, end;
};
constexpr int kDocumentQueries = 64, kDocumentKeys = 128;
struct DocumentSpans {
  const IndexSpan* keys;     // of each block of 64 queries
  const IndexSpan* queries;  // of each tile of 128 keys, in blocks; both ends never fall
  const int* first_tile;     // of each block of queries: the first tile whose span holds it
  const int* q_one;          // of each 64 queries: the document that they are all of, or below 0
  const int* kv_one;         // of each 64 keys
  // Where the tokens of every document are neighbours: of each query the keys of its document, and
  // of each key the queries. Strides are those of MaskArgs' documents.
  const IndexSpan* of_query;
  const IndexSpan* of_key;
  std::int64_t blocks_stride, tiles_stride, kv_blocks_stride;
};

constexpr int kPhiloxRounds = 10;

// What kernels that look at more than positions are told.
struct PairRules {
  MaskArgs mask;
  DocumentSpans documents;  // null where there are none
  Dropout dropout;          // its keys begin at a multiple of 4
  float softcap;            // 0: none
  bool by_position_alone;   // none of all that
  // For kernels that look at softcap or dropout alone, and have few registers.
  float scale_in_caps;                         // scale / softcap
  float softcap2;                              // softcap in base 2
  float shrunk;                                // 1 / dropout.grown
  std::uint32_t round_keys[kPhiloxRounds][2];  // of the seed
};

// A bias that the copy engine brings: [batch | 1, num_heads | 1, q_tokens, kv_tokens], 16 bits.
struct BiasMap {
  TensorMap map;
  int by_batch, by_head;  // 0 where it is one for all
};

// Scores are in base 2 here, and positions fit 32 bits: no shift of a rule reaches this.
constexpr std::int64_t kFarthestShift = std::int64_t{1} << 29;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;

struct HopperForward {
  TensorMap q, k, v, context;
  Rows context_rows;  // written by instances of several parts, instead of context
  int v_columns;
  float* lse;  // null: not wanted
  std::int64_t lse_stride[3];
  const PositionRule* rules;  // not read by instances that look at nothing
  int rule_stride;
  unsigned* next_tile;     // 0 before the launch
  unsigned* careful;       // how many of careful_rows there are; 0 before the launch
  unsigned* careful_rows;  // rows of [batch, num_heads, q_tokens] whose result is not finite
  int batch, num_heads, num_kv_heads, q_tokens, kv_tokens;
  float scale;
  PairRules pairs;  // read by instances that look at more than positions
  BiasMap bias;
};
struct ForwardBoxes {
  int q_rows, kv_rows;
};
ForwardBoxes forward_boxes(const Instance& instance);
int attend_hopper(const Instance& instance, const HopperForward& args, void* stream);

// The gradients. dq is summed in float32 over blocks of keys: by turns in a fixed order, or, where
// any order will do, as they come.
struct HopperBackward {
  TensorMap q, k, v, dcontext;
  TensorMap dk, dv;
  Rows dk_rows, dv_rows;  // written by wide instances, instead of dk and dv
  int columns, v_columns;
  bool by_turns;        // read by wide instances
  const float* lse2;    // [batch, num_heads, q_blocks · q_rows], as prepare_backward leaves them
  const float* share2;  // read by instances that look at pairs
  const float* delta;
  // [batch, num_heads, q_blocks, kDqBlock], of wide instances [batch, num_heads, q_blocks · q_rows,
  // width]; 0 before the launch where any order will do, and of wide instances
  float* dq;
  unsigned* turns;      // [batch, num_heads, q_blocks], 0 before the launch
  unsigned* next_tile;  // 0 before the launch
  const PositionRule* rules;
  int rule_stride;
  unsigned* careful;  // rows of [batch, num_kv_heads, kv_tokens] whose dk or dv is not finite
  unsigned* careful_rows;
  int batch, num_heads, num_kv_heads, q_tokens, kv_tokens;
  int multiprocessors;  // the launch says it
  float scale;
  PairRules pairs;  // read by instances that look at more than positions
  BiasMap bias;
};
constexpr int kDqBlock = 8192;  // numbers of dq in a block of queries, of all widths up to 128
struct BackwardBoxes {
  int q_rows, kv_rows, gradient_rows;
  int width;  // of the kernel: the instance's, or more
};
BackwardBoxes backward_boxes(const Instance& instance);
// By turns where the order matters, and where any other is not faster.
bool adds_by_turns(const Instance& instance, bool any_order);
int attend_backward_hopper(const Instance& instance, bool by_turns, const HopperBackward& args,
                           void* stream);

// dq from the order of accumulators, or from rows, to rows, scaled and rounded; rows that are not
// finite are listed.
struct HopperQueryGradient {
  const float* from;      // HopperBackward::dq
  const unsigned* turns;  // of blocks that were not cleared: 0 where nobody has added; or null
  std::int64_t row_head;  // of rows: how many each head has; 0: the order of accumulators
  Rows dq;
  unsigned* careful;
  unsigned* careful_rows;
  std::int64_t batch, num_heads, q_tokens;
  int width, columns;  // of the kernel, and of dq
  float scale;
};
int write_query_gradient(const HopperQueryGradient& args, void* stream);

}  // namespace cephalo::kernels::cuda
