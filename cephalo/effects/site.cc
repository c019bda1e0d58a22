#include "cephalo/effects/site.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/nearest.h"
#include "cephalo/core/printable.h"

namespace cephalo {
namespace {

using Axes = SiteAxes;

constexpr SiteInfo kSites[] = {
    {Site::token_embedding, "token_embedding", "hook_embed", Axes::model},
    {Site::position_embedding, "position_embedding", "hook_pos_embed", Axes::model},
    {Site::resid_pre, "layer.{}.resid_pre", "blocks.{}.hook_resid_pre", Axes::model},
    {Site::norm_1_scale, "layer.{}.norm_1_scale", "blocks.{}.ln1.hook_scale", Axes::one},
    {Site::norm_1, "layer.{}.norm_1", "blocks.{}.ln1.hook_normalized", Axes::model},
    {Site::q, "layer.{}.q", "blocks.{}.attn.hook_q", Axes::heads},
    {Site::k, "layer.{}.k", "blocks.{}.attn.hook_k", Axes::kv_heads},
    {Site::v, "layer.{}.v", "blocks.{}.attn.hook_v", Axes::kv_heads},
    {Site::rotated_q, "layer.{}.rotated_q", "blocks.{}.attn.hook_rot_q", Axes::heads},
    {Site::rotated_k, "layer.{}.rotated_k", "blocks.{}.attn.hook_rot_k", Axes::kv_heads},
    {Site::scores, "layer.{}.scores", "blocks.{}.attn.hook_attn_scores", Axes::pairs},
    {Site::weights, "layer.{}.weights", "blocks.{}.attn.hook_pattern", Axes::pairs},
    {Site::context, "layer.{}.context", "blocks.{}.attn.hook_z", Axes::heads},
    {Site::head_out, "layer.{}.head_out", "blocks.{}.attn.hook_result", Axes::heads_to_model},
    {Site::attention_out, "layer.{}.attention_out", "blocks.{}.hook_attn_out", Axes::model},
    {Site::resid_mid, "layer.{}.resid_mid", "blocks.{}.hook_resid_mid", Axes::model},
    {Site::norm_2_scale, "layer.{}.norm_2_scale", "blocks.{}.ln2.hook_scale", Axes::one},
    {Site::norm_2, "layer.{}.norm_2", "blocks.{}.ln2.hook_normalized", Axes::model},
    {Site::mlp_hidden, "layer.{}.mlp_hidden", "blocks.{}.mlp.hook_pre", Axes::hidden},
    {Site::mlp_active, "layer.{}.mlp_active", "blocks.{}.mlp.hook_post", Axes::hidden},
    {Site::mlp_out, "layer.{}.mlp_out", "blocks.{}.hook_mlp_out", Axes::model},
    {Site::resid_post, "layer.{}.resid_post", "blocks.{}.hook_resid_post", Axes::model},
    {Site::last_norm_scale, "last_norm_scale", "ln_final.hook_scale", Axes::one},
    {Site::last_norm, "last_norm", "ln_final.hook_normalized", Axes::model},
    {Site::logits, "logits", "", Axes::vocab},
};

const SiteInfo& info_of(Site site) {
  return kSites[static_cast<std::size_t>(site)];
}

constexpr std::string_view kLayer = "{}";

bool belongs_to_a_layer(Site site) {
  return std::string_view(info_of(site).name).find(kLayer) != std::string_view::npos;
}

bool is_in(const GptOptions& model, Site site) {
  return site != Site::position_embedding || model.positions == PositionKind::learned;
}

struct Numbered {
  std::string name;            // with `{}` for the number
  std::optional<dim_t> layer;  // none: no number, or one that is not written as we write it
};

// "layer.12.weights" -> "layer.{}.weights" and 12
Numbered without_number(std::string_view name) {
  const std::size_t begin = name.find_first_of("0123456789");
  if (begin == std::string_view::npos || begin == 0 || name[begin - 1] != '.') {
    return {std::string(name), {}};
  }
  dim_t layer = 0;
  const auto [end, problem] =
      std::from_chars(name.data() + begin, name.data() + name.size(), layer);
  const std::string_view digits(name.data() + begin,
                                static_cast<std::size_t>(end - name.data()) - begin);
  if (problem != std::errc() || (digits.size() > 1 && digits[0] == '0')) {
    return {std::string(name), {}};
  }
  return {std::string(name.substr(0, begin)) + std::string(kLayer) +
              std::string(name.substr(begin + digits.size())),
          layer};
}

std::vector<std::string> known_names(const GptOptions& model, dim_t layer) {
  std::vector<std::string> names;
  for (const bool transformer_lens : {false, true}) {
    for (const SiteInfo& info : kSites) {
      if (!is_in(model, info.site)) continue;
      names.push_back(name_of({info.site, layer, transformer_lens}));
    }
  }
  return names;
}

[[noreturn]] void fail_unknown(std::string_view name, std::optional<dim_t> layer,
                               const GptOptions& model) {
  const bool there_is = layer && *layer < model.num_layers;
  constexpr std::size_t kLongest = 64;  // a text of megabytes is not compared
  // If no letter stays, nothing is near.
  const std::string nearest = nearest_name(name.substr(0, kLongest),
                                           known_names(model, there_is ? *layer : 0), name.size());
  require(nearest.empty(), "no activation is called \"{}\"; did you mean \"{}\"?", shown(name),
          nearest);
  fail(Error::Kind::value,
       "no activation is called \"{}\"; names are like \"layer.0.resid_pre\" and "
       "\"blocks.0.hook_resid_pre\"",
       shown(name));
}

}  // namespace

std::span<const SiteInfo> sites() {
  return kSites;
}

bool tokens_first(const LayerSite& site) {
  const Axes axes = info_of(site.site).axes;
  return site.transformer_lens &&
         (axes == Axes::heads || axes == Axes::kv_heads || axes == Axes::heads_to_model);
}

LayerSite parse_site(std::string_view name, const GptOptions& model) {
  const auto [numbered, layer] = without_number(name);
  for (const SiteInfo& info : kSites) {
    const bool ours = numbered == info.name;
    if (name.empty() || (!ours && numbered != info.transformer_lens)) continue;
    if (belongs_to_a_layer(info.site) && !layer) break;  // "layer.{}.q", as a table shows it
    require(layer.value_or(0) < model.num_layers, "\"{}\": the model has layers 0 to {}",
            shown(name), model.num_layers - 1);
    require(is_in(model, info.site),
            "\"{}\": this model has rotary positions, which are not added to the embedding; see "
            "layer.0.rotated_q",
            shown(name));
    return {info.site, layer.value_or(0), !ours};
  }
  fail_unknown(name, layer, model);
}

std::string name_of(const LayerSite& site) {
  const SiteInfo& info = info_of(site.site);
  const bool theirs = site.transformer_lens && *info.transformer_lens != '\0';
  std::string name = theirs ? info.transformer_lens : info.name;
  const std::size_t at = name.find(kLayer);
  if (at != std::string::npos) name.replace(at, kLayer.size(), std::to_string(site.layer));
  return name;
}

}  // namespace cephalo
