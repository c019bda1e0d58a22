#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/io/safetensors.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What the numbers of a layer cannot show. For a layer of a GPT's folder (prefix
// "transformer.h.0.", "h.0." or "trf_blocks.0.att.") the config.json next to the file says it; a
// file that cephalo wrote carries it in its metadata; for others it is given here. What is given
// wins over what is written.
struct LayerSettings {
  std::optional<dim_t> num_heads = {};
  std::optional<dim_t> num_kv_heads = {};
  std::optional<dim_t> context_length = {};  // else read from a `mask` buffer
  std::optional<bool> causal = {};           // else true, except for the bidirectional forms
  std::optional<double> dropout = {};
  std::optional<Rotary> rotary = {};
};

// How to read a layer from a file.
struct LoadOptions {
  LayerSettings settings = {};
  std::string prefix = {};   // of the layer's names in a bigger file: "h.0."
  bool strict = false;       // NaN or infinity among the parameters is an error, not a warning
  bool allow_extra = false;  // tensors that the form does not know are ignored
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};  // bytes read
};

// How to write a layer to a file.
struct SaveOptions {
  std::optional<Form> form = {};  // none: the layer's own
  bool with_mask = false;         // the buffers that PyTorch's strict loading asks for
  bool zero_bias = false;         // forms that always have biases get zeros
  bool allow_rotary = false;      // also under the names of a form whose classes have no such thing
  bool replace = false;
};

// Which form these names are, and what of them is what.
struct LayerContents {
  Form form;
  std::vector<const SafetensorsFile::Entry*> parameters;
  std::vector<const SafetensorsFile::Entry*> buffers;  // mask, attn.bias …: never counted
  std::vector<const SafetensorsFile::Entry*> extra;
};
LayerContents inspect_layer(const SafetensorsFile& file, const std::string& prefix = {});

// The layer in a file, in eval mode. Warnings (NaN among the parameters) are appended.
MultiHeadAttention load_layer(const std::string& path, const LoadOptions& options = {},
                              std::vector<std::string>* warnings = nullptr);

// What the metadata of a file says of a layer, for load_layer.
std::map<std::string, std::string> layer_metadata(const MultiHeadAttentionOptions& options);

// Writes a layer under the names of a form: without loss, or not at all, with the reason.
void save_layer(const MultiHeadAttention& layer, const std::string& path,
                const SaveOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
