#pragma once

#include <functional>
#include <vector>

#include "cephalo/model/gpt_layers.h"
#include "cephalo/model/pass_memory.h"

namespace cephalo {

// One walk of ids through a model; `memory` holds what lies between the steps.
class GptPass {
 public:
  struct Options {
    bool keeps = false;  // everything, for a way back
    // Takes what each attention layer worked with, for whoever looks at the weights; with `keeps`
    // the memory has that already.
    std::vector<SavedPass>* saved = nullptr;
    GptCache* cache = nullptr;  // ids continue its sequences
    bool last_only = false;     // the last row of each sequence alone; not with `keeps`
    double dropout = 0.0;
    std::uint64_t call = 0;
    Place::Axis batch = {};      // of which ids are a part
    Spread spread = {};          // of whose sequences ids are this process's tokens
    const Mask* mask = nullptr;  // besides causal
    const std::function<void(dim_t layer, const TensorView& x)>* on_attention = nullptr;
  };

  // Throws where so many tokens, after those `before` them in a cache, are more than there is a
  // place for.
  static void check_length(const GptOptions& options, dim_t before, dim_t tokens);

  // ids: [batch, tokens], int64, checked
  GptPass(const GptLayers& model, const TensorView& ids, const Options& options,
          PassMemory& memory);

  // -> what the head multiplies: [batch · tokens, d_model], in `memory`; [batch, d_model] with
  // last_only
  MutableTensorView forward();

  // dnormed: [batch · tokens, d_model], the gradient of forward's result. Gradients are added to;
  // `done` hears of those that will not change any more.
  void backward(const TensorView& dnormed, GptGradientTensors& gradients,
                const GradientsDone& done);

  // Memory of that shape for the caller, until the next pass.
  MutableTensorView take(const Shape& shape) { return memory_.take(shape, model_.options.dtype); }

 private:
  void take_frames();
  void keep_attention();
  void place_rows();
  BlockCall block_call(std::size_t layer) const;

  // Ids whose rows lie side by side.
  struct IdRun {
    TensorView ids;  // [sequences, tokens]
    dim_t row;       // of the first
    dim_t position;  // of each sequence's first token
  };

  const GptLayers& model_;
  TensorView ids_;
  Options options_;
  PassMemory& memory_;
  std::vector<IdRun> id_runs_;
  std::vector<RowRun> row_runs_;
  RowDropout dropout_;
  std::vector<BlockFrame> frames_;
  MutableTensorView last_;  // x after the last block
  MutableTensorView normed_;
  MutableTensorView moments_;
};

// Rows of logits that are there at once. The product that makes the gradient of the head sums over
// them, in as long a chain as the GEMM takes in one go.
inline constexpr dim_t kLogitRows = 384;

}  // namespace cephalo
