#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cephalo/effects/change.h"
#include "cephalo/effects/next_token.h"
#include "web/engine/text_pass.h"

namespace cephalo::page {

// A head that does not do as it was trained to.
struct HeadSwitch {
  dim_t layer = 0;
  dim_t head = 0;
  bool scaled = true;                  // by 1 / √head_dim
  double temperature = 1.0;            // divides the scores
  dim_t keys = 0;                      // 0: causal; −1: all; n: the last n, its own among them
  std::optional<ChangeKind> off = {};  // zero, mean or uniform: its context goes no further
};

// Which rows of the text are read in the end.
enum class ReadRows { all, last };

// How far the prediction after one token moved.
struct RowChange {
  double divergence;       // KL(trained ‖ switched), in nats
  double log_probability;  // of the token that follows: by how much it changed; NaN after the last
};

// A text once more, with some heads switched, layer by layer as the text itself: the layers below
// the first switch are those of the text.
class SwitchedPass {
 public:
  // An error: there is no such layer or head, or a number makes no sense.
  SwitchedPass(std::shared_ptr<const ModelSteps> steps, std::shared_ptr<const TextPass> text,
               std::vector<HeadSwitch> switches, ReadRows read);

  // The next layer -> how many are left
  dim_t advance();

  // What follows needs all layers.
  NextToken next() const;
  NextToken next_as_trained() const;
  // -> [num_heads, tokens, tokens], float32
  Tensor weights(dim_t layer) const;
  // Of rows [first, first + rows); the pass must have read all of them.
  std::vector<RowChange> changes(dim_t first, dim_t rows) const;

 private:
  struct Layer {
    Tensor qkv;      // [tokens, qkv width], q and k rotated
    Tensor context;  // [tokens, d_model], before heads are switched off
    Tensor lse;      // [1, num_heads, tokens]
  };

  const GptOptions& options() const { return steps_->options(); }
  QkvHeads heads(const Tensor& qkv) const;
  void project(dim_t layer, Layer& kept);
  void attend(dim_t layer, Layer& kept) const;
  void add_off(dim_t layer, const Layer& kept, const MutableTensorView& out) const;
  void finish();
  Tensor logits(const TensorView& normed) const;

  std::shared_ptr<const ModelSteps> steps_;
  std::shared_ptr<const TextPass> text_;
  std::vector<HeadSwitch> switches_;
  ReadRows read_;
  dim_t first_;                // layer with a switch; num_layers: there is none
  std::vector<Layer> layers_;  // from first_ on
  Tensor x_, added_;           // [tokens, d_model]
  Tensor normed_;              // [tokens read, d_model], after the last norm
};

}  // namespace cephalo::page
