#include "cephalo/attention/layer/saved_pass.h"

#include <utility>

#include "cephalo/attention/layer/layer_pass.h"
#include "cephalo/core/fail.h"

namespace cephalo {

SavedPass::SavedPass() = default;
SavedPass::SavedPass(std::unique_ptr<LayerPass> pass) : pass_(std::move(pass)) {}
SavedPass::SavedPass(SavedPass&& other) noexcept = default;
SavedPass& SavedPass::operator=(SavedPass&& other) noexcept = default;
SavedPass::~SavedPass() = default;

std::size_t SavedPass::bytes() const {
  if (pass_ == nullptr) return 0;
  std::size_t total = pass_->lse.bytes();
  for (const Tensor& t : pass_->kept) total += t.bytes();
  for (const Tensor& t : pass_->memory) total += t.bytes();
  for (const MaskTensor& t : pass_->mask.tensors) {
    if (t.owner != nullptr) total += t.owner->bytes();
  }
  return total;
}

PassHeads SavedPass::heads() const {
  require(pass_ != nullptr, "SavedPass: heads of an empty pass; forward_train makes one");
  return {pass_->q, pass_->k, pass_->v, pass_->lse, pass_->mask};
}

}  // namespace cephalo
