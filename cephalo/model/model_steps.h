#pragma once

// Inside the library only.
#include <optional>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/linear/packed_linear.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/packed_mlp.h"

namespace cephalo {

// Rows [first, first + tokens) of `batch` sequences that walk through a model together.
struct StepRows {
  dim_t batch = 0;
  dim_t tokens = 0;
  dim_t first = 0;  // position of each sequence's first row here
  dim_t rows() const { return batch * tokens; }
};

// Columns of the rows that a layer projects to: q, k and v of a token in one row.
struct QkvHeads {
  MutableTensorView q;  // [batch, num_heads, tokens, head_dim]
  MutableTensorView k;  // [batch, num_kv_heads, tokens, head_dim]
  MutableTensorView v;  // [batch, num_kv_heads, tokens, head_dim]
};

// The same of rows that hold k and v alone.
struct KvHeads {
  MutableTensorView k;  // [batch, num_kv_heads, tokens, head_dim]
  MutableTensorView v;  // [batch, num_kv_heads, tokens, head_dim]
};

// The steps of a Gpt one by one, on rows of the caller's, for walks that keep, replace or leave out
// some of them. Matrices are laid out once, for any number of walks. Every step has the arithmetic
// of Gpt's own pass, and none depends on how many sequences go along: the same bits. (Attention of
// some rows alone rounds its sums in another order than that of all.) All tensors are dense and of
// the parameters' type. The model must live as long, unchanged.
class ModelSteps {
 public:
  explicit ModelSteps(const Gpt& model);

  const GptOptions& options() const;
  const Gpt& model() const { return *model_; }
  dim_t qkv_width() const;

  // ids: [batch, tokens], int64, checked -> x: [rows, d_model]
  void embed(const TensorView& ids, dim_t first, const MutableTensorView& x) const;
  // Token and position apart; position: of shape [0] where there is no table. [rows, d_model]
  void embed_apart(const TensorView& ids, dim_t first, const MutableTensorView& token,
                   const MutableTensorView& position) const;
  bool has_position_embedding() const;

  // x += added, unless that is of shape [0]; y = norm(x): [rows, d_model].
  // moments: [rows, 2], mean and 1 / √(variance + epsilon); of shape [0]: not wanted.
  struct Normed {
    MutableTensorView x;
    TensorView added = {};
    MutableTensorView y = {};
    MutableTensorView moments = {};
  };
  void norm_1(dim_t layer, const Normed& rows) const;
  void norm_2(dim_t layer, const Normed& rows) const;
  void last_norm(const Normed& rows) const;

  // normed: [rows, d_model] -> qkv: [rows, qkv_width()], before rotary
  void project(dim_t layer, const TensorView& normed, const MutableTensorView& qkv) const;
  // Heads of such rows, as views.
  QkvHeads heads(const MutableTensorView& qkv, const StepRows& rows) const;
  // q and k in place, by their positions; nothing where the model has no rotary.
  void rotate(const QkvHeads& heads, const StepRows& rows) const;
  // The same of q or k alone: [batch, heads, tokens, head_dim].
  void rotate(const MutableTensorView& heads, const StepRows& rows) const;
  // project and rotate in one, as Gpt does it
  void project_rotated(dim_t layer, const TensorView& normed, const MutableTensorView& qkv,
                       const StepRows& rows) const;

  // The last layer in halves, for walks that want few rows of it: all keys and values, some
  // queries. normed: [rows, d_model] -> kv: [rows, 2 · kv_width], q: [rows, d_model], both before
  // rotary
  void project_last_kv(const TensorView& normed, const MutableTensorView& kv) const;
  void project_last_q(const TensorView& normed, const MutableTensorView& q) const;
  // Heads of rows of width d_model, q or a context, and of rows of width 2 · kv_width.
  MutableTensorView query_heads(const MutableTensorView& rows, dim_t batch) const;
  KvHeads kv_heads(const MutableTensorView& rows, dim_t batch) const;

  // Causal, the last query at the last key. q: [batch, num_heads, q_tokens, head_dim],
  // k, v: [batch, num_kv_heads, kv_tokens, head_dim] -> context: [batch · q_tokens, d_model], heads
  // merged; lse: [batch, num_heads, q_tokens], or of shape [0]
  void attend(const TensorView& q, const TensorView& k, const TensorView& v,
              const MutableTensorView& context, const MutableTensorView& lse = {}) const;

  // context: [rows, d_model] -> y: [rows, d_model] = context W_outᵀ + bias
  void project_out(dim_t layer, const TensorView& context, const MutableTensorView& y) const;
  // dcontext: [rows, head_dim], a change of one head's context -> x: [rows, d_model] += what that
  // changes in the stream
  void add_projected(dim_t layer, dim_t head, const TensorView& dcontext,
                     const MutableTensorView& x) const;
  TensorView out_weight(dim_t layer) const;  // [d_model, d_model]: [out, heads merged]
  TensorView out_bias(dim_t layer) const;    // [d_model]

  // normed: [rows, d_model] -> hidden, active: [rows, d_mlp], which may be the same memory;
  // y: [rows, d_model]
  void mlp(dim_t layer, const TensorView& normed, const MutableTensorView& hidden,
           const MutableTensorView& active, const MutableTensorView& y) const;
  void mlp_hidden(dim_t layer, const TensorView& normed, const MutableTensorView& hidden,
                  const MutableTensorView& active) const;
  // hidden: [rows, d_mlp] -> active, as mlp_hidden leaves it
  void activate(dim_t layer, const MutableTensorView& hidden,
                const MutableTensorView& active) const;
  void mlp_out(dim_t layer, const TensorView& active, const MutableTensorView& y) const;

  // normed: [rows, d_model], after the last norm -> logits: [rows, vocab_size]
  void logits(const TensorView& normed, const MutableTensorView& logits) const;
  TensorView head_weight() const;  // [vocab_size, d_model]
  TensorView last_norm_weight() const;
  TensorView last_norm_bias() const;

 private:
  struct Layer {
    PackedLinear qkv;
    PackedLinear out;
    std::vector<PackedLinear> heads;  // each head's columns of the same matrix, without bias
    Mlp::Packed mlp;
  };

  const Gpt* model_;
  const GptLayers* parts_;
  std::vector<Layer> layers_;
  std::optional<PackedLinear> last_q_, last_kv_;  // parts of the last layer's qkv
  std::optional<PackedLinear> head_;
};

}  // namespace cephalo
