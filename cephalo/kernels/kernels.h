#pragma once

#include <cstddef>
#include <cstdint>

#include "cephalo/core/cpu.h"
#include "cephalo/core/dtype.h"
#include "cephalo/core/shape.h"

// Tile arithmetic, one table per instruction set. Kernels see pointers, strides and sizes; they do
// not allocate, throw, start threads or check arguments.
//
// Tables of products have two types: In is what is multiplied, packed operands, and Sum is what
// products, scores and references are. <float, float> and <double, double> exist; <BFloat16, float>
// is for instruction sets that multiply 16 bits (docs/kernels.md). Without one, 16-bit storage
// widens while it is packed, and only decoding reads it in place. Tables without products have one
// type, T.
//
// Everything is built on one register tile: `rows` broadcast numbers times `columns` vectors of
// `lanes` numbers. Attention keeps queries in the lanes, so that the largest score, the
// exponentials and the sums of a query never cross lanes. docs/kernels.md tells the whole story.
namespace cephalo::kernels {

inline constexpr int kMaxColumns = 3;  // vectors side by side in a register tile
inline constexpr dim_t kKvTile = 128;  // keys in one packed block

// A number that stands for "no reference yet": every visible score raises an exponent of it to
// infinity, which sends the lane to the path that chooses its reference.
template <typename T>
inline constexpr T kNoReference = sizeof(T) == 4 ? T(1e30) : T(1e300);

// A score is rounded to T, in natural units, once a bias is added to it. Up to this distance from 0
// that rounding is at most 2^-19 of a weight, and kernels leave it out. A row with a bias whose
// largest score is beyond is *far*: its scores are rounded, and its reference is one of them, kept
// in natural units too, so that their differences are exact however large they are.
inline constexpr double kFarScore = 64.0;

// Rows of a matrix, wherever they lie: count addresses of dim elements, `stride` elements apart.
struct Rows {
  const void* const* address;
  dim_t count;
  dim_t dim;
  dim_t stride;
  DType dtype;
};

// The same to write to, one distance apart.
struct OutRows {
  void* address;
  dim_t count;
  dim_t dim;
  dim_t row_stride;
  dim_t stride;
  DType dtype;
};

// Keys and values of one block, packed: keys [count / rows][head_dim][rows] and values
// [v_dim / rows][value_stride], inside [count][rows]; both filled up with zeros.
template <typename In>
struct KeyBlock {
  const In* keys;
  const In* values;
  dim_t count;
  dim_t head_dim;
  dim_t v_dim;
  dim_t value_stride;
  bool finite_values;  // no NaN or infinity in v: then 0 · v is 0
};

// Queries in lanes, width = columns · lanes of them, and what is known of their rows so far.
// Scores are in base 2: q carries scale · log2(e).
template <typename In, typename Sum>
struct QueryTile {
  const In* q;           // [head_dim][width]
  Sum* context;          // [v_dim rounded up to rows][width], not yet divided by sum
  Sum* minus_reference;  // [width], of the exponents: weights so far are 2^(score − reference);
                         // in natural units where the lane is far
  Sum* sum;              // [width], of those weights
  int columns;
  std::uint64_t seen;  // bit x: lane x has seen a key, and has a reference
  bool fixed;          // references are final (an lse, say): they never move
  std::uint64_t far;   // bit x: lane x is far (kFarScore)
  bool no_growth;      // references count on no growth by alibi that is still to come
};

// What is between scores and weights in a mixed tile; null or 0 where it does not apply. Key arrays
// have count rounded up to rows entries.
template <typename T>
struct TileMask {
  const std::uint64_t* visible;  // [count] bit x: lane x may look; 0 past the width and the count
  const std::uint64_t* kept;     // [count] bit x: dropout keeps the weight of lane x
  const T* bias;                 // [count][width], finite where hidden
  T slope, slope_low;            // of alibi, base 2, in two parts
  T distance;                    // position of lane 0 less that of key 0
  T softcap;                     // base 2
  T grown;                       // a kept weight grows by this
};

// Which weights dropout keeps: word key % 4 of philox(seed, {key / 4, position, head, batch}) is at
// least the threshold.
struct KeptStream {
  std::uint64_t seed;
  std::uint32_t head;
  std::uint32_t batch;
  std::uint32_t threshold;
};

// The columns of a strip (`rows` keys) that hold a visible pair.
struct StripColumns {
  std::uint8_t first;
  std::uint8_t count;
};

// What attention asks of an instruction set whatever it multiplies: the size of a register tile,
// and what a mask is made of.
template <typename Sum>
struct MaskKernels {
  int rows;
  int lanes;

  // kept[w]: keys 4 · four + w; bit x: the query at position + x, x < count <= 64.
  void (*kept_by_query)(const KeptStream& stream, std::uint32_t four, std::uint32_t position,
                        dim_t count, std::uint64_t* kept);
  // The query at one position; bit x: key 4 · four + x, x < 4 · fours <= 64.
  std::uint64_t (*kept_by_key)(const KeptStream& stream, std::uint32_t four, std::uint32_t position,
                               dim_t fours);

  // A bias into lanes; rows are queries, elements are keys:
  // bias[j][x] (+)= element j of row x; −inf, also as a sum, clears its bit and adds nothing.
  void (*add_bias)(const Rows& queries, dim_t width, bool first, Sum* bias, std::uint64_t* visible);
  // The same with keys in the lanes: bias[x][j] (+)= element j of row x.
  void (*add_bias_rows)(const Rows& queries, dim_t width, bool first, Sum* bias,
                        std::uint64_t* visible);
};

template <typename In, typename Sum>
struct AttendKernels : MaskKernels<Sum> {
  // Layouts. `broadcast`: [count / rows][dim][rows]; `lanes`: [dim][width], times scale. Missing
  // rows are zeros.
  void (*pack_broadcast)(const Rows& from, In* to);
  void (*pack_lanes)(const Rows& from, Sum scale, dim_t width, In* to);
  // [dim / rows][value_stride], inside [count][rows]; false when a number is NaN or infinite.
  bool (*pack_values)(const Rows& from, dim_t value_stride, In* to);
  // Rows cut into slices of `width` elements (`rows`, or vectors of `lanes`), for products over the
  // rows: [dim / width][slice_stride], inside [count][width], filled up with zeros; nothing is
  // transposed. False when a number is NaN or infinite.
  bool (*pack_slices)(const Rows& from, dim_t width, dim_t slice_stride, In* to);

  // [count][to_stride], filled up with zeros; false as above.
  bool (*copy_rows)(const Rows& from, dim_t to_stride, In* to);

  // weights: [count rounded up to rows][width] = 2^(score − reference), 0 where hidden; moves
  // references and sums.
  void (*weigh)(const KeyBlock<In>& block, QueryTile<In, Sum>& tile, const TileMask<Sum>* mask,
                In* weights, StripColumns* strips);
  // context += weights · values
  void (*gather)(const KeyBlock<In>& block, const QueryTile<In, Sum>& tile,
                 const TileMask<Sum>* mask, const In* weights, const StripColumns* strips);
  // Rows [count][dim] of a tile [dim][width] times factor[lane], as elements of dtype.
  void (*unpack_lanes)(const Sum* tile, dim_t width, const Sum* factor, const OutRows& to);

  // products[r] = Σ a[r] · b[r]
  void (*row_products)(const Rows& a, const Rows& b, Sum* products);
};

// The backward pass turns the tile round: keys in the lanes, queries down the rows. Then dk and dv
// grow as context does in the forward pass, by `gather`, and only dq sums across lanes.

// Queries of one block, packed, with what the forward pass left of their rows. Arrays of one number
// a query have count rounded up to rows entries, zeros at the end.
template <typename In, typename Sum>
struct QueryBlock {
  const In* q;             // [count / rows][head_dim][rows]
  const In* dcontext;      // [count / rows][v_dim][rows]
  const Sum* minus_lse;    // base 2; natural where the row is far
  const Sum* minus_delta;  // delta = Σ dcontext · context − dlse
  dim_t count;
  dim_t head_dim;
  dim_t v_dim;
  const std::uint8_t* far;  // 1: the row is far (kFarScore); null: none is
};

// Keys in lanes, width = columns · lanes, of which the first `count` are there.
template <typename In>
struct KeyTile {
  const In* keys;      // [head_dim][width], times scale · log2(e)
  const In* values;    // [v_dim][width]
  const In* key_rows;  // [width][key_stride], whole vectors
  dim_t key_stride;
  dim_t count;
  int columns;
  bool finite_keys;  // no NaN or infinity in k: then 0 · k is 0
};

template <typename In, typename Sum>
struct BackwardKernels {
  // weights: [count rounded up to rows][width] = 2^(score − lse), 0 where hidden, before dropout.
  // tanhs: the same size, tanh(score / softcap); not touched without one.
  void (*reweigh)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile,
                  const TileMask<Sum>* mask, In* weights, Sum* tanhs, StripColumns* strips);
  // dscores: the same size = weights · (dcontext · v − delta) · (1 − tanhs²), 0 where hidden.
  // Dropout: drops from the gradient of weights, and then from weights, which dv needs.
  void (*differentiate)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile,
                        const TileMask<Sum>* mask, const StripColumns* strips, const Sum* tanhs,
                        In* weights, In* dscores);
  // dq: [count rounded up to rows][key_stride] += dscores · k
  void (*add_dq)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile,
                 const TileMask<Sum>* mask, const StripColumns* strips, const In* dscores, Sum* dq);
};

// Second derivatives, and forward mode: how things move along a direction. A moving thing's name
// begins with t, the direction of an input with u.

// The direction, packed as the block of queries and the tile of keys are.
template <typename In, typename Sum>
struct TileDirection {
  const In* uq;             // [count / rows][head_dim][rows]
  const In* ukeys;          // [head_dim][width], times scale · log2(e)
  const In* uvalues;        // [v_dim][width]
  const Sum* tbias;         // [count][width], the sum of all biases' directions; null: none moves
  const Sum* minus_tlse;    // a number a query; tlse = Σ weights · tscores
  const Sum* minus_tdelta;  // tdelta = Σ dcontext · tcontext
};

// A number for every pair of a block and a tile, each [count rounded up to rows][width].
template <typename In, typename Sum>
struct PairTile {
  const StripColumns* strips;  // as reweigh left them
  const In* weights;           // before dropout
  const Sum* tanhs;            // with a softcap
  In* tweights;
  Sum* tslopes;  // with a softcap: how its slope moves
  In* dscores;
  In* tdscores;
};

template <typename In, typename Sum>
struct SecondKernels {
  // tweights = weights · (tscores − tlse), 0 where hidden, before dropout; and tslopes.
  // tscores = (scale · (uq · k + q · uk)) · slope of the softcap + tbias
  void (*move_weights)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile,
                       const TileMask<Sum>* mask, const TileDirection<In, Sum>& along,
                       const PairTile<In, Sum>& pairs);
  // dscores as BackwardKernels::differentiate has them, and how they move, 0 where hidden.
  // Drops nothing from weights and tweights.
  void (*differentiate)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile,
                        const TileMask<Sum>* mask, const TileDirection<In, Sum>& along,
                        const PairTile<In, Sum>& pairs);
  // sums[r] += the numbers of row r, over the keys that are there.
  void (*add_rows)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile,
                   const StripColumns* strips, const In* numbers, double* sums);
  // What dropout does to a number for every pair; a mask without it: nothing.
  void (*drop)(const QueryBlock<In, Sum>& block, const KeyTile<In>& tile, const TileMask<Sum>* mask,
               const StripColumns* strips, In* numbers);
};

// C += A B for a block of A's rows and one panel of B's columns.
template <typename In, typename Sum>
struct PanelProduct {
  const In* a;  // [row_count / rows][depth][rows]
  const In* b;  // [depth][columns · lanes]
  dim_t depth;
  dim_t row_count;
  dim_t column_count;  // of the panel's columns, those that C has
  int columns;         // vectors in the panel
  Sum* c;              // [row_count][c_stride]
  dim_t c_stride;
  bool begin;       // C is written, not added to
  const Sum* bias;  // [column_count], added to every row, or null
};

template <typename In, typename Sum>
struct GemmKernels {
  int rows;
  int lanes;
  void (*multiply_panel)(const PanelProduct<In, Sum>& product);
};

// One query on its way through keys that are read where they lie, in their storage type.
template <typename T>
struct DecodeQuery {
  const T* q;   // [head_dim], times scale · log2(e)
  T* context;   // [v_dim], not yet divided by sum
  T reference;  // the largest score so far, base 2 or natural; −inf before any
  T sum;        // of 2^(score − reference)
  bool far;     // natural, and scores are rounded (kFarScore)
};

// Up to kKvTile keys and their values, dense rows; `coming` are keys that will be asked for next.
struct DecodeBlock {
  Rows keys;
  Rows values;
  Rows coming;
};

template <typename T>
struct DecodeKernels {
  // The mask has the query in lane 0 and a width of `mask_width`.
  void (*decode)(const DecodeBlock& block, const TileMask<T>* mask, dim_t mask_width,
                 DecodeQuery<T>* query);
};

// Layer norm of `count` dense rows: y = (x − mean) · rstd · weight + bias.
template <typename T>
struct NormRows {
  dim_t count;
  dim_t width;
  T* x;            // [count][width]
  const T* added;  // [count][width], added to x first, or null
  const T* weight;
  const T* bias;
  T epsilon;
  T* y;        // [count][width]
  T* moments;  // [count][2]: mean, rstd; or null
};

// The same rows on the way back: dx += the gradient of x; dweight and dbias too are added to.
template <typename T>
struct NormRowsBackward {
  dim_t count;
  dim_t width;
  const T* x;
  const T* moments;
  const T* weight;
  const T* dy;
  T* dx;
  T* dweight;  // [width]
  T* dbias;    // [width]
};

// What a model does between its products, row by row.
template <typename T>
struct ModelKernels {
  void (*layer_norm)(const NormRows<T>& rows);
  void (*layer_norm_backward)(const NormRowsBackward<T>& rows);
  // y = gelu(x); dx = dy · gelu'(x), which may lie where dy does. `erf`: the exact one.
  void (*gelu)(const T* x, dim_t count, bool erf, T* y);
  void (*gelu_backward)(const T* x, const T* dy, dim_t count, bool erf, T* dx);
  // x[k] = bit k of `kept` ? grown · x[k] : 0, for count <= 64 elements
  void (*keep)(std::uint64_t kept, dim_t count, T grown, T* x);
  void (*add)(const T* x, dim_t count, T* to);  // to += x
};

// The numbers of one step of AdamW that all elements share.
template <typename T>
struct AdamWFactors {
  T kept;  // of the parameter, after weight decay
  T mean_kept, mean_share;
  T square_kept, square_share;
  T root_correction;
  T epsilon;
  T step_size;
};

template <typename T>
struct TrainKernels {
  // −log softmax(logits)[target], and factor · its gradient unless dlogits is null; it may lie
  // where the logits do. A row with NaN, or without a finite largest number, is left alone: NaN.
  double (*cross_entropy)(const T* logits, dim_t count, dim_t target, T factor, T* dlogits);
  void (*adamw)(const AdamWFactors<T>& factors, const T* gradient, dim_t count, T* parameter,
                T* mean, T* mean_square);
  double (*sum_of_squares)(const T* x, dim_t count);
};

// The limits that kernels are measured against.
struct ProbeKernels {
  double step_flops;  // of one step of multiply_add
  // x = x · factor + term in many independent chains, all in registers; returns their sum.
  float (*multiply_add)(dim_t steps, float factor, float term);
  // The sum of count numbers; `ahead` asks the cache for what comes.
  float (*read)(const float* from, dim_t count, bool ahead);
};

}  // namespace cephalo::kernels
