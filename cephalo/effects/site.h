#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cephalo/model/gpt_options.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A place on the way of tokens through a model, where numbers can be kept or replaced.
enum class Site {
  token_embedding,
  position_embedding,
  resid_pre,     // the residual stream before a layer
  norm_1_scale,  // √(variance + epsilon) of each row
  norm_1,        // what attention is given
  q,             // before rotary, as k
  k,
  v,
  rotated_q,  // what is compared; without rotary the same as q, k
  rotated_k,
  scores,  // scaled and masked
  weights,
  context,        // a head's weighted values, before the output projection
  head_out,       // what each head adds to the stream
  attention_out,  // what all add, bias included
  resid_mid,
  norm_2_scale,
  norm_2,
  mlp_hidden,  // before the activation
  mlp_active,  // after it
  mlp_out,
  resid_post,  // after a layer
  last_norm_scale,
  last_norm,
  logits
};

// Its axes.
enum class SiteAxes {
  model,           // [batch, tokens, d_model]
  one,             // [batch, tokens, 1]
  hidden,          // [batch, tokens, d_mlp]
  heads,           // [batch, num_heads, tokens, head_dim]
  kv_heads,        // [batch, num_kv_heads, tokens, head_dim]
  heads_to_model,  // [batch, num_heads, tokens, d_model]
  pairs,           // [batch, num_heads, tokens, tokens]: query, key
  vocab            // [batch, tokens, vocab_size]
};

// A site under its names: ours, and that of TransformerLens. `{}` stands for the layer.
struct SiteInfo {
  Site site;
  const char* name;              // "layer.{}.resid_pre"
  const char* transformer_lens;  // "blocks.{}.hook_resid_pre"; "" where it has none
  SiteAxes axes;
};
std::span<const SiteInfo> sites();  // in the order in which a token passes them

// A site of one layer, and how it was asked for.
struct LayerSite {
  Site site = Site::logits;
  dim_t layer = 0;  // 0 where the site belongs to no layer
  bool transformer_lens = false;
  bool operator==(const LayerSite&) const = default;
};

// Are its axes [batch, tokens, heads, …]? Under a name of TransformerLens, where ours are
// [batch, heads, tokens, …].
bool tokens_first(const LayerSite& site);

// "layer.3.weights" or "blocks.3.attn.hook_pattern". An error that names the nearest: there is no
// such name, or no such layer, or no such thing in this model (position_embedding with rotary).
LayerSite parse_site(std::string_view name, const GptOptions& model);
std::string name_of(const LayerSite& site);  // as it was asked for

}  // namespace cephalo
#pragma GCC visibility pop
