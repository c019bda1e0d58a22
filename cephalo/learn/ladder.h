#pragma once

#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/model/presets.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The ladder from no parameters to the fused layer. Rungs 2 to 7 are set-ups of MultiHeadAttention;
// seed, generator, dropout_stream and dtype mean the same in each.

// Rung 1: weights = softmax(x xᵀ), context = weights x. x: [tokens, d] or [batch, tokens, d]
struct SimpleAttention {
  Tensor context;  // x's shape
  Tensor weights;  // [tokens, tokens] or [batch, tokens, tokens]
};
SimpleAttention simple_attention(const TensorView& x);
Trace trace_simple_attention(const TensorView& x);
// dcontext: x's shape -> dx, x's shape: x is query, key and value at once. float32 or float64.
Tensor simple_attention_backward(const TensorView& x, const TensorView& dcontext);

// Rung 2: one head, nothing hidden. Form::raw stores W_query … in × out and draws torch.rand.
struct SelfAttentionOptions {
  dim_t d_in = 0;
  dim_t d_out = 0;
  bool qkv_bias = false;
  Form form = Form::separate;
  std::optional<std::uint64_t> seed = {};
  TorchGenerator* generator = nullptr;
  DType dtype = DType::f32;
};
struct SelfAttention : MultiHeadAttention {
  explicit SelfAttention(const SelfAttentionOptions& options);
};

// Rung 3: one head, the future hidden, dropout, an error past context_length.
struct CausalAttentionOptions {
  dim_t d_in = 0;
  dim_t d_out = 0;
  dim_t context_length = 0;
  double dropout = 0.0;
  bool qkv_bias = false;
  std::optional<std::uint64_t> seed = {};
  TorchGenerator* generator = nullptr;
  DropoutStream dropout_stream = DropoutStream::counter;
  DType dtype = DType::f32;
};
struct CausalAttention : MultiHeadAttention {
  explicit CausalAttention(const CausalAttentionOptions& options);
};
using CausalSelfAttention = CausalAttention;

// Rung 4: num_heads rung-3 heads side by side, concatenated: num_heads · d_out wide.
struct HeadWrapperOptions {
  dim_t d_in = 0;
  dim_t d_out = 0;  // of one head
  dim_t context_length = 0;
  double dropout = 0.0;
  dim_t num_heads = 1;
  bool qkv_bias = false;
  bool out_proj = false;
  std::optional<std::uint64_t> seed = {};
  TorchGenerator* generator = nullptr;
  DropoutStream dropout_stream = DropoutStream::counter;
  DType dtype = DType::f32;
};
struct HeadWrapper : MultiHeadAttention {
  explicit HeadWrapper(const HeadWrapperOptions& options);
};

// Rung 5 is MultiHeadAttention itself.

// Rung 6: no mask, projections with bias named q_linear k_linear v_linear out_proj.
struct EasyMultiHeadAttentionOptions {
  dim_t d_model = 8;
  dim_t num_heads = 2;
  std::optional<std::uint64_t> seed = {};
  TorchGenerator* generator = nullptr;
  DType dtype = DType::f32;
};
struct EasyMultiHeadAttention : MultiHeadAttention {
  explicit EasyMultiHeadAttention(const EasyMultiHeadAttentionOptions& options);
};
using MultiHeadSelfAttention = EasyMultiHeadAttention;

// Rung 7: one projection of 3 · d_model for q, k and v, with bias. Here alone a bare tensor is a
// mask: 0 = hidden, of any element type, broadcast as keep() does.
struct FastMultiHeadAttentionOptions {
  dim_t d_model = 0;
  dim_t num_heads = 1;
  std::optional<std::uint64_t> seed = {};
  TorchGenerator* generator = nullptr;
  DType dtype = DType::f32;
};
struct FastMultiHeadAttention : MultiHeadAttention {
  explicit FastMultiHeadAttention(const FastMultiHeadAttentionOptions& options);
  using MultiHeadAttention::operator();
  Tensor operator()(const TensorView& x, const TensorView& mask) const;
  using MultiHeadAttention::forward_train;
  TrainResult forward_train(const TensorView& x, const TensorView& mask) const;
};

}  // namespace cephalo
#pragma GCC visibility pop
