#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cephalo/attention/layer/rotary.h"
#include "cephalo/core/tensor.h"
#include "cephalo/model/activation.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How the model knows where a token is: a learned vector added to its embedding, or rotary
// positions in every attention layer.
enum class PositionKind { learned, rotary };

// The sizes and the kind of a model.
struct GptOptions {
  dim_t vocab_size = 0;
  dim_t context_length = 0;
  dim_t d_model = 0;
  dim_t num_heads = 0;
  dim_t num_kv_heads = 0;  // 0: num_heads; fewer are shared by neighbouring heads
  dim_t num_layers = 0;
  dim_t d_mlp = 0;       // 0: 4 · d_model
  double dropout = 0.0;  // of embeddings, weights and what a layer adds; in train_pass only
  bool qkv_bias = true;
  bool tied_head = true;  // the output head is the token embedding
  PositionKind positions = PositionKind::learned;
  Rotary rotary = {};  // where positions are rotary
  Activation activation = Activation::gelu_tanh;
  double norm_epsilon = 1e-5;
  std::optional<std::uint64_t> seed = {};  // none: random, and seed() says which
  DType dtype = DType::f32;                // or f64, for gradient checks

  dim_t head_dim() const { return d_model / num_heads; }  // of checked options, as the next one
  dim_t kv_width() const { return num_kv_heads * head_dim(); }
};

// One field of GptOptions, as everything that reads or writes options sees it.
struct OptionField {
  enum class Range {
    size,      // > 0, and always said
    optional,  // a size that follows from others where it is 0
    share,     // in [0, 1)
    positive,  // and finite
    any
  };
  const char* name;
  Range range = Range::any;
  const char* otherwise = "";  // what an optional size follows from
};

// The one list of fields: config.json, checkpoints, Python and the program follow from it. Calls
// visit(field, member) for each, in the order above; Options is GptOptions, const or not.
template <typename Options, typename Visit>
requires std::same_as<std::remove_const_t<Options>, GptOptions>
void for_fields(Options& o, Visit&& visit) {
  using Range = OptionField::Range;
  visit(OptionField{"vocab_size", Range::size}, o.vocab_size);
  visit(OptionField{"context_length", Range::size}, o.context_length);
  visit(OptionField{"d_model", Range::size}, o.d_model);
  visit(OptionField{"num_heads", Range::size}, o.num_heads);
  visit(OptionField{"num_kv_heads", Range::optional, "num_heads"}, o.num_kv_heads);
  visit(OptionField{"num_layers", Range::size}, o.num_layers);
  visit(OptionField{"d_mlp", Range::optional, "4 · d_model"}, o.d_mlp);
  visit(OptionField{"dropout", Range::share}, o.dropout);
  visit(OptionField{"qkv_bias"}, o.qkv_bias);
  visit(OptionField{"tied_head"}, o.tied_head);
  visit(OptionField{"positions"}, o.positions);
  visit(OptionField{"rotary"}, o.rotary);
  visit(OptionField{"activation"}, o.activation);
  visit(OptionField{"norm_epsilon", Range::positive}, o.norm_epsilon);
  visit(OptionField{"seed"}, o.seed);
  visit(OptionField{"dtype"}, o.dtype);
}

// The words for the values of a field, in the order of their enumeration.
std::span<const char* const> words_of(PositionKind);
std::span<const char* const> words_of(Activation);

// An enumeration with such words, and the word for one of its values.
template <typename Enum>
concept HasWords = requires(Enum value) {
  words_of(value);
};
template <HasWords Enum>
const char* name(Enum value) {
  return words_of(value)[static_cast<std::size_t>(value)];
}

// Throws unless such a model can be; -> the same with num_kv_heads and d_mlp filled in.
GptOptions checked_options(const GptOptions& options, const char* function);

// Sizes of GPT-2 and GPT-3 by their names in presets.h: gpt2-small, gpt2 or 124M, …, gpt3 or 175B.
GptOptions gpt_preset(const std::string& name);  // an error that lists the names
const std::vector<std::string>& gpt_preset_names();

}  // namespace cephalo
#pragma GCC visibility pop
