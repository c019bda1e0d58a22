#include "cephalo/effects/run.h"

#include <utility>

#include "cephalo/attention/layer/fused_layer.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/effects/taps.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/gpt_pass.h"
#include "cephalo/model/model_steps.h"

namespace cephalo {
namespace {

// x: [rows, width] += added, both with dense rows, as a norm adds what it is given
void add_rows(const TensorView& added, const MutableTensorView& x) {
  const auto add_to = [&](auto zero) {
    using T = decltype(zero);
    for (dim_t row = 0; row < x.dim(0); ++row) {
      const T* from = added[row].data_as<T>();
      T* to = x[row].mutable_data_as<T>();
      for (dim_t d = 0; d < x.dim(1); ++d) to[d] += from[d];
    }
  };
  x.dtype() == DType::f64 ? add_to(double{}) : add_to(float{});
}

// moments: [rows, 2] -> √(variance + epsilon): [rows, 1]
Tensor scale_of(const TensorView& moments) {
  Tensor scale = Tensor::empty({moments.dim(0), 1}, moments.dtype());
  for (dim_t row = 0; row < moments.dim(0); ++row) {
    scale.set({row, 0}, 1.0 / moments.at({row, 1}));
  }
  return scale;
}

// y = (x − mean) / scale · weight + bias, with a scale that is not the norm's own.
// x, y: [rows, d_model]; moments: [rows, 2]; scale: [rows, 1]
template <typename T>
void norm_scaled(const LayerNorm& norm, const TensorView& x, const TensorView& moments,
                 const TensorView& scale, const MutableTensorView& y) {
  const T* weight = norm.weight.data_as<T>();
  const T* bias = norm.bias.data_as<T>();
  for (dim_t row = 0; row < x.dim(0); ++row) {
    const T mean = moments.data_as<T>()[2 * row];
    const T by = scale.data_as<T>()[row];
    const T* from = x[row].data_as<T>();
    T* to = y[row].mutable_data_as<T>();
    for (dim_t d = 0; d < x.dim(1); ++d) to[d] = (from[d] - mean) / by * weight[d] + bias[d];
  }
}

// One pass of ids: [batch, tokens], int64, checked, past the taps.
class Run {
 public:
  Run(const ModelSteps& steps, const TensorView& ids, Taps& taps)
      : steps_(steps),
        parts_(layers_of(steps.model())),
        options_(steps.options()),
        ids_(ids),
        taps_(taps),
        rows_{ids.dim(0), ids.dim(1), 0},
        x_(rows_of(options_.d_model)),
        normed_(rows_of(options_.d_model)),
        qkv_(rows_of(steps.qkv_width())),
        context_(rows_of(options_.d_model)),
        y_(rows_of(options_.d_model)),
        active_(rows_of(options_.d_mlp)) {}

  Tensor logits() {
    embed();
    for (dim_t layer = 0; layer < options_.num_layers; ++layer) {
      taps_.pass(Site::resid_pre, layer, sequences(x_));
      attention(layer);
      add_rows(y_, x_);
      taps_.pass(Site::resid_mid, layer, sequences(x_));
      mlp(layer);
      add_rows(y_, x_);
      taps_.pass(Site::resid_post, layer, sequences(x_));
    }
    norm(parts_.norm, Site::last_norm_scale, Site::last_norm, 0);
    Tensor logits = rows_of(options_.vocab_size);
    steps_.logits(normed_, logits);
    taps_.pass(Site::logits, 0, sequences(logits));
    return std::move(logits).reshaped({rows_.batch, rows_.tokens, options_.vocab_size});
  }

 private:
  Tensor rows_of(dim_t width) const { return Tensor::empty({rows_.rows(), width}, options_.dtype); }

  // rows: [batch · tokens, width] -> [batch, tokens, width], the same memory
  MutableTensorView sequences(const MutableTensorView& rows) const {
    return {rows.mutable_data(), rows.dtype(), {rows_.batch, rows_.tokens, rows.dim(1)}};
  }

  const Block& block(dim_t layer) const { return parts_.blocks[static_cast<std::size_t>(layer)]; }

  // -> x
  void embed() {
    if (!taps_.wanted(Site::token_embedding, 0) && !taps_.wanted(Site::position_embedding, 0)) {
      return steps_.embed(ids_, 0, x_);
    }
    const bool has_position = steps_.has_position_embedding();
    Tensor position = has_position ? rows_of(options_.d_model) : Tensor();
    steps_.embed_apart(ids_, 0, x_, position);
    taps_.pass(Site::token_embedding, 0, sequences(x_));
    if (!has_position) return;
    taps_.pass(Site::position_embedding, 0, sequences(position));
    add_rows(position, x_);
  }

  // x -> normed
  void norm(const LayerNorm& norm, Site scale_site, Site site, dim_t layer) {
    if (!taps_.wanted(scale_site, layer)) {
      norm.forward_into({x_, {}, normed_, {}});
    } else {
      Tensor moments = rows_of(2);
      norm.forward_into({x_, {}, normed_, moments});
      Tensor scale = scale_of(moments);
      taps_.pass(scale_site, layer, sequences(scale));
      if (taps_.replaced(scale_site, layer)) {
        options_.dtype == DType::f64 ? norm_scaled<double>(norm, x_, moments, scale, normed_)
                                     : norm_scaled<float>(norm, x_, moments, scale, normed_);
      }
    }
    taps_.pass(site, layer, sequences(normed_));
  }

  // x -> y, what attention adds
  void attention(dim_t layer) {
    norm(block(layer).norm_1, Site::norm_1_scale, Site::norm_1, layer);
    steps_.project(layer, normed_, qkv_);
    const QkvHeads heads = steps_.heads(qkv_, rows_);
    taps_.pass(Site::q, layer, heads.q);
    taps_.pass(Site::k, layer, heads.k);
    taps_.pass(Site::v, layer, heads.v);
    steps_.rotate(heads, rows_);
    taps_.pass(Site::rotated_q, layer, heads.q);
    taps_.pass(Site::rotated_k, layer, heads.k);
    attend(layer, heads);
    taps_.pass(Site::context, layer, context_heads());
    project_out(layer);
    taps_.pass(Site::attention_out, layer, sequences(y_));
  }

  // The context by heads: [batch, num_heads, tokens, head_dim], the same memory.
  MutableTensorView context_heads() {
    return heads_of(context_, rows_.batch, 0, options_.num_heads, options_.head_dim());
  }

  // q, k, v -> context. Scores and weights are there only where they are wanted.
  void attend(dim_t layer, const QkvHeads& heads) {
    const bool wants_weights = taps_.wanted(Site::weights, layer);
    Tensor lse;
    if (wants_weights) {
      lse = Tensor::empty({rows_.batch, options_.num_heads, rows_.tokens}, options_.dtype);
    }
    steps_.attend(heads.q, heads.k, heads.v, context_, lse);
    Tensor weights;
    if (taps_.wanted(Site::scores, layer)) {
      AttendOptions all;
      all.return_scores = ScoresTap::masked;
      Tensor scores = cephalo::attend(heads.q, heads.k, heads.v, causal(), all).scores;
      taps_.pass(Site::scores, layer, scores);
      if (taps_.replaced(Site::scores, layer)) weights = softmax(scores);
    }
    if (wants_weights) {
      if (weights.numel() == 0) weights = cephalo::weights(heads.q, heads.k, lse, causal());
      taps_.pass(Site::weights, layer, weights);
    }
    if (taps_.replaced(Site::scores, layer) || taps_.replaced(Site::weights, layer)) {
      weigh_values(weights, heads.v);
    }
  }

  // context = weights · v. weights: [batch, num_heads, tokens, tokens],
  // v: [batch, num_kv_heads, tokens, head_dim]
  void weigh_values(const TensorView& weights, const TensorView& v) {
    const dim_t group = options_.num_heads / options_.num_kv_heads;
    const MutableTensorView context = context_heads();
    for (dim_t b = 0; b < rows_.batch; ++b) {
      for (dim_t h = 0; h < options_.num_heads; ++h) {
        const TensorView values = v[b][h / group];
        const PackedLinear columns(transpose(values, 0, 1), {}, options_.dtype);
        ops::linear(columns, weights[b][h], context[b][h]);
      }
    }
  }

  // context -> y
  void project_out(dim_t layer) {
    steps_.project_out(layer, context_, y_);
    if (!taps_.wanted(Site::head_out, layer)) return;
    Tensor outs = head_outs(layer);
    taps_.pass(Site::head_out, layer, outs);
    if (!taps_.replaced(Site::head_out, layer)) return;
    y_.mutable_view().copy_from(broadcast_to(steps_.out_bias(layer), y_.shape()));
    for (dim_t b = 0; b < rows_.batch; ++b) {
      for (dim_t h = 0; h < options_.num_heads; ++h) add_rows(outs[b][h], sequences(y_)[b]);
    }
  }

  // What each head adds: [batch, num_heads, tokens, d_model].
  Tensor head_outs(dim_t layer) {
    const dim_t dim = options_.head_dim();
    const MutableTensorView context = context_heads();
    Tensor outs = Tensor::empty({rows_.batch, options_.num_heads, rows_.tokens, options_.d_model},
                                options_.dtype);
    for (dim_t h = 0; h < options_.num_heads; ++h) {
      const TensorView columns = steps_.out_weight(layer).slice(1, h * dim, (h + 1) * dim);
      const PackedLinear out(columns, {}, options_.dtype);
      for (dim_t b = 0; b < rows_.batch; ++b) {
        ops::linear(out, context[b][h], outs.mutable_view()[b][h]);
      }
    }
    return outs;
  }

  // x -> y, what the MLP adds
  void mlp(dim_t layer) {
    norm(block(layer).norm_2, Site::norm_2_scale, Site::norm_2, layer);
    if (!taps_.wanted(Site::mlp_hidden, layer)) {
      steps_.mlp_hidden(layer, normed_, active_, active_);
    } else {
      Tensor hidden = rows_of(options_.d_mlp);
      steps_.mlp_hidden(layer, normed_, hidden, active_);
      taps_.pass(Site::mlp_hidden, layer, sequences(hidden));
      if (taps_.replaced(Site::mlp_hidden, layer)) steps_.activate(layer, hidden, active_);
    }
    taps_.pass(Site::mlp_active, layer, sequences(active_));
    steps_.mlp_out(layer, active_, y_);
    taps_.pass(Site::mlp_out, layer, sequences(y_));
  }

  const ModelSteps& steps_;
  const GptLayers& parts_;
  const GptOptions& options_;
  TensorView ids_;
  Taps& taps_;
  StepRows rows_;
  Tensor x_;        // [rows, d_model]: the residual stream
  Tensor normed_;   // [rows, d_model]
  Tensor qkv_;      // [rows, qkv width]
  Tensor context_;  // [rows, d_model], heads merged
  Tensor y_;        // [rows, d_model]: what a part adds to the stream
  Tensor active_;   // [rows, d_mlp]
};

}  // namespace

RunResult run_model(const ModelSteps& steps, const TensorView& ids,
                    const ModelRunOptions& options) {
  const GptOptions& o = steps.options();
  Taps taps(options, o);
  const Tensor checked = checked_ids("run", ids, o.vocab_size);
  const dim_t batch = ids.rank() == 2 ? ids.dim(0) : 1;
  require(ids.numel() > 0, "run: ids {} holds no token", ids.shape());
  GptPass::check_length(o, 0, ids.dim(-1));
  const UseThreads limit(options.threads);
  Tensor logits = Run(steps, view(checked, {batch, ids.dim(-1)}), taps).logits();
  return {std::move(logits), std::move(taps).take()};
}

RunResult run_model(const Gpt& model, const TensorView& ids, const ModelRunOptions& options) {
  const UseThreads limit(options.threads);
  return run_model(ModelSteps(model), ids, options);
}

}  // namespace cephalo
