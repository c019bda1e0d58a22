#pragma once

#include <cstdint>
#include <span>

#include "cephalo/core/tensor.h"
#include "cephalo/linear/epilogue.h"
#include "cephalo/linear/packed_linear.h"
#include "cephalo/linear/project_backward.h"

// What a model does besides attention, and its training: each op is declared once and computed
// where its tensors lie. Tensors on two devices are an error that names both; so is a device that
// has no implementation. Shapes and types are the caller's to check. Rows are dense, in float32 or
// float64, and where a tensor may be left out it is of shape [0].
//
// An order of sums that sizes alone decide: the same bits for any number of threads.
namespace cephalo::ops {

// x: [rows, d_in], any strides -> out: [rows, width] = x weightᵀ + bias, and the epilogue
void linear(const PackedLinear& weight, const TensorView& x, const MutableTensorView& out,
            const Epilogue& epilogue = {});
void linear_backward(const Projection& forward, const ProjectionGradients& gradients);

// Heads of all rows.
void rotate(const Rotation& rotation);

// y = (x − mean) / √(variance + epsilon) · weight + bias, after x += added.
struct Norm {
  MutableTensorView x;      // [rows, width]
  TensorView added;         // [rows, width], or nothing
  TensorView weight, bias;  // [width]
  double epsilon;
  MutableTensorView y;        // [rows, width]
  MutableTensorView moments;  // [rows, 2]: mean and 1 / √(variance + epsilon); or not wanted
};
void norm(const Norm& rows);

struct NormBackward {
  TensorView x;                      // [rows, width], as the norm saw it
  TensorView moments;                // [rows, 2]
  TensorView weight;                 // [width]
  TensorView dy;                     // [rows, width]
  MutableTensorView dx;              // [rows, width]: added to
  MutableTensorView dweight, dbias;  // [width]: added to
};
void norm_backward(const NormBackward& rows);

// x = token[id] + position[first + t]
struct Embed {
  TensorView token;     // [vocab_size, width]
  TensorView position;  // [context_length, width], or none
  TensorView ids;       // [batch, tokens], int64
  dim_t first;
  MutableTensorView x;  // [batch · tokens, width]
};
void embed(const Embed& rows);

// In the order of ids, dx is added to the rows that x was made from.
struct EmbedBackward {
  TensorView ids;              // [batch, tokens], int64
  TensorView dx;               // [batch · tokens, width]
  MutableTensorView token;     // [vocab_size, width]: added to
  MutableTensorView position;  // [context_length, width]: added to; or none
};
void embed_backward(const EmbedBackward& rows);

// Attention to two sets of keys as attention to both at once: contexts are weighed by exp(lse).
struct JoinContexts {
  MutableTensorView context;  // [batch · tokens, num_heads · head_dim], and what comes of it
  TensorView lse;             // [batch, num_heads, tokens]
  TensorView other;           // the shape of context
  TensorView other_lse;       // the shape of lse
};
void join_contexts(const JoinContexts& rows);

// Dropout as a function of seed, place, row and column. The same on a gradient is the way back.
struct Drop {
  double probability;  // in (0, 1); what stays grows by 1 / (1 − probability)
  std::uint64_t seed;
  std::uint32_t place;  // tells the dropouts of one pass apart
  dim_t first_row;      // what x's first row is called
  MutableTensorView x;  // [rows, width]
};
void drop(const Drop& rows);

// losses[row] = −log softmax(logits)[target], 0 where the target is ignored.
struct CrossEntropy {
  TensorView logits;   // [rows, vocab_size], any strides
  TensorView targets;  // [rows], int64
  std::int64_t ignore_index;
  double factor;              // of the gradient
  MutableTensorView losses;   // [rows], float64
  MutableTensorView dlogits;  // as logits, which may be overwritten; or not wanted
};
void cross_entropy(const CrossEntropy& rows);

// One step of AdamW; parameter and gradient have any strides.
struct AdamW {
  MutableTensorView parameter;
  TensorView gradient;
  MutableTensorView mean, mean_square;
  double kept;  // of the parameter, after weight decay
  double mean_kept, mean_share;
  double square_kept, square_share;
  double root_correction;
  double epsilon;
  double step_size;
};
void adamw(const AdamW& step);

// One step of SGD; parameter and gradient have any strides.
struct Sgd {
  MutableTensorView parameter;
  TensorView gradient;
  MutableTensorView direction;  // none without momentum
  bool first;                   // the direction holds nothing yet
  double learning_rate;
  double momentum;
  double weight_decay;
  bool nesterov;
};
void sgd(const Sgd& step);

// x: any shape and strides -> total: [], float64
void sum_of_squares(const TensorView& x, const MutableTensorView& total);
// The sums of its pieces, which total adds up in this order: kSquaresPiece elements each, but the
// last. sums: [pieces], float64
inline constexpr dim_t kSquaresPiece = 8192;
void sums_of_squares(const TensorView& x, const MutableTensorView& sums);

// x: [rows, width], dense -> norms: [rows], float64: the length of each row
void row_norms(const TensorView& x, const MutableTensorView& norms);

// x: any shape and strides, times factor, which is rounded to x's type first
void scale(const MutableTensorView& x, double factor);

// to += from: one shape and type, dense
void add(const TensorView& from, const MutableTensorView& to);

// Dense tensors of any type.
void zero(std::span<const MutableTensorView> tensors);
inline void zero(const MutableTensorView& tensor) {
  zero(std::span(&tensor, 1));
}

// One shape, any strides and types. Between the host and a device it is the device's to do.
void copy(const TensorView& from, const MutableTensorView& to);

}  // namespace cephalo::ops
