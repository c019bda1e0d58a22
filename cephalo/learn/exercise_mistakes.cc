#include "cephalo/learn/exercise_mistakes.h"

#include <cmath>
#include <limits>
#include <utility>

#include "cephalo/core/ops.h"

namespace cephalo {
namespace {

using Mistakes = std::vector<Mistake>;

constexpr double kHidden = -std::numeric_limits<double>::infinity();

Tensor reshaped(const TensorView& t, const Shape& shape) {
  return Tensor::copy(view(t, shape));
}

// t: [batch, num_heads, q_tokens, kv_tokens], softmax along any axis
Tensor softmax_over(const TensorView& t, int axis) {
  const Tensor moved = softmax(transpose(t, axis, 3));
  return Tensor::copy(transpose(moved, axis, 3));
}

// [tokens, tokens], 1 where key - query >= diagonal: 1 is the future, 0 the present as well
Tensor future(const Exercise& e, dim_t diagonal) {
  return triu(Tensor::full({e.tokens, e.tokens}, 1.0), diagonal);
}

double scale_of(const Exercise& e) {
  return 1.0 / std::sqrt(static_cast<double>(e.head_dim));
}

void add(Mistakes& list, Tensor value, const char* text) {
  list.push_back({std::move(value), text});
}

Mistakes in_project(const Trace& trace) {
  Mistakes list;
  add(list, Tensor::copy(trace.at("k").value), "this is k, made with W_key; q needs W_query");
  add(list, Tensor::copy(trace.at("v").value), "this is v, made with W_value; q needs W_query");
  return list;
}

Mistakes in_split(const Trace& trace, const Exercise& e) {
  Mistakes list;
  const TensorView q = trace.at("q").value;
  const TensorView other = view(q, {e.batch, e.tokens, e.head_dim, e.num_heads});
  add(list, Tensor::copy(transpose(other, 2, 3)),
      "the last axis was cut the other way round: a head is head_dim neighbours, so number "
      "h * head_dim + d of a row is element d of head h");
  const Tensor mixed = reshaped(q, {e.batch, e.num_heads, e.tokens, e.head_dim});
  add(list, Tensor::copy(transpose(mixed, 1, 2)),
      "heads are mixed up: view as [batch, tokens, num_heads, head_dim], tokens before num_heads");
  return list;
}

Mistakes in_transpose(const Trace& trace, const Exercise& e) {
  Mistakes list;
  add(list, reshaped(trace.at("q").value, {e.batch, e.num_heads, e.tokens, e.head_dim}),
      "heads are mixed up: view (reshape) put the numbers in this shape without moving an axis; "
      "transpose axes 1 and 2 of the split array");
  add(list, Tensor::copy(trace.at("k_heads").value), "these are the heads of k; give those of q");
  return list;
}

Mistakes in_scores(const Trace& trace, const Exercise& e) {
  Mistakes list;
  const TensorView q = trace.at("q_heads").value;
  const TensorView k = trace.at("k_heads").value;
  add(list, multiply(trace.at("scores").value, scale_of(e)),
      "these are scaled already: in this exercise the scale comes with softmax");
  add(list, matmul(q, transpose(q, 2, 3)), "this is q times q: the other factor is k");
  const TensorView v = trace.at("v_heads").value;
  add(list, matmul(q, transpose(v, 2, 3)), "this is q times v: scores come from q and k");
  add(list, matmul(k, transpose(k, 2, 3)), "this is k times k: the first factor is q");
  const Shape heads{e.batch, e.num_heads, e.tokens, e.head_dim};
  const Tensor q_mixed = reshaped(trace.at("q").value, heads);
  const Tensor k_mixed = reshaped(trace.at("k").value, heads);
  add(list, matmul(q_mixed, transpose(k_mixed, 2, 3)),
      "heads are mixed up: q and k were viewed as [batch, num_heads, ...] without a transpose");
  return list;
}

Mistakes in_mask(const Trace& trace, const Exercise& e) {
  Mistakes list;
  const TensorView scores = trace.at("scores").value;
  const Tensor ones = Tensor::full({e.tokens, e.tokens}, 1.0);
  const Tensor hidden = future(e, 1);
  const Tensor past = masked_fill(ones, future(e, 0), 0.0);
  add(list, Tensor::copy(scores), "nothing is hidden yet: fill with -inf where key > query");
  add(list, masked_fill(scores, past, kHidden),
      "the past is hidden, the future is to be: fill where key > query (triu, diagonal 1)");
  add(list, masked_fill(scores, future(e, 0), kHidden),
      "the diagonal is hidden too: a token may look at itself (triu with diagonal 1, not 0)");
  add(list, masked_fill(scores, hidden, 0.0),
      "hidden scores are 0; exp(0) is 1, so they would still be looked at: fill with -inf");
  add(list, masked_fill(scores, masked_fill(ones, hidden, 0.0), kHidden),
      "the mask is upside down: what may be looked at is hidden");
  return list;
}

Mistakes in_softmax(const Trace& trace, const Exercise& e) {
  Mistakes list;
  const TensorView scores = trace.at("scores").value;
  const TensorView masked = trace.at("scores_masked").value;
  const TensorView scaled = trace.at("scores_scaled").value;
  const Tensor unmasked = softmax(multiply(scores, scale_of(e)));
  const double width = static_cast<double>(e.head_dim);
  add(list, softmax(masked), "the scale was forgotten: divide by sqrt(head_dim) before softmax");
  add(list, softmax(multiply(masked, 1.0 / width)),
      "divided by head_dim; the scale is its square root");
  add(list, softmax(multiply(masked, 1.0 / std::sqrt(static_cast<double>(e.d_out)))),
      "divided by sqrt(d_out); the scale is that of one head, sqrt(head_dim)");
  add(list, softmax_over(scaled, 2),
      "softmax over the wrong axis: axis 2 (q_tokens); the keys of one query sum to 1, axis 3");
  add(list, softmax_over(scaled, 1), "softmax over the wrong axis: axis 1 (num_heads), not 3");
  add(list, Tensor::copy(unmasked),
      "the mask was not applied: softmax takes the masked scores, not the plain ones");
  add(list, softmax(scores), "neither mask nor scale was applied before softmax");
  add(list, masked_fill(unmasked, future(e, 1), 0.0),
      "the mask was applied after softmax: the rows no longer sum to 1");
  add(list, Tensor::copy(scaled), "this is scaled, but softmax was not taken yet");
  return list;
}

Mistakes in_values(const Trace& trace, const Exercise& e) {
  Mistakes list;
  const TensorView weights = trace.at("weights").value;
  const TensorView v = trace.at("v_heads").value;
  add(list, matmul(weights, trace.at("k_heads").value), "multiplied with k; what is mixed is v");
  add(list, matmul(weights, trace.at("q_heads").value), "multiplied with q; what is mixed is v");
  add(list, matmul(transpose(weights, 2, 3), v),
      "the weights are transposed: each row of weights (a query) mixes the rows of v");
  add(list, matmul(softmax(trace.at("scores_masked").value), v),
      "the weights were made without the scale sqrt(head_dim)");
  add(list, matmul(softmax(multiply(trace.at("scores").value, scale_of(e))), v),
      "the weights were made without the mask");
  const Shape heads{e.batch, e.num_heads, e.tokens, e.head_dim};
  add(list, matmul(weights, reshaped(trace.at("v").value, heads)),
      "heads of v are mixed up: it was viewed as [batch, num_heads, ...] without a transpose");
  return list;
}

// Rows of [batch, tokens, d_out] that take numbers of several tokens.
Tensor mixed_rows(const Trace& trace, const Exercise& e) {
  return reshaped(trace.at("context_heads").value, {e.batch, e.tokens, e.d_out});
}

Mistakes in_concat(const Trace& trace, const Exercise& e) {
  Mistakes list;
  add(list, mixed_rows(trace, e),
      "heads are mixed up: view (reshape) without transpose; first exchange axes 1 and 2, make it "
      "contiguous, then view");
  const TensorView heads = trace.at("context_heads").value;
  const Tensor last = Tensor::copy(permute(heads, {0, 2, 3, 1}));
  add(list, reshaped(last, {e.batch, e.tokens, e.d_out}),
      "the numbers of the heads alternate: num_heads has to come before head_dim, each head's "
      "numbers side by side");
  return list;
}

Mistakes in_output(const Trace& trace, const Exercise& e) {
  Mistakes list;
  const TensorView context = trace.at("context").value;
  const Tensor turned = Tensor::copy(transpose(e.out_weight, 0, 1));
  add(list, Tensor::copy(context), "out_proj was not applied: this is the context itself");
  add(list, linear(context, e.out_weight), "the bias is missing: add out_bias");
  add(list, linear(context, turned, e.out_bias),
      "out_weight is transposed: it is out x in, so context @ out_weight.T, as linear does");
  add(list, linear(context, turned), "out_weight is transposed and out_bias is missing");
  add(list, linear(mixed_rows(trace, e), e.out_weight, e.out_bias),
      "the heads were mixed up before: transpose before concat");
  return list;
}

}  // namespace

std::vector<Mistake> mistakes_of(const std::string& step, const Trace& trace, const Exercise& e) {
  if (step == "project") return in_project(trace);
  if (step == "split") return in_split(trace, e);
  if (step == "transpose") return in_transpose(trace, e);
  if (step == "scores") return in_scores(trace, e);
  if (step == "mask") return in_mask(trace, e);
  if (step == "softmax") return in_softmax(trace, e);
  if (step == "values") return in_values(trace, e);
  if (step == "concat") return in_concat(trace, e);
  return in_output(trace, e);
}

}  // namespace cephalo
