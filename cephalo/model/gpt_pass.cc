#include "cephalo/model/gpt_pass.h"

#include <optional>

#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/packed_mlp.h"

namespace cephalo {

void GptPass::check_length(const GptOptions& o, dim_t before, dim_t tokens) {
  require(before > 0 || tokens <= o.context_length, "Gpt: {} tokens exceed context_length ({})",
          tokens, o.context_length);
  require(before + tokens <= o.context_length,
          "Gpt: tokens ({} in the cache and {} new) exceed context_length ({})", before, tokens,
          o.context_length);
}

GptPass::GptPass(const GptLayers& model, const TensorView& ids, const Options& options,
                 PassMemory& memory)
    : model_(model), ids_(ids), options_(options), memory_(memory) {
  memory_.begin();
  place_rows();
  dropout_ = {options.dropout, mix_seed(model.seed, options.call), row_runs_};
  take_frames();
  keep_attention();
}

// Whole sequences are one run; of spread ones each piece is.
void GptPass::place_rows() {
  const dim_t mine = ids_.dim(1);
  if (options_.spread.world == nullptr) {
    const dim_t first = options_.cache != nullptr ? options_.cache->tokens() : 0;
    id_runs_.push_back({ids_, 0, first});
    row_runs_.push_back({0, ids_.numel(), checked_mul(options_.batch.begin, mine)});
    return;
  }
  const World& world = *options_.spread.world;
  const RingShare share = ring_share(options_.spread.tokens, world.rank(), world.size());
  for (dim_t b = 0; b < ids_.dim(0); ++b) {
    const dim_t whole = checked_mul(options_.batch.begin + b, options_.spread.tokens);
    dim_t t = 0;
    for (const Share& piece : {share.early, share.late}) {
      if (piece.count() == 0) continue;
      const dim_t row = b * mine + t;
      id_runs_.push_back(
          {ids_.slice(0, b, b + 1).slice(1, t, t + piece.count()), row, piece.begin});
      row_runs_.push_back({row, piece.count(), whole + piece.begin});
      t += piece.count();
    }
  }
}

// With a way back every block has a frame of its own, otherwise all share one.
void GptPass::take_frames() {
  const GptOptions& o = model_.options;
  const dim_t rows = ids_.numel();
  const bool keeps = options_.keeps;
  const std::size_t layers = model_.blocks.size();
  frames_.resize(layers);
  for (std::size_t l = 0; l < layers; ++l) {
    BlockFrame& f = frames_[l];
    if (l > 0 && !keeps) {
      f = frames_[0];
      continue;
    }
    f.x = take({rows, o.d_model});
    f.normed_1 = take({rows, o.d_model});
    f.middle = take({rows, o.d_model});
    f.normed_2 = keeps ? take({rows, o.d_model}) : f.normed_1;
    f.hidden = take({rows, o.d_mlp});
    f.active = keeps ? take({rows, o.d_mlp}) : f.hidden;
    if (!keeps) continue;
    f.moments_1 = take({rows, 2});
    f.moments_2 = take({rows, 2});
  }
  last_ = keeps ? take({rows, o.d_model}) : frames_[0].x;
  normed_ = keeps ? take({rows, o.d_model}) : frames_[0].normed_1;
  if (keeps) moments_ = take({rows, 2});
}

// A frame of its own outlives what attention keeps; a shared one is written by the next block.
void GptPass::keep_attention() {
  if (!options_.keeps && options_.saved == nullptr) return;
  std::vector<SavedPass>& saved = options_.keeps ? memory_.saved() : *options_.saved;
  saved.resize(frames_.size());
  for (std::size_t l = 0; l < frames_.size(); ++l) {
    frames_[l].saved = &saved[l];
    frames_[l].keep = options_.keeps ? KeepInput::borrow : KeepInput::copy;
  }
}

BlockCall GptPass::block_call(std::size_t layer) const {
  return {.batch = ids_.dim(0),
          .tokens = ids_.dim(1),
          .cache = options_.cache != nullptr ? &options_.cache->layers[layer] : nullptr,
          .dropout = dropout_,
          .call = options_.call,
          .part = options_.batch,
          .spread = options_.spread,
          .mask = options_.mask,
          .place = static_cast<std::uint32_t>(1 + 2 * layer),
          .layer = static_cast<dim_t>(layer),
          .last_only = options_.last_only && layer + 1 == frames_.size(),
          .on_attention = options_.on_attention};
}

MutableTensorView GptPass::forward() {
  for (const IdRun& run : id_runs_) {
    embed_into(model_.tables(), run.ids, run.position,
               frames_[0].x.slice(0, run.row, run.row + run.ids.numel()));
  }
  drop_rows(dropout_, 0, frames_[0].x);
  const dim_t rows = options_.last_only ? ids_.dim(0) : ids_.numel();
  const MutableTensorView last = last_.slice(0, 0, rows);
  const MutableTensorView normed = normed_.slice(0, 0, rows);
  TensorView added;  // what x still lacks: the rows that passed the last block by
  for (std::size_t l = 0; l < frames_.size(); ++l) {
    const Block& block = model_.blocks[l];
    const MutableTensorView& y = l + 1 < frames_.size() ? frames_[l + 1].x : last;
    std::optional<Mlp::Packed> packed;
    if (model_.packed_mlps.empty()) packed.emplace(block.mlp.pack());
    block.forward(block_call(l), frames_[l], added, packed ? *packed : model_.packed_mlps[l], y);
    added = frames_[l].middle;
  }
  model_.norm.forward_into({last, added.slice(0, 0, rows), normed, moments_});
  return normed;
}

void GptPass::backward(const TensorView& dnormed, GptGradientTensors& gradients,
                       const GradientsDone& done) {
  const GptOptions& o = model_.options;
  const ParameterList list(o);
  const std::size_t of_block = list.block().size();
  const std::size_t before = list.before().size();
  const auto tell = [&](std::size_t first, std::size_t end) {
    if (done) done(first, end);
  };
  const dim_t rows = ids_.numel();
  const MutableTensorView dx = take({rows, o.d_model});
  BlockScratch scratch{take({rows, o.d_model}),
                       options_.dropout > 0.0 ? take({rows, o.d_model}) : MutableTensorView(),
                       take({rows, o.d_mlp})};
  ops::zero(dx);
  model_.norm.backward({last_, moments_, dnormed, dx, gradients.norm.weight, gradients.norm.bias});
  tell(before + frames_.size() * of_block, gradients.all.size());  // the last norm, and the head
  for (std::size_t l = frames_.size(); l-- > 0;) {
    const Mlp::Packed* packed = model_.packed_mlps.empty() ? nullptr : &model_.packed_mlps[l];
    model_.blocks[l].backward(block_call(l), frames_[l], packed, scratch, dx, gradients.blocks[l]);
    tell(before + l * of_block, before + (l + 1) * of_block);
  }
  drop_rows(dropout_, 0, dx);
  for (const IdRun& run : id_runs_) {
    EmbeddingGradients to = gradients.tables();
    if (to.position.numel() > 0) {
      to.position = to.position.slice(0, run.position, run.position + run.ids.dim(1));
    }
    embed_backward(run.ids, dx.slice(0, run.row, run.row + run.ids.numel()), to);
  }
  tell(0, before);
}

}  // namespace cephalo
