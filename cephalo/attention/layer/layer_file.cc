#include "cephalo/attention/layer/layer_file.h"

#include <algorithm>
#include <utility>

#include "cephalo/attention/layer/layer_config.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/finite.h"
#include "cephalo/core/ops.h"
#include "cephalo/io/json.h"

namespace cephalo {
namespace {

using Entry = SafetensorsFile::Entry;

constexpr const char* kSettingsKey = "cephalo";

// The name that tells each form, and its other spelling.
struct Mark {
  Form form;
  const char* name;
};
constexpr Mark kMarks[] = {
    {Form::separate, "W_query.weight"},      {Form::raw, "W_query"},
    {Form::heads, "heads.0.W_query.weight"}, {Form::linear, "q_linear.weight"},
    {Form::joined, "qkv_proj.weight"},       {Form::joined, "qkv.weight"},
    {Form::torch, "in_proj_weight"},         {Form::gpt2, "attn.c_attn.weight"}};

bool is_buffer(const std::string& name) {
  return name == "mask" || (name.starts_with("heads.") && name.ends_with(".mask")) ||
         name == "attn.bias" || name == "attn.masked_bias";
}

// "qkv.weight" is "qkv_proj.weight", "proj.bias" is "out_proj.bias".
std::string usual_name(const std::string& name) {
  if (name.starts_with("qkv.")) return "qkv_proj." + name.substr(4);
  if (name.starts_with("proj.")) return "out_proj." + name.substr(5);
  return name;
}

bool belongs_to(Form form, const std::string& name) {
  const auto begins = [&](std::initializer_list<const char*> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const char* prefix) { return name.starts_with(prefix); });
  };
  switch (form) {
    case Form::separate:
      return begins({"W_query.", "W_key.", "W_value.", "out_proj."});
    case Form::raw:
      return name == "W_query" || name == "W_key" || name == "W_value";
    case Form::heads:
      return begins({"heads.", "out_proj."});
    case Form::linear:
      return begins({"q_linear.", "k_linear.", "v_linear.", "out_proj."});
    case Form::joined:
      return begins({"qkv_proj.", "out_proj."});
    case Form::torch:
      return begins({"in_proj_", "out_proj."});
    case Form::gpt2:
      return begins({"attn.c_attn.", "attn.c_proj."});
  }
  return false;
}

// The parameters of one layer by their usual names, prefix taken off.
class NamedEntries {
 public:
  NamedEntries(const SafetensorsFile& file, const LayerContents& contents,
               const std::string& prefix)
      : path_(file.path()), prefix_(prefix) {
    for (const Entry* entry : contents.parameters) {
      entries_.emplace(usual_name(entry->name.substr(prefix.size())), entry);
    }
  }

  bool has(const std::string& name) const { return entries_.contains(name); }

  const Entry& at(const std::string& name) const {
    const auto found = entries_.find(name);
    require(found != entries_.end(), "{}: {}{}: is missing", path_, prefix_, name);
    return *found->second;
  }

  // Rows and columns of a weight.
  std::pair<dim_t, dim_t> matrix(const std::string& name) const {
    const Entry& entry = at(name);
    require(entry.shape.rank() == 2, "{}: {}: has shape {}, a matrix is expected", path_,
            entry.name, entry.shape);
    return {entry.shape[0], entry.shape[1]};
  }

  DType common_type() const {
    const Entry& first = *entries_.begin()->second;
    for (const auto& [name, entry] : entries_) {
      require(entry->dtype == first.dtype, "{}: {} is {} but {} is {}; one type is needed", path_,
              entry->name, name_of(*entry), first.name, name_of(first));
      require(is_floating(entry->dtype), "{}: {}: parameters cannot be {}", path_, entry->name,
              name_of(*entry));
    }
    return first.dtype;
  }

  std::size_t size() const { return entries_.size(); }
  const std::map<std::string, const Entry*>& all() const { return entries_; }

 private:
  static const char* name_of(const Entry& entry) { return name(entry.dtype); }

  const std::string& path_;
  const std::string& prefix_;
  std::map<std::string, const Entry*> entries_;
};

// One number of the settings in the metadata; absent is absent, anything else must be right.
template <typename T>
void read_setting(const Json& json, const char* key, const std::string& path,
                  std::optional<T>& to) {
  if (to || !json.contains(key) || json.at(key).is_null()) return;
  const Json& value = json.at(key);
  bool fits = value.is_boolean();
  if constexpr (std::is_same_v<T, dim_t>) fits = value.is_unsigned();
  if constexpr (std::is_same_v<T, double>) fits = value.is_number();
  require(fits, "{}: __metadata__: cephalo: {} cannot be {}", path, key, shown_json(value));
  if constexpr (std::is_same_v<T, dim_t>) {
    to = value.as_int64();
  } else if constexpr (std::is_same_v<T, double>) {
    to = value.as_double();
  } else {
    to = value.as_bool();
  }
}

void add_settings_of_file(const SafetensorsFile& file, LayerSettings& settings) {
  const auto found = file.metadata().find(kSettingsKey);
  if (found == file.metadata().end()) return;
  const std::string name = file.path() + ": __metadata__: cephalo";
  const Json json = parse_json(found->second, name);
  require(json.is_object(), "{}: is not a JSON object", name);
  read_setting(json, "num_heads", file.path(), settings.num_heads);
  read_setting(json, "num_kv_heads", file.path(), settings.num_kv_heads);
  read_setting(json, "context_length", file.path(), settings.context_length);
  read_setting(json, "causal", file.path(), settings.causal);
  read_setting(json, "dropout", file.path(), settings.dropout);
  if (!settings.rotary && json.contains("rotary") && json.at("rotary").is_object()) {
    std::optional<double> base;
    std::optional<bool> interleaved;
    read_setting(json.at("rotary"), "base", file.path(), base);
    read_setting(json.at("rotary"), "interleaved", file.path(), interleaved);
    settings.rotary =
        Rotary{.interleaved = interleaved.value_or(false), .base = base.value_or(Rotary{}.base)};
  }
}

void add_settings_of_config(const LayerConfig& config, LayerSettings& settings) {
  if (!settings.num_heads) settings.num_heads = config.num_heads;
  if (!settings.num_kv_heads && config.num_kv_heads != config.num_heads) {
    settings.num_kv_heads = config.num_kv_heads;
  }
  if (!settings.context_length) settings.context_length = config.context_length;
  if (!settings.dropout) settings.dropout = config.dropout;
  if (!settings.rotary) settings.rotary = config.rotary;
}

void add_context_length_of_mask(const LayerContents& contents, LayerSettings& settings) {
  for (const Entry* buffer : contents.buffers) {
    const bool square = buffer->shape.rank() >= 2 && buffer->shape[-1] == buffer->shape[-2];
    if (!settings.context_length && buffer->name.ends_with("mask") && square) {
      settings.context_length = buffer->shape[-1];
    }
  }
}

// The widths of q, k and v and of what they are made from, as the shapes show them.
struct Widths {
  dim_t q, k, v;
  dim_t d_in, d_kv;
  bool qkv_bias;
};

Widths widths_of(const NamedEntries& named, Form form, LayerSettings& settings,
                 const std::string& path) {
  const auto parts = [&](const char* q, const char* k, const char* v, bool transposed) {
    auto [q_rows, q_columns] = named.matrix(q);
    auto [k_rows, k_columns] = named.matrix(k);
    auto [v_rows, v_columns] = named.matrix(v);
    if (transposed) {
      std::swap(q_rows, q_columns);
      std::swap(k_rows, k_columns);
      std::swap(v_rows, v_columns);
    }
    require(k_columns == v_columns,
            "{}: {} has shape {} but {} has shape {}: they share an input; is one transposed?",
            path, k, named.at(k).shape, v, named.at(v).shape);
    return Widths{q_rows, k_rows, v_rows, q_columns, k_columns, false};
  };
  Widths w{};
  switch (form) {
    case Form::separate:
      w = parts("W_query.weight", "W_key.weight", "W_value.weight", false);
      w.qkv_bias = named.has("W_query.bias");
      return w;
    case Form::linear:
      w = parts("q_linear.weight", "k_linear.weight", "v_linear.weight", false);
      w.qkv_bias = named.has("q_linear.bias");
      return w;
    case Form::raw:
      if (!settings.num_heads) settings.num_heads = 1;
      return parts("W_query", "W_key", "W_value", true);
    case Form::heads: {
      dim_t heads = 0;
      while (named.has(format_text("heads.{}.W_query.weight", heads))) ++heads;
      require(!settings.num_heads || *settings.num_heads == heads,
              "{}: has {} heads, num_heads is given as {}", path, heads,
              settings.num_heads.value_or(0));
      settings.num_heads = heads;
      w = parts("heads.0.W_query.weight", "heads.0.W_key.weight", "heads.0.W_value.weight", false);
      w.q = checked_mul(w.q, heads);
      w.k = checked_mul(w.k, heads);
      w.v = checked_mul(w.v, heads);
      w.qkv_bias = named.has("heads.0.W_query.bias");
      return w;
    }
    case Form::joined:
    case Form::torch:
    case Form::gpt2: {
      const char* weight = form == Form::joined  ? "qkv_proj.weight"
                           : form == Form::torch ? "in_proj_weight"
                                                 : "attn.c_attn.weight";
      auto [rows, columns] = named.matrix(weight);
      if (form == Form::gpt2) std::swap(rows, columns);
      // With g query heads to a kv head the rows are q + 2 q / g.
      const dim_t heads = settings.num_heads.value_or(1);
      const dim_t kv_heads = settings.num_kv_heads.value_or(heads);
      const dim_t all_heads = checked_add(heads, checked_mul(2, kv_heads));
      require(all_heads > 0 && rows % all_heads == 0,
              "{}: {}: {} rows are not {} heads of q and {} of k and v each", path, weight, rows,
              heads, kv_heads);
      const dim_t head_dim = rows / all_heads;
      const bool bias =
          named.has("qkv_proj.bias") || named.has("in_proj_bias") || named.has("attn.c_attn.bias");
      return {heads * head_dim, kv_heads * head_dim, kv_heads * head_dim, columns, columns, bias};
    }
  }
  return w;
}

MultiHeadAttentionOptions options_of(const NamedEntries& named, Form form, LayerSettings settings,
                                     const std::string& path) {
  const Widths w = widths_of(named, form, settings, path);
  require(settings.num_heads.has_value(),
          "{}: num_heads is not in the file and cannot be inferred from it; pass num_heads", path);
  const dim_t heads = *settings.num_heads;
  require(heads > 0 && w.q % heads == 0, "{}: num_heads ({}) does not divide the width of q ({})",
          path, heads, w.q);
  const dim_t head_dim = w.q / heads;
  require(head_dim > 0 && w.k % head_dim == 0,
          "{}: the width of k ({}) is not a multiple of head_dim ({})", path, w.k, head_dim);
  const dim_t kv_heads = settings.num_kv_heads.value_or(w.k / head_dim);
  require(kv_heads > 0 && kv_heads * head_dim == w.k && w.v % kv_heads == 0,
          "{}: widths of k ({}) and v ({}) do not fit {} kv heads of head_dim {}", path, w.k, w.v,
          kv_heads, head_dim);
  const bool bidirectional =
      form == Form::raw || form == Form::linear || form == Form::joined || form == Form::torch;
  const char* out = form == Form::gpt2 ? "attn.c_proj" : "out_proj";
  return {.d_in = w.d_in,
          .d_out = w.q,
          .context_length = settings.context_length.value_or(0),
          .dropout = settings.dropout.value_or(0.0),
          .num_heads = heads,
          .qkv_bias = w.qkv_bias,
          .num_kv_heads = kv_heads,
          .d_kv = w.d_kv,
          .v_dim = w.v / kv_heads,
          .out_proj = named.has(std::string(out) + ".weight"),
          .out_bias = named.has(std::string(out) + ".bias"),
          .causal = settings.causal.value_or(!bidirectional),
          .rotary = settings.rotary,
          .form = form,
          .dtype = named.common_type()};
}

// PyTorch's classes hold the future as a buffer of ones above the diagonal.
std::vector<std::string> mask_names(const MultiHeadAttentionOptions& o, Form form) {
  if (form != Form::heads) return {"mask"};
  std::vector<std::string> names;
  for (dim_t h = 0; h < o.num_heads; ++h) names.push_back(format_text("heads.{}.mask", h));
  return names;
}

// What the form's names say nothing of is in the metadata, which other programs pass over: under
// the names of somebody else's class that must be wanted.
void refuse_what_is_unsaid(const MultiHeadAttentionOptions& o, Form form, const std::string& path,
                           const SaveOptions& options) {
  require(!o.rotary || form == o.form || options.allow_rotary,
          "{}: form {} cannot hold rotary positions; allow_rotary = true puts them into the "
          "metadata, which only cephalo reads",
          path, name(form));
}

}  // namespace

std::map<std::string, std::string> layer_metadata(const MultiHeadAttentionOptions& o) {
  Json json = {{"num_heads", o.num_heads},
               {"num_kv_heads", o.num_kv_heads == 0 ? o.num_heads : o.num_kv_heads},
               {"context_length", o.context_length},
               {"causal", o.causal},
               {"dropout", o.dropout},
               {"rotary", nullptr}};
  if (o.rotary) {
    json["rotary"] = {{"base", o.rotary->base}, {"interleaved", o.rotary->interleaved}};
  }
  return {{kSettingsKey, json.dump()}};
}

LayerContents inspect_layer(const SafetensorsFile& file, const std::string& prefix) {
  const Mark* found = nullptr;
  for (const Mark& mark : kMarks) {
    if (file.find(prefix + mark.name) == nullptr) continue;
    require(found == nullptr, "{}: holds {}{} and {}{}: which form is it?", file.path(), prefix,
            found != nullptr ? found->name : "", prefix, mark.name);
    found = &mark;
  }
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const Entry& entry : file.entries()) {
      if (names.size() < 8) names.push_back(entry.name);
    }
    fail(Error::Kind::value, "{}: no attention layer{}{}: found {}{}", file.path(),
         prefix.empty() ? "" : " under ", prefix,
         names.empty() ? "no tensors" : joined(names, ", "),
         file.entries().size() > 8 ? format_text(" and {} more", file.entries().size() - 8) : "");
  }
  LayerContents contents{found->form, {}, {}, {}};
  for (const Entry& entry : file.entries()) {
    if (!entry.name.starts_with(prefix)) continue;
    const std::string name = entry.name.substr(prefix.size());
    if (is_buffer(name)) {
      contents.buffers.push_back(&entry);
    } else if (belongs_to(found->form, usual_name(name))) {
      contents.parameters.push_back(&entry);
    } else {
      contents.extra.push_back(&entry);
    }
  }
  return contents;
}

MultiHeadAttention load_layer(const std::string& path, const LoadOptions& options,
                              std::vector<std::string>* warnings) {
  const SafetensorsFile file(path);
  const LayerContents contents = inspect_layer(file, options.prefix);
  // A prefix names one layer of a bigger file: its neighbours are no mistake.
  if (!contents.extra.empty() && !options.allow_extra && options.prefix.empty()) {
    fail(Error::Kind::value, "{}: {}: is not part of form {} (allow_extra = true ignores it)", path,
         contents.extra.front()->name, name(contents.form));
  }
  LayerSettings settings = options.settings;
  const std::optional<LayerConfig> config =
      layer_config_beside(path, options.prefix, options.allow_extra);
  if (config) {
    add_settings_of_config(*config, settings);
  } else {
    add_settings_of_file(file, settings);
  }
  add_context_length_of_mask(contents, settings);
  const NamedEntries named(file, contents, options.prefix);
  std::size_t used = 0;
  std::int64_t done = 0;
  std::int64_t bytes = 0;
  for (const Entry* entry : contents.parameters) bytes += entry->end - entry->begin;
  const MultiHeadAttentionOptions found = options_of(named, contents.form, settings, path);
  require(!config || config->d_model == found.d_in,
          "{}: {}: the layer is {} wide, config.json says n_embd {}", path, options.prefix,
          found.d_in, config ? config->d_model : 0);
  MultiHeadAttention layer(found, [&](const std::string& parameter, const MutableTensorView& to) {
    const Entry& entry = named.at(parameter);
    file.read_into(entry, to);
    ++used;
    done += entry.end - entry.begin;
    if (options.progress) options.progress(done, bytes);
    const dim_t bad = count_not_finite(to);
    if (bad == 0) return;
    const std::string message =
        format_text("{}: {}: {} numbers are NaN or infinite", path, entry.name, bad);
    if (options.strict) fail(Error::Kind::value, "{}", message);
    if (warnings != nullptr) warnings->push_back(message);
  });
  if (used != named.size() && !options.allow_extra) {
    const std::vector<NamedParameter> all = layer.parameters();
    for (const auto& [parameter, entry] : named.all()) {
      const std::string& wanted = parameter;
      const bool known = std::any_of(all.begin(), all.end(),
                                     [&](const NamedParameter& p) { return p.name == wanted; });
      require(known, "{}: {}: does not belong to this layer (allow_extra = true ignores it)", path,
              entry->name);
    }
  }
  return layer;
}

void save_layer(const MultiHeadAttention& layer, const std::string& path,
                const SaveOptions& options) {
  const MultiHeadAttentionOptions& o = layer.options();
  const Form form = options.form.value_or(o.form);
  std::vector<std::pair<std::string, TensorView>> tensors;
  std::vector<Tensor> added;  // zero biases and masks; reserved, so that views stay valid
  added.reserve(16);
  const bool always_biased = form == Form::linear || form == Form::gpt2;
  const std::vector<NamedParameter> named = layer.parameters_as(form);
  refuse_what_is_unsaid(o, form, path, options);
  for (const NamedParameter& p : named) tensors.emplace_back(p.name, p.value);
  for (const NamedParameter& p : named) {
    if (!always_biased || !p.name.ends_with(".weight")) continue;
    const std::string bias = p.name.substr(0, p.name.size() - 6) + "bias";
    const bool present = std::any_of(named.begin(), named.end(),
                                     [&](const NamedParameter& q) { return q.name == bias; });
    if (present) continue;
    require(options.zero_bias,
            "{}: form {} has {}, this layer has none; zero_bias = true adds zeros", path,
            name(form), bias);
    const dim_t width = form == Form::gpt2 ? p.value.dim(1) : p.value.dim(0);
    added.push_back(Tensor::zeros({width}, p.value.dtype()));
    tensors.emplace_back(bias, added.back());
  }
  if (options.with_mask) {
    require(o.causal && o.context_length > 0,
            "{}: a mask needs a causal layer with a context_length", path);
    added.push_back(triu(Tensor::full({o.context_length, o.context_length}, 1.0), 1));
    for (const std::string& mask : mask_names(o, form)) tensors.emplace_back(mask, added.back());
  }
  write_safetensors(path, tensors, layer_metadata(o), options.replace);
}

}  // namespace cephalo
