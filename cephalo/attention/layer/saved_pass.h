#pragma once

#include <cstddef>
#include <memory>

#include "cephalo/core/tensor.h"
#include "cephalo/mask/mask.h"

#pragma GCC visibility push(default)
namespace cephalo {

struct LayerPass;

// What the heads of a pass worked with, after rotary; views of the pass. weights(q, k, lse, mask)
// computes from them what they looked at.
struct PassHeads {
  TensorView q;    // [batch, num_heads, tokens, head_dim]
  TensorView k;    // [batch, num_kv_heads, kv_tokens, head_dim]
  TensorView v;    // [batch, num_kv_heads, kv_tokens, v_dim]
  TensorView lse;  // [batch, num_heads, tokens]
  Mask mask;
};

// What MultiHeadAttention::forward_train leaves for backward. Any number may be alive, and go back
// in any order, once or several times. It belongs to the layer that made it, as long as that
// layer's parameters do not change. Move-only.
class SavedPass {
 public:
  SavedPass();  // empty: an error in backward
  SavedPass(SavedPass&& other) noexcept;
  SavedPass& operator=(SavedPass&& other) noexcept;
  ~SavedPass();

  bool empty() const { return pass_ == nullptr; }
  std::size_t bytes() const;  // memory that it owns, linear in tokens
  PassHeads heads() const;    // an error when empty

 private:
  friend class MultiHeadAttention;
  explicit SavedPass(std::unique_ptr<LayerPass> pass);

  std::unique_ptr<LayerPass> pass_;
};

// Does a saved pass copy x, kv and the tensors of the mask, or look at the caller's? Borrowed ones
// must live, unchanged, as long as the pass.
enum class KeepInput { copy, borrow };

// What forward_train returns: the output, and what its backward pass needs.
struct TrainResult {
  Tensor y;
  SavedPass saved;
};

}  // namespace cephalo
#pragma GCC visibility pop
