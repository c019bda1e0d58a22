#include "cephalo/view/recording.h"

#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/view/value_norms.h"

namespace cephalo {

Recording::Recording(const Gpt& model, const std::vector<std::int64_t>& ids, int threads)
    : model_(&model), ids_(ids), threads_(threads) {
  require(!ids.empty(), "Recording: there are no tokens to look at");
  logits_ = model(TensorView(ids_.data(), {tokens()}),
                  {.last_only = true, .threads = threads, .saved = &layers_});
}

PassHeads Recording::heads(dim_t layer) const {
  require(0 <= layer && layer < num_layers(), "Recording: layer {} is not in [0, {})", layer,
          num_layers());
  return layers_[static_cast<std::size_t>(layer)].heads();
}

Tensor Recording::weights(dim_t layer, const WeightsSelection& selection) const {
  const PassHeads h = heads(layer);
  Tensor found =
      cephalo::weights(h.q, h.k, h.lse, h.mask, AttendOptions{.threads = threads_}, selection);
  const Shape shape{found.dim(1), found.dim(2), found.dim(3)};
  return std::move(found).reshaped(shape);
}

PooledWeights Recording::pooled(dim_t layer, dim_t head, dim_t cells) const {
  const PassHeads h = heads(layer);
  return pooled_weights(h.q, h.k, h.lse, cells, head, 0, h.mask,
                        AttendOptions{.threads = threads_});
}

Tensor Recording::row_sums(dim_t layer) const {
  const PassHeads h = heads(layer);
  Tensor sums = cephalo::row_sums(h.q, h.k, h.lse, TensorView(ids_.data(), {tokens()}), h.mask,
                                  AttendOptions{.threads = threads_});
  const Shape shape{sums.dim(1), sums.dim(2), sums.dim(3)};
  return std::move(sums).reshaped(shape);
}

Tensor Recording::value_norms(dim_t layer, const std::vector<dim_t>& selected) const {
  const PassHeads h = heads(layer);
  std::vector<dim_t> wanted = selected;
  for (dim_t head = 0; selected.empty() && head < num_heads(); ++head) wanted.push_back(head);
  for (const dim_t head : wanted) {
    require(0 <= head && head < num_heads(), "Recording: head {} is not in [0, {})", head,
            num_heads());
  }
  const UseThreads limit(threads_);
  return cephalo::value_norms(h.v[0], model_->attention(layer).parameter("out_proj.weight"),
                              wanted);
}

std::vector<Prediction> Recording::predictions(dim_t count) const {
  return likeliest(logits_[0], count);
}

}  // namespace cephalo
