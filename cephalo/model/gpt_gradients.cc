#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_layers.h"

namespace cephalo {

GptGradientTensors::GptGradientTensors(const GptLayers& model) {
  attention.reserve(model.blocks.size());
  const auto keep = [&](const std::string& name, ParameterKind, const auto& value) {
    names.push_back(name);
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Tensor>) {
      memory.push_back(Tensor::zeros(value.shape(), value.dtype()));
      all.push_back(memory.back().mutable_view());
    } else {
      all.push_back(value);
    }
  };
  walk_parameters(model, keep, [&](const MultiHeadAttention& layer, const auto& each) {
    Gradients& mine = attention.emplace_back(layer.new_gradients());
    for (const NamedParameter& p : mine.named()) each(p.name, mine.find(p.name));
  });
  tables.token = find("transformer.wte.weight");
  if (model.position.numel() > 0) tables.position = find("transformer.wpe.weight");
  norm_weight = find("transformer.ln_f.weight");
  norm_bias = find("transformer.ln_f.bias");
  head = model.options.tied_head ? tables.token : find("lm_head.weight");
  for (std::size_t l = 0; l < model.blocks.size(); ++l) {
    const auto of_block = [&](const char* name) {
      return find(format_text("transformer.h.{}.{}", l, name));
    };
    blocks.push_back({of_block("ln_1.weight"),
                      of_block("ln_1.bias"),
                      &attention[l],
                      of_block("ln_2.weight"),
                      of_block("ln_2.bias"),
                      {of_block("mlp.c_fc.weight"), of_block("mlp.c_fc.bias"),
                       of_block("mlp.c_proj.weight"), of_block("mlp.c_proj.bias")}});
  }
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
  model.each_parameter([&](const std::string& name, ParameterKind, const TensorView& p) {
    same = same && k < all.size() && names[k] == name && all[k].shape() == p.shape() &&
           all[k].dtype() == p.dtype();
    ++k;
  });
  return same && k == all.size();
}

GptGradients::GptGradients(const Gpt& model)
    : stored_(std::make_unique<GptGradientTensors>(*model.layers_)) {}
GptGradients::GptGradients(GptGradients&&) noexcept = default;
GptGradients& GptGradients::operator=(GptGradients&&) noexcept = default;
GptGradients::~GptGradients() = default;

void GptGradients::zero() {
  const std::vector<MutableTensorView>& all = stored_->all;
  double numbers = 0.0;
  for (const MutableTensorView& t : all) numbers += static_cast<double>(t.numel());
  parallel_for(Region{std::ssize(all), numbers}, [&](dim_t k, std::byte*) {
    const MutableTensorView& t = all[static_cast<std::size_t>(k)];
    std::memset(t.mutable_data(), 0, t.bytes());
  });
}

const std::vector<MutableTensorView>& GptGradients::tensors() const {
  return stored_->all;
}

MutableTensorView GptGradients::find(const std::string& name) const {
  return stored_->find(name);
}

}  // namespace cephalo
