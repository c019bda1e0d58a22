#include "cephalo/view/recording.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/linear/ops.h"

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
  const TensorView out = model_->attention(layer).parameter("out_proj.weight");
  const dim_t v_dim = h.v.dim(3);
  const dim_t sharing = num_heads() / h.v.dim(1);  // query heads of one kv head
  Tensor norms = Tensor::empty({std::ssize(wanted), tokens()}, DType::f64);
  Tensor moved = Tensor::empty({tokens(), out.dim(0)}, out.dtype());
  const UseThreads limit(threads_);
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    const dim_t head = wanted[n];
    require(0 <= head && head < num_heads(), "Recording: head {} is not in [0, {})", head,
            num_heads());
    const PackedLinear w_out(out.slice(1, head * v_dim, (head + 1) * v_dim), {}, out.dtype());
    ops::linear(w_out, h.v[0][head / sharing], moved);
    ops::row_norms(moved, norms.mutable_view()[static_cast<dim_t>(n)]);
  }
  return norms;
}

std::vector<Prediction> Recording::predictions(dim_t count) const {
  const dim_t vocab_size = logits_.dim(1);
  const Tensor wide = Tensor::copy(logits_, DType::f64);
  const auto* logits = wide.data_as<double>();
  const double largest = *std::max_element(logits, logits + vocab_size);
  double sum = 0.0;
  for (dim_t id = 0; id < vocab_size; ++id) sum += std::exp(logits[id] - largest);
  std::vector<std::int64_t> order(static_cast<std::size_t>(vocab_size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto end = order.begin() + std::clamp<dim_t>(count, 0, vocab_size);
  // Equal ones in the order of their ids.
  std::partial_sort(order.begin(), end, order.end(), [&](std::int64_t a, std::int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<Prediction> found;
  for (auto id = order.begin(); id != end; ++id) {
    found.push_back({*id, std::exp(logits[*id] - largest) / sum});
  }
  return found;
}

}  // namespace cephalo
