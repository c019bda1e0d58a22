#include "cephalo/learn/ladder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/reference/reference.h"
#include "cephalo/attention/reference/trace_recorder.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"

namespace cephalo {
namespace {

// x3: [batch, tokens, d] -> [batch, 1, tokens, d]
TensorView as_one_head(const TensorView& x3) {
  return {x3.data(),
          x3.dtype(),
          {x3.dim(0), 1, x3.dim(1), x3.dim(2)},
          {x3.strides()[0], 0, x3.strides()[1], x3.strides()[2]}};
}

void check_rank(const TensorView& x, const char* function) {
  require(x.rank() == 2 || x.rank() == 3, "{}: x {} must be [tokens, d] or [batch, tokens, d]",
          function, x.shape());
}

// x: [batch, tokens, d] or [tokens, d], as one head that is its own query, key and value.
AttendResult attend_to_itself(const TensorView& x, StepSink* sink) {
  check_rank(x, "simple_attention");
  const TensorView x3 = with_leading_ones(x, 3);
  const TensorView head = as_one_head(x3);
  if (sink != nullptr) sink->step("x", x3);
  const AttendOptions options{.scale = 1.0, .return_weights = true};
  const Mask none;
  return attend_reference(make_problem(head, head, head, none, options, "simple_attention"), sink);
}

dim_t width_of_all_heads(const HeadWrapperOptions& o) {
  require(o.d_out > 0, "HeadWrapper: d_out ({}) must be > 0", o.d_out);
  require(o.num_heads > 0, "HeadWrapper: num_heads ({}) must be > 0", o.num_heads);
  return checked_mul(o.num_heads, o.d_out);
}

}  // namespace

SimpleAttention simple_attention(const TensorView& x) {
  AttendResult result = attend_to_itself(x, nullptr);
  Shape weights_shape = x.shape();
  weights_shape[-1] = x.dim(-2);
  return {std::move(result.context).reshaped(x.shape()),
          std::move(result.weights).reshaped(weights_shape)};
}

Trace trace_simple_attention(const TensorView& x) {
  TraceRecorder recorder({.title = format_text("simple_attention: width {}", x.dim(-1)),
                          .form = std::nullopt,
                          .has_batch = x.rank() != 2,
                          .one_head = true,
                          .mask = "none"});
  attend_to_itself(x, &recorder);
  return recorder.take();
}

Tensor simple_attention_backward(const TensorView& x, const TensorView& dcontext) {
  check_rank(x, "simple_attention_backward");
  require(dcontext.shape() == x.shape(), "simple_attention_backward: dcontext is {}, x is {}",
          dcontext.shape(), x.shape());
  if (x.numel() == 0) return Tensor::zeros(x.shape(), x.dtype());
  const TensorView head = as_one_head(with_leading_ones(x, 3));
  const AttendOptions options{.scale = 1.0, .return_lse = true};
  const AttendResult forward = attend(head, head, head, {}, options);
  const AttendGradients d =
      attend_backward({forward.context, forward.lse, as_one_head(with_leading_ones(dcontext, 3))},
                      head, head, head, {}, options);
  return add(add(d.dq, d.dk), d.dv).reshaped(x.shape());
}

SelfAttention::SelfAttention(const SelfAttentionOptions& o)
    : MultiHeadAttention({.d_in = o.d_in,
                          .d_out = o.d_out,
                          .qkv_bias = o.qkv_bias,
                          .out_proj = false,
                          .causal = false,
                          .seed = o.seed,
                          .generator = o.generator,
                          .form = o.form,
                          .dtype = o.dtype},
                         Rung{.name = "SelfAttention", .one_head = true}) {}

CausalAttention::CausalAttention(const CausalAttentionOptions& o)
    : MultiHeadAttention({.d_in = o.d_in,
                          .d_out = o.d_out,
                          .context_length = o.context_length,
                          .dropout = o.dropout,
                          .qkv_bias = o.qkv_bias,
                          .out_proj = false,
                          .seed = o.seed,
                          .generator = o.generator,
                          .dropout_stream = o.dropout_stream,
                          .dtype = o.dtype},
                         Rung{.name = "CausalAttention", .one_head = true}) {}

HeadWrapper::HeadWrapper(const HeadWrapperOptions& o)
    : MultiHeadAttention({.d_in = o.d_in,
                          .d_out = width_of_all_heads(o),
                          .context_length = o.context_length,
                          .dropout = o.dropout,
                          .num_heads = o.num_heads,
                          .qkv_bias = o.qkv_bias,
                          .out_proj = o.out_proj,
                          .seed = o.seed,
                          .generator = o.generator,
                          .form = Form::heads,
                          .dropout_stream = o.dropout_stream,
                          .dtype = o.dtype},
                         Rung{.name = "HeadWrapper", .list_of_heads = true}) {}

EasyMultiHeadAttention::EasyMultiHeadAttention(const EasyMultiHeadAttentionOptions& o)
    : MultiHeadAttention({.d_in = o.d_model,
                          .d_out = o.d_model,
                          .num_heads = o.num_heads,
                          .qkv_bias = true,
                          .causal = false,
                          .seed = o.seed,
                          .generator = o.generator,
                          .form = Form::linear,
                          .dtype = o.dtype},
                         Rung{.name = "EasyMultiHeadAttention", .width = "d_model"}) {}

FastMultiHeadAttention::FastMultiHeadAttention(const FastMultiHeadAttentionOptions& o)
    : MultiHeadAttention({.d_in = o.d_model,
                          .d_out = o.d_model,
                          .num_heads = o.num_heads,
                          .qkv_bias = true,
                          .causal = false,
                          .seed = o.seed,
                          .generator = o.generator,
                          .form = Form::joined,
                          .dtype = o.dtype},
                         Rung{.name = "FastMultiHeadAttention", .width = "d_model"}) {}

Tensor FastMultiHeadAttention::operator()(const TensorView& x, const TensorView& mask) const {
  return (*this)(x, CallOptions{.mask = keep(Tensor::copy(mask, DType::boolean))});
}

TrainResult FastMultiHeadAttention::forward_train(const TensorView& x,
                                                  const TensorView& mask) const {
  return forward_train(x, CallOptions{.mask = keep(Tensor::copy(mask, DType::boolean))});
}

}  // namespace cephalo
