#pragma once

#include <optional>
#include <string>

#include "cephalo/attention/layer/rotary.h"
#include "cephalo/io/config_keys.h"

namespace cephalo {

// What config.json of a model's folder says of each of its attention layers.
struct LayerConfig {
  dim_t d_model = 0;
  dim_t num_heads = 0;
  dim_t num_kv_heads = 0;
  dim_t context_length = 0;
  std::optional<double> dropout = {};  // of the weights
  std::optional<Rotary> rotary = {};
};

// Refuses what no layer of ours computes: other scales, other kinds of model.
void refuse_other_models(ConfigKeys& keys);

// The same, and then what a layer is; sizes that do not fit each other are an error.
LayerConfig read_layer_config(ConfigKeys& keys);

// From config.json beside the file at `path`, where `prefix` names a layer of a GPT
// ("transformer.h.0.", "h.0.", "trf_blocks.0.att."); otherwise, and where there is none, nothing.
// Keys that are not known are an error unless `allow_extra`.
std::optional<LayerConfig> layer_config_beside(const std::string& path, const std::string& prefix,
                                               bool allow_extra);

}  // namespace cephalo
