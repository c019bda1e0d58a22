// A call of a GPT: ids to logits, with a cache or without.
#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/gpt_pass.h"

namespace cephalo {
namespace {

void check_cache(const GptLayers& model, const GptCache& cache) {
  require(cache.layers.size() == model.blocks.size(),
          "Gpt: the cache is for {} layers, this model has {}; new_cache() makes a matching one",
          cache.layers.size(), model.blocks.size());
  for (const KVCache& layer : cache.layers) {
    require(layer.lengths() == cache.layers.front().lengths() &&
                std::all_of(layer.lengths().begin(), layer.lengths().end(),
                            [&](dim_t length) { return length == layer.tokens(); }),
            "Gpt: sequences and layers of the cache must be equally long");
  }
}

}  // namespace

Tensor Gpt::operator()(const TensorView& ids, const GptCall& call) const {
  const GptLayers& model = *layers_;
  const GptOptions& o = model.options;
  const Tensor checked = checked_ids("Gpt", ids, o.vocab_size);
  const dim_t batch = ids.rank() == 2 ? ids.dim(0) : 1;
  const dim_t tokens = ids.dim(-1);
  if (call.cache != nullptr) check_cache(model, *call.cache);
  require(call.cache == nullptr || call.saved == nullptr,
          "Gpt: saved takes what attention worked with on these ids alone; it does not go with a "
          "cache");
  const bool spread = call.spread.world != nullptr;
  require(!spread || (call.cache == nullptr && !call.last_only),
          "Gpt: tokens that are spread over processes go with neither a cache nor last_only");
  GptPass::check_length(o, call.cache != nullptr ? call.cache->tokens() : 0,
                        spread ? call.spread.tokens : tokens);
  Shape shape = ids.shape();
  if (call.last_only) shape[-1] = std::min<dim_t>(tokens, 1);
  shape.push_back(o.vocab_size);
  if (numel(shape) == 0) {
    if (call.saved != nullptr) call.saved->clear();
    return Tensor::empty(shape, o.dtype);
  }

  const UseThreads limit(call.threads);
  PassMemory memory;
  GptPass::Options options{.saved = call.saved,
                           .cache = call.cache,
                           .last_only = call.last_only,
                           .spread = call.spread,
                           .mask = &call.mask};
  if (call.on_attention) options.on_attention = &call.on_attention;
  GptPass pass(model, view(checked, {batch, tokens}), options, memory);
  const TensorView rows = pass.forward();
  Tensor logits = Tensor::empty({rows.dim(0), o.vocab_size}, o.dtype);
  if (model.packed_head) {
    ops::linear(*model.packed_head, rows, logits);
  } else {
    ops::linear(PackedLinear(model.head_weight(), {}, o.dtype), rows, logits);
  }
  return std::move(logits).reshaped(shape);
}

}  // namespace cephalo
