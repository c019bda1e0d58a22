#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

class ModelSteps;

// One text's pass through a model, with what experiments start from: for each layer the residual
// stream, q, k, v and the context. Linear in tokens. The model must live as long, unchanged.
class KeptPass {
 public:
  // ids: from 1 to context_length of them
  KeptPass(const Gpt& model, const std::vector<std::int64_t>& ids, int threads = 0);
  // Of a model that is laid out already: many texts, one layout.
  KeptPass(std::shared_ptr<const ModelSteps> steps, const std::vector<std::int64_t>& ids,
           int threads = 0);

  struct Layer {
    Tensor resid_pre;  // [tokens, d_model]
    Tensor qkv;        // [tokens, qkv width], q and k rotated
    Tensor context;    // [tokens, d_model], heads merged
    Tensor lse;        // [1, num_heads, tokens]
    Tensor resid_mid;  // [tokens, d_model]
  };

  dim_t tokens() const { return static_cast<dim_t>(ids_.size()); }
  const std::vector<std::int64_t>& ids() const { return ids_; }
  const Gpt& model() const;
  const GptOptions& options() const { return model().options(); }
  const std::shared_ptr<const ModelSteps>& steps() const { return steps_; }
  const Layer& layer(dim_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  const Tensor& resid_post() const { return resid_post_; }  // of the last layer: [tokens, d_model]
  std::size_t bytes() const;
  int threads() const { return threads_; }

 private:
  std::shared_ptr<const ModelSteps> steps_;
  std::vector<std::int64_t> ids_;
  std::vector<Layer> layers_;
  Tensor resid_post_;
  int threads_;
};

// The mean of each head's context over all tokens of some texts: [num_layers, d_model], float64.
Tensor reference_mean(const std::vector<const KeptPass*>& texts);

}  // namespace cephalo
#pragma GCC visibility pop
