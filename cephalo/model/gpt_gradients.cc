#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_layers.h"

namespace cephalo {

GptGradientTensors::GptGradientTensors(const GptLayers& model) {
  attention.reserve(model.blocks.size());  // pointed at
  for (const Block& block : model.blocks) {
    attention.push_back(block.attention.new_gradients());
    blocks.push_back({.attention = &attention.back()});
  }
  for (const ParameterInfo& p : ParameterList(model.options)) {
    names.push_back(p.name);
    if (is_in_attention(p.part)) {
      all.push_back(attention[static_cast<std::size_t>(p.layer)].find(name_in_layer(p)));
    } else {
      memory.push_back(Tensor::zeros(p.shape, model.options.dtype));
      all.push_back(memory.back().mutable_view());
      tensor_of(*this, p) = all.back();
    }
  }
  if (model.options.tied_head) head = token;
}

MutableTensorView GptGradientTensors::find(const std::string& wanted) const {
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (names[k] == wanted) return all[k];
  }
  fail(Error::Kind::value, "GptGradients: there is no {}; Gpt::parameters() lists the names",
       wanted);
}

bool GptGradientTensors::fits(const GptLayers& model) const {
  std::size_t k = 0;
  bool same = true;
  for (const ParameterInfo& p : ParameterList(model.options)) {
    same = same && k < all.size() && names[k] == p.name && all[k].shape() == p.shape &&
           all[k].dtype() == model.options.dtype;
    ++k;
  }
  return same && k == all.size();
}

GptGradients::GptGradients(const Gpt& model)
    : stored_(std::make_unique<GptGradientTensors>(*model.layers_)) {}
GptGradients::GptGradients(GptGradients&&) noexcept = default;
GptGradients& GptGradients::operator=(GptGradients&&) noexcept = default;
GptGradients::~GptGradients() = default;

void GptGradients::zero() {
  ops::zero(stored_->all);
}

const std::vector<MutableTensorView>& GptGradients::tensors() const {
  return stored_->all;
}

MutableTensorView GptGradients::find(const std::string& name) const {
  return stored_->find(name);
}

}  // namespace cephalo
