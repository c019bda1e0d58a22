#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/embed/embedding.h"
#include "cephalo/model/block.h"
#include "cephalo/model/gpt.h"

// What is behind Gpt; not for users of the library.
namespace cephalo {

// Throws unless such a model can be; -> the same with d_mlp filled in.
GptOptions checked_options(const GptOptions& options, const char* function);

struct GptLayers {
  GptLayers(const GptOptions& options, std::uint64_t seed);  // parameters undefined

  EmbeddingTables tables() const { return {token, position}; }
  TensorView head_weight() const { return options.tied_head ? token : head; }

  // Calls visit(name, kind, value) for every parameter in the order that gpt.h lists.
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
};

struct GptGradientTensors {
  explicit GptGradientTensors(const GptLayers& model);
  MutableTensorView find(const std::string& name) const;  // or an error
  bool fits(const GptLayers& model) const;

  std::vector<BlockGradients> blocks;
  EmbeddingGradients tables;
  MutableTensorView norm_weight, norm_bias;
  MutableTensorView head;  // that of the token embedding when it is the head

  std::vector<std::string> names;
  std::vector<MutableTensorView> all;
  std::vector<Gradients> attention;
  std::vector<Tensor> memory;  // of all but attention's
};

// What a parameter of the attention layer is called in a GPT-2 file.
inline std::string file_name_of(const std::string& attention_name) {
  const bool out = attention_name.starts_with("out_proj.");
  return (out ? "attn.c_proj" : "attn.c_attn") + attention_name.substr(attention_name.find('.'));
}

// One walk for all: Model is GptLayers or const GptLayers, `attention` visits one such layer.
template <typename Model, typename Visit, typename Attention>
void walk_parameters(Model& model, const Visit& visit, const Attention& attention) {
  using Kind = ParameterKind;
  const std::string root = "transformer.";
  const auto norm = [&](const std::string& prefix, auto& each) {
    visit(prefix + ".weight", Kind::norm, each.weight);
    visit(prefix + ".bias", Kind::norm, each.bias);
  };
  visit(root + "wte.weight", Kind::embedding, model.token);
  if (model.position.numel() > 0) visit(root + "wpe.weight", Kind::embedding, model.position);
  for (std::size_t l = 0; l < model.blocks.size(); ++l) {
    auto& block = model.blocks[l];
    const std::string prefix = root + "h." + std::to_string(l) + ".";
    norm(prefix + "ln_1", block.norm_1);
    attention(block.attention, [&](const std::string& name, const auto& value) {
      const Kind kind = value.rank() == 2 ? Kind::matrix : Kind::bias;
      visit(prefix + file_name_of(name), kind, value);
    });
    norm(prefix + "ln_2", block.norm_2);
    visit(prefix + "mlp.c_fc.weight", Kind::matrix, block.mlp.fc_weight);
    visit(prefix + "mlp.c_fc.bias", Kind::bias, block.mlp.fc_bias);
    visit(prefix + "mlp.c_proj.weight", Kind::matrix, block.mlp.proj_weight);
    visit(prefix + "mlp.c_proj.bias", Kind::bias, block.mlp.proj_bias);
  }
  norm(root + "ln_f", model.norm);
  if (model.head.numel() > 0) visit("lm_head.weight", Kind::matrix, model.head);
}

template <typename Visit>
void GptLayers::each_parameter(const Visit& visit) const {
  walk_parameters(*this, visit, [](const MultiHeadAttention& layer, const auto& each) {
    for (const NamedParameter& p : layer.parameters()) each(p.name, p.value);
  });
}

template <typename Visit>
void GptLayers::change_each(const Visit& visit) {
  packed_mlps.clear();  // first: a change that throws may have written already
  packed_head.reset();
  ++version;
  walk_parameters(*this, visit,
                  [](MultiHeadAttention& layer, const auto& each) { layer.update_all(each); });
}

}  // namespace cephalo
