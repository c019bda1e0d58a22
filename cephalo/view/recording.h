#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/attention/layer/saved_pass.h"
#include "cephalo/attention/weights.h"
#include "cephalo/model/gpt.h"
#include "cephalo/view/predictions.h"

#pragma GCC visibility push(default)
namespace cephalo {

// One text's pass through a model, kept so that you can ask later what any head looked at: q, k, v
// and lse of every layer, linear in tokens. No matrix of weights is stored, and what is stored
// never changes. The model must live as long, unchanged.
class Recording {
 public:
  // ids: from 1 to context_length of them
  Recording(const Gpt& model, const std::vector<std::int64_t>& ids, int threads = 0);

  dim_t tokens() const { return static_cast<dim_t>(ids_.size()); }
  dim_t num_layers() const { return static_cast<dim_t>(layers_.size()); }
  dim_t num_heads() const { return model_->options().num_heads; }
  const std::vector<std::int64_t>& ids() const { return ids_; }
  const Gpt& model() const { return *model_; }

  // -> [heads, rows, tokens]: those of the selection, or all
  Tensor weights(dim_t layer, const WeightsSelection& selection = {}) const;
  // A small map of a head, at most cells × cells: see pooled_weights.
  PooledWeights pooled(dim_t layer, dim_t head, dim_t cells) const;
  // -> [num_heads, tokens, kRowSums]: see row_sums
  Tensor row_sums(dim_t layer) const;
  // -> [heads, tokens], of those heads, or all: ‖v_j W_out^h‖₂, how much head h adds to a token
  // that looks at j alone
  Tensor value_norms(dim_t layer, const std::vector<dim_t>& heads = {}) const;

  // Of the token that would come next, the likeliest first.
  std::vector<Prediction> predictions(dim_t count) const;

  // What the heads of a layer worked with, as views of the recording.
  PassHeads heads(dim_t layer) const;

 private:
  const Gpt* model_;
  std::vector<std::int64_t> ids_;
  std::vector<SavedPass> layers_;
  Tensor logits_;  // [1, vocab_size], of the last token
  int threads_;
};

}  // namespace cephalo
#pragma GCC visibility pop
