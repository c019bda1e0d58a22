#include "cephalo/model/block.h"

#include "cephalo/linear/ops.h"
#include "cephalo/model/packed_mlp.h"

namespace cephalo {
namespace {

// rows: [batch · tokens, width] -> [batch, tokens, width], the same memory
MutableTensorView as_sequences(const MutableTensorView& rows, const BlockCall& call) {
  return {rows.mutable_data(), rows.dtype(), {call.batch, call.tokens, rows.dim(1)}, rows.device()};
}

// What the second half works on where only the last row of each sequence is asked for: these rows
// move to the front.
BlockFrame last_rows(const BlockFrame& frame, const BlockCall& call) {
  for (const MutableTensorView* rows : {&frame.x, &frame.middle}) {
    for (dim_t b = 0; b < call.batch && call.tokens > 1; ++b) {
      ops::copy((*rows)[(b + 1) * call.tokens - 1], (*rows)[b]);
    }
  }
  BlockFrame last = frame;
  for (MutableTensorView* rows :
       {&last.x, &last.middle, &last.normed_2, &last.hidden, &last.active}) {
    *rows = rows->slice(0, 0, call.batch);
  }
  return last;
}

// The gradient that enters a branch: dx itself, or a copy with the same elements dropped as on the
// way here.
MutableTensorView enter_branch(const BlockCall& call, std::uint32_t place,
                               const BlockScratch& scratch, const MutableTensorView& dx) {
  if (call.dropout.probability == 0.0) return dx;
  ops::copy(dx, scratch.dropped);
  drop_rows(call.dropout, place, scratch.dropped);
  return scratch.dropped;
}

}  // namespace

void Block::forward(const BlockCall& call, const BlockFrame& frame, const TensorView& added,
                    const Mlp::Packed& packed, const MutableTensorView& y) const {
  // 1  middle = x + drop(attention(norm_1(x)))
  norm_1.forward_into({frame.x, added, frame.normed_1, frame.moments_1});
  CallOptions attending;
  attending.cache = call.cache;
  attending.call = call.call;
  attending.drop = call.dropout.probability > 0.0;
  attending.place.batch = call.part;
  attending.spread = call.spread;
  if (call.mask != nullptr) attending.mask = *call.mask;
  const MutableTensorView normed = as_sequences(frame.normed_1, call);
  const MutableTensorView middle = as_sequences(frame.middle, call);
  if (call.on_attention != nullptr) (*call.on_attention)(call.layer, normed);
  if (frame.saved != nullptr) {
    attention.forward_train_into(normed, middle, *frame.saved, attending, frame.keep);
  } else {
    attention.forward_into(normed, middle, attending);
  }
  drop_rows(call.dropout, call.place, frame.middle);
  // 2  y = middle + drop(mlp(norm_2(middle)))
  const BlockFrame rest = call.last_only ? last_rows(frame, call) : frame;
  norm_2.forward_into({rest.middle, rest.x, rest.normed_2, rest.moments_2});
  mlp.forward_into(packed, {rest.normed_2, rest.hidden, rest.active, y});
  drop_rows(call.dropout, call.place + 1, y);
}

void Block::backward(const BlockCall& call, const BlockFrame& frame, const Mlp::Packed* packed,
                     const BlockScratch& scratch, const MutableTensorView& dx,
                     const BlockGradients& gradients) const {
  // 2  y = middle + drop(mlp(norm_2(middle)))        ←  dmiddle: what passes by, and the branch's
  const MutableTensorView dmlp = enter_branch(call, call.place + 1, scratch, dx);
  mlp.backward(packed,
               {frame.normed_2, frame.hidden, frame.active, dmlp, scratch.dhidden, scratch.dbranch},
               gradients.mlp);
  norm_2.backward({frame.middle, frame.moments_2, scratch.dbranch, dx, gradients.norm_2.weight,
                   gradients.norm_2.bias});
  // 1  middle = x + drop(attention(norm_1(x)))       ←  dx, likewise
  const MutableTensorView dattention = enter_branch(call, call.place, scratch, dx);
  attention.backward(*frame.saved, as_sequences(dattention, call),
                     as_sequences(scratch.dbranch, call), *gradients.attention);
  norm_1.backward({frame.x, frame.moments_1, scratch.dbranch, dx, gradients.norm_1.weight,
                   gradients.norm_1.bias});
}

}  // namespace cephalo
