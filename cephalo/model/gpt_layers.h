#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/embed/embedding.h"
#include "cephalo/model/block.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/packed_mlp.h"
#include "cephalo/model/parameter_list.h"

// What is behind Gpt; not for users of the library.
namespace cephalo {

struct GptLayers {
  GptLayers(const GptOptions& options, std::uint64_t seed);  // parameters undefined

  EmbeddingTables tables() const { return {token, position}; }
  TensorView head_weight() const { return options.tied_head ? token : head; }

  // Calls visit(info, value) for every parameter in the order of parameter_list.
  template <typename Visit>
  void each_parameter(const Visit& visit) const;
  // The same to write to: a new version, and what was laid out is dropped.
  template <typename Visit>
  void change_each(const Visit& visit);

  GptOptions options;
  std::uint64_t seed;
  std::uint64_t version = 0;
  Tensor token;     // [vocab_size, d_model]
  Tensor position;  // [context_length, d_model], or of shape [0]
  std::vector<Block> blocks;
  LayerNorm norm;
  Tensor head;  // [vocab_size, d_model], or of shape [0] where the token embedding is the head

  std::vector<Mlp::Packed> packed_mlps;  // laid out by prepare()
  std::optional<PackedLinear> packed_head;
  std::optional<PackedLinear> packed_head_back;  // transposed
};

inline const GptLayers& layers_of(const Gpt& model) {
  return *model.layers_;
}

// Members are called as those of GptLayers, which tensor_of relies on.
struct GptGradientTensors {
  explicit GptGradientTensors(const GptLayers& model);
  MutableTensorView find(const std::string& name) const;  // or an error
  bool fits(const GptLayers& model) const;

  EmbeddingGradients tables() const { return {token, position}; }

  MutableTensorView token, position;
  std::vector<BlockGradients> blocks;
  LayerNorm::Gradients norm;
  MutableTensorView head;  // that of the token embedding when it is the head

  std::vector<std::string> names;
  std::vector<MutableTensorView> all;
  std::vector<Gradients> attention;
  std::vector<Tensor> memory;  // of all but attention's
};

// The tensor of a parameter outside of attention. Model: GptLayers, const or not, or
// GptGradientTensors.
template <typename Model>
auto& tensor_of(Model& model, const ParameterInfo& p) {
  const auto either = [&](auto& weight, auto& bias) -> auto& {
    return p.is_bias ? bias : weight;
  };
  if (p.part == ModelPart::token_embedding) return model.token;
  if (p.part == ModelPart::position_embedding) return model.position;
  if (p.part == ModelPart::head) return model.head;
  if (p.part == ModelPart::last_norm) return either(model.norm.weight, model.norm.bias);
  auto& block = model.blocks[static_cast<std::size_t>(p.layer)];
  if (p.part == ModelPart::norm_1) return either(block.norm_1.weight, block.norm_1.bias);
  if (p.part == ModelPart::norm_2) return either(block.norm_2.weight, block.norm_2.bias);
  if (p.part == ModelPart::mlp_fc) return either(block.mlp.fc_weight, block.mlp.fc_bias);
  return either(block.mlp.proj_weight, block.mlp.proj_bias);
}

// What an attention layer of form joined calls a parameter of its own.
inline std::string name_in_layer(const ParameterInfo& p) {
  return std::string(p.part == ModelPart::qkv_proj ? "qkv_proj" : "out_proj") +
         (p.is_bias ? ".bias" : ".weight");
}

template <typename Visit>
void GptLayers::each_parameter(const Visit& visit) const {
  for (const ParameterInfo& p : ParameterList(options)) {
    if (is_in_attention(p.part)) {
      const MultiHeadAttention& layer = blocks[static_cast<std::size_t>(p.layer)].attention;
      visit(p, layer.parameter(name_in_layer(p)));
    } else {
      visit(p, TensorView(tensor_of(*this, p)));
    }
  }
}

template <typename Visit>
void GptLayers::change_each(const Visit& visit) {
  packed_mlps.clear();  // first: a change that throws may have written already
  packed_head.reset();
  packed_head_back.reset();
  ++version;
  const ParameterList list(options);
  for (auto at = list.begin(); at != list.end();) {
    const ParameterInfo p = *at;
    if (!is_in_attention(p.part)) {
      visit(p, tensor_of(*this, p).mutable_view());
      ++at;
      continue;
    }
    // A layer hands its parameters out all at once, in the order of the list.
    MultiHeadAttention& layer = blocks[static_cast<std::size_t>(p.layer)].attention;
    layer.update_all(
        [&](const std::string&, const MutableTensorView& value) { visit(*at++, value); });
  }
}

}  // namespace cephalo
