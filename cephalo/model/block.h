#pragma once

#include <cstdint>
#include <functional>

#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/model/drop_rows.h"
#include "cephalo/model/layer_norm.h"
#include "cephalo/model/mlp.h"

namespace cephalo {

// Where one block's tensors lie: rows = batch · tokens, all dense. On a pass that goes back each
// block has its own; otherwise blocks share them, `active` lies where `hidden` does, and there are
// no moments. What attention keeps is a question of its own: the way back needs it, and so does
// whoever looks at the weights afterwards.
struct BlockFrame {
  MutableTensorView x;         // [rows, d_model]: what comes in
  MutableTensorView normed_1;  // [rows, d_model]
  MutableTensorView moments_1;
  MutableTensorView middle;    // [rows, d_model]: x after attention
  MutableTensorView normed_2;  // [rows, d_model]
  MutableTensorView moments_2;
  MutableTensorView hidden;          // [rows, d_mlp]
  MutableTensorView active;          // [rows, d_mlp]
  SavedPass* saved = nullptr;        // takes attention's own; null: not kept
  KeepInput keep = KeepInput::copy;  // borrow: normed_1 lives as long as `saved`
};

// What one pass brings along for a block.
struct BlockCall {
  dim_t batch = 0;
  dim_t tokens = 0;
  KVCache* cache = nullptr;
  RowDropout dropout = {};
  std::uint64_t call = 0;  // number of the pass, for dropout of attention's weights
  Place::Axis part = {};   // of a larger batch
  Spread spread = {};
  const Mask* mask = nullptr;  // besides the layer's own
  std::uint32_t place = 0;     // of this block's first dropout; the second is the next
  dim_t layer = 0;
  bool last_only = false;  // y: [batch, d_model], of the last row of each sequence; without dropout
  const std::function<void(dim_t layer, const TensorView& x)>* on_attention = nullptr;
};

// Gradients of a block's parameters: added to.
struct BlockGradients {
  LayerNorm::Gradients norm_1 = {};
  Gradients* attention = nullptr;
  LayerNorm::Gradients norm_2 = {};
  Mlp::Gradients mlp = {};
};

// Room that the way back works in; the same for every block.
struct BlockScratch {
  MutableTensorView dbranch;  // [rows, d_model]: gradient of what a norm made, then of a branch
  MutableTensorView dropped;  // [rows, d_model], with dropout only
  MutableTensorView dhidden;  // [rows, d_mlp]
};

// A pre-norm block:
//   middle = x + drop(attention(norm_1(x)))
//   y = middle + drop(mlp(norm_2(middle)))
struct Block {
  LayerNorm norm_1;
  MultiHeadAttention attention;
  LayerNorm norm_2;
  Mlp mlp;

  // The last sum is left to whoever takes the rows next, usually a norm that walks over them
  // anyway: `added` is what x lacks when it comes in, and y comes out without `middle`, whose first
  // rows are those of y with last_only.
  void forward(const BlockCall& call, const BlockFrame& frame, const TensorView& added,
               const Mlp::Packed& packed, const MutableTensorView& y) const;

  // dx: [rows, d_model], comes in as the gradient of y and goes out as that of x. packed: as in
  // Mlp::backward
  void backward(const BlockCall& call, const BlockFrame& frame, const Mlp::Packed* packed,
                const BlockScratch& scratch, const MutableTensorView& dx,
                const BlockGradients& gradients) const;
};

}  // namespace cephalo
