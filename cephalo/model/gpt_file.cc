#include "cephalo/model/gpt_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/model/gpt_layers.h"

namespace cephalo {
namespace {

using Entry = SafetensorsFile::Entry;
constexpr const char* kRoot = "transformer.";
constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Where a parameter lies in a file: whole, or as neighbouring parts (W_query, W_key, W_value).
struct Place {
  std::vector<std::string> names;
  bool transposed = false;  // stored in × out
};

// name without `prefix`, or the whole name
std::string without(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// GPT-2's own linear layers are the ones that begin with c_; the head is one of PyTorch's.
Place hugging_face_place(const std::string& name, const std::string& root) {
  const bool across = name.find(".c_") != std::string::npos && name.ends_with(".weight");
  return {{name == "lm_head.weight" ? name : root + without(name, kRoot)}, across};
}

// "transformer.h.N.attn.c_attn.weight" -> "trf_blocks.N." and "attn.c_attn", "weight"
Place book_place(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> kNames = {
      {"wte", {"tok_emb"}},
      {"wpe", {"pos_emb"}},
      {"ln_f", {"final_norm"}},
      {"lm_head", {"out_head"}},
      {"ln_1", {"norm1"}},
      {"ln_2", {"norm2"}},
      {"attn.c_attn", {"att.W_query", "att.W_key", "att.W_value"}},
      {"attn.c_proj", {"att.out_proj"}},
      {"mlp.c_fc", {"ff.layers.0"}},
      {"mlp.c_proj", {"ff.layers.2"}}};
  std::string rest = without(name, kRoot);
  std::string prefix;
  if (rest.starts_with("h.")) {
    const std::size_t dot = rest.find('.', 2);
    prefix = "trf_blocks." + rest.substr(2, dot - 1);
    rest = rest.substr(dot + 1);
  }
  const std::size_t dot = rest.rfind('.');
  const std::string module = rest.substr(0, dot);
  std::string part = rest.substr(dot + 1);
  if (module.starts_with("ln_")) part = part == "weight" ? "scale" : "shift";
  Place place;
  for (const std::string& each : kNames.at(module)) {
    place.names.push_back(prefix + each + "." + part);
  }
  return place;
}

// Buffers that PyTorch's classes register: masks, of no use here.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".att.mask");
}

// Every parameter of such a model by name and shape, without making it.
template <typename Visit>
void for_expected(const GptOptions& o, const Visit& visit) {
  const std::string root = kRoot;
  const dim_t d = o.d_model;
  visit(root + "wte.weight", Shape{o.vocab_size, d});
  if (o.positions == Positions::learned) {
    visit(root + "wpe.weight", Shape{o.context_length, d});
  }
  for (dim_t l = 0; l < o.num_layers; ++l) {
    const std::string prefix = format_text("{}h.{}.", root, l);
    const auto linear = [&](const char* name, dim_t out, dim_t in, bool bias) {
      visit(prefix + name + ".weight", Shape{out, in});
      if (bias) visit(prefix + name + ".bias", Shape{out});
    };
    for (const char* norm : {"ln_1.weight", "ln_1.bias"}) visit(prefix + norm, Shape{d});
    linear("attn.c_attn", checked_mul(3, d), d, o.qkv_bias);
    linear("attn.c_proj", d, d, true);
    for (const char* norm : {"ln_2.weight", "ln_2.bias"}) visit(prefix + norm, Shape{d});
    linear("mlp.c_fc", o.d_mlp, d, true);
    linear("mlp.c_proj", d, o.d_mlp, true);
  }
  visit(root + "ln_f.weight", Shape{d});
  visit(root + "ln_f.bias", Shape{d});
  if (!o.tied_head) visit("lm_head.weight", Shape{o.vocab_size, d});
}

MutableTensorView transposed(const MutableTensorView& t) {
  return {t.mutable_data(), t.dtype(), {t.dim(1), t.dim(0)}, {t.strides()[1], t.strides()[0]}};
}

dim_t count_not_finite(const TensorView& t) {
  const auto count = [&](const auto* values) {
    return std::count_if(values, values + t.numel(), [](auto x) { return !std::isfinite(x); });
  };
  return t.dtype() == DType::f64 ? count(t.data_as<double>()) : count(t.data_as<float>());
}

// The parameters' file of a folder, under one kind of names.
class GptFile {
 public:
  explicit GptFile(SafetensorsFile&& file) : file_(std::move(file)) {
    for (const Entry& entry : file_.entries()) entries_[entry.name] = &entry;
    if (entries_.contains("tok_emb.weight")) {
      names_ = GptNames::book;
    } else if (entries_.contains("transformer.wte.weight")) {
      root_ = kRoot;
    } else {
      require(entries_.contains("wte.weight"),
              "{}: is no GPT-2: it holds none of transformer.wte.weight, wte.weight and "
              "tok_emb.weight",
              file_.path());
    }
  }

  Place place_of(const std::string& name) const {
    return names_ == GptNames::book ? book_place(name) : hugging_face_place(name, root_);
  }
  std::string head_name() const {
    return names_ == GptNames::book ? "out_head.weight" : "lm_head.weight";
  }
  bool has_head() const { return entries_.contains(head_name()); }
  GptNames names() const { return names_; }
  const std::string& path() const { return file_.path(); }

  // The entries of a parameter of that shape, [out, in] for a matrix: all there, all fitting.
  std::vector<const Entry*> entries_of(const Place& place, const Shape& shape) const {
    Shape wanted = shape;
    if (place.transposed) std::swap(wanted[0], wanted[1]);
    if (place.names.size() > 1) wanted[0] /= static_cast<dim_t>(place.names.size());
    std::vector<const Entry*> found;
    for (const std::string& name : place.names) {
      const auto at = entries_.find(name);
      require(at != entries_.end(), "{}: {}: is missing; config.json asks for it", path(), name);
      require(at->second->shape == wanted, "{}: {}: has shape {}, config.json makes it {}", path(),
              name, at->second->shape, wanted);
      require(is_floating(at->second->dtype), "{}: {}: parameters cannot be {}", path(), name,
              cephalo::name(at->second->dtype));
      found.push_back(at->second);
    }
    return found;
  }

  // -> bytes read. `to`: [out, in], or [width]
  std::int64_t read(const Place& place, const MutableTensorView& to) const {
    const std::vector<const Entry*> parts = entries_of(place, to.shape());
    const dim_t rows = to.dim(0) / std::ssize(parts);
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const auto first = static_cast<dim_t>(k) * rows;
      const MutableTensorView part = to.slice(0, first, first + rows);
      file_.read_into(*parts[k], place.transposed ? transposed(part) : part);
      bytes += parts[k]->end - parts[k]->begin;
    }
    return bytes;
  }

  // A head beside tied parameters is a copy of the token embedding, or a mistake.
  void check_tied_head(const TensorView& token) const {
    if (!has_head()) return;
    Tensor head = Tensor::empty(token.shape(), token.dtype());
    file_.read_into(*entries_.at(head_name()), head);
    require(std::memcmp(head.data(), token.data(), token.bytes()) == 0,
            "{}: {}: differs from the token embedding, which config.json says it is tied to",
            path(), head_name());
  }

  void refuse_extra(const std::set<std::string>& used) const {
    for (const auto& [name, entry] : entries_) {
      const bool known = used.contains(name) || is_buffer(name) || name == head_name();
      require(known, "{}: {}: has no place in this model (--allow-extra ignores it)", path(), name);
    }
  }

 private:
  SafetensorsFile file_;
  std::map<std::string, const Entry*> entries_;
  GptNames names_ = GptNames::hugging_face;
  std::string root_;
};

// Compares names and shapes; -> bytes that will be read.
std::int64_t check_file(const GptFile& file, const GptOptions& o, bool allow_extra) {
  std::set<std::string> used;
  std::int64_t bytes = 0;
  for_expected(o, [&](const std::string& name, const Shape& shape) {
    const Place place = file.place_of(name);
    for (const Entry* entry : file.entries_of(place, shape)) bytes += entry->end - entry->begin;
    used.insert(place.names.begin(), place.names.end());
  });
  if (!allow_extra) file.refuse_extra(used);
  return bytes;
}

// config.json as it applies to a file, whose names and shapes fit it.
struct CheckedConfig {
  GptConfig config;
  std::int64_t bytes;  // that will be read
};

CheckedConfig checked_config(const GptFile& file, GptConfig config, const LoadGptOptions& options) {
  // The book's own files always have a head of their own.
  if (!config.tied_head && file.names() == GptNames::book) {
    config.options.tied_head = !file.has_head();
  }
  config.options.dtype = options.dtype;
  config.options = checked_options(config.options, "load_gpt");
  return {config, check_file(file, config.options, options.allow_extra)};
}

LoadedGpt load_from(const GptFile& file, const GptConfig& found, const LoadGptOptions& options,
                    std::vector<std::string>* warnings) {
  const CheckedConfig checked = checked_config(file, found, options);
  const GptConfig& config = checked.config;
  std::int64_t done = 0;
  Gpt model(config.options, [&](const std::string& name, const MutableTensorView& to) {
    done += file.read(file.place_of(name), to);
    if (options.progress) options.progress(done, checked.bytes);
    const dim_t bad = count_not_finite(to);
    if (bad == 0) return;
    const std::string message =
        format_text("{}: {}: {} numbers are NaN or infinite", file.path(), name, bad);
    if (options.strict) fail(Error::Kind::value, "{}", message);
    if (warnings != nullptr) warnings->push_back(message);
  });
  if (config.options.tied_head) file.check_tied_head(model.parameter("transformer.wte.weight"));
  return {std::move(model), config};
}

}  // namespace

std::string gpt_parameters_path(const std::string& folder) {
  const std::filesystem::path root(folder);
  for (const char* name : {kOneFile, kIndexFile}) {
    std::error_code ignored;
    if (std::filesystem::exists(root / name, ignored)) return (root / name).string();
  }
  fail(Error::Kind::io,
       "{}: holds neither model.safetensors nor model.safetensors.index.json; pytorch_model.bin is "
       "not read, save_pretrained of the transformers package writes safetensors",
       folder);
}

LoadedGpt load_gpt(const std::string& folder, const LoadGptOptions& options,
                   std::vector<std::string>* warnings) {
  const std::string config_path = (std::filesystem::path(folder) / "config.json").string();
  const GptConfig config = read_gpt_config(config_path, {options.allow_extra, warnings});
  const GptFile file(SafetensorsFile(gpt_parameters_path(folder)));
  return load_from(file, config, options, warnings);
}

GptConfig inspect_gpt(const std::string& folder, const LoadGptOptions& options) {
  const std::string config_path = (std::filesystem::path(folder) / "config.json").string();
  const GptConfig config = read_gpt_config(config_path, {options.allow_extra, nullptr});
  const GptFile file(SafetensorsFile(gpt_parameters_path(folder)));
  return checked_config(file, config, options).config;
}

LoadedGpt load_gpt(const std::string& name, const std::string& config_json,
                   std::span<const std::byte> parameters, const LoadGptOptions& options,
                   std::vector<std::string>* warnings) {
  const GptConfig config =
      parse_gpt_config(config_json, name + "/config.json", {options.allow_extra, warnings});
  const GptFile file(SafetensorsFile(InputFile(name + "/model.safetensors", parameters)));
  return load_from(file, config, options, warnings);
}

namespace {

// Tensors of the file, with memory for those that had to be converted.
struct FileTensors {
  std::vector<std::pair<std::string, TensorView>> list;
  std::vector<Tensor> converted;
};

FileTensors file_tensors(const Gpt& model, const SaveGptOptions& options) {
  FileTensors tensors;
  std::vector<GptParameter> parameters = model.parameters();
  if (options.names == GptNames::book && model.options().tied_head) {
    parameters.push_back(
        {"lm_head.weight", ParameterKind::matrix, model.parameter("transformer.wte.weight")});
  }
  tensors.converted.reserve(3 * parameters.size());
  for (const GptParameter& p : parameters) {
    const Place place =
        options.names == GptNames::book ? book_place(p.name) : hugging_face_place(p.name, kRoot);
    const dim_t rows = p.value.dim(0) / std::ssize(place.names);
    for (std::size_t k = 0; k < place.names.size(); ++k) {
      const auto first = static_cast<dim_t>(k) * rows;
      TensorView part = p.value.slice(0, first, first + rows);
      if (place.transposed) part = transpose(part, 0, 1);
      if (part.dtype() != options.dtype) {
        tensors.converted.push_back(Tensor::copy(part, options.dtype));
        part = tensors.converted.back();
      }
      tensors.list.emplace_back(place.names[k], part);
    }
  }
  return tensors;
}

void write_text(const std::string& path, const std::string& text, bool replace) {
  AtomicFile file(path, replace);
  file.write(text.data(), text.size());
  file.finish();
}

void write_shards(const std::filesystem::path& folder, const FileTensors& tensors,
                  const SaveGptOptions& options, const std::map<std::string, std::string>& note) {
  std::vector<std::vector<std::pair<std::string, TensorView>>> shards(1);
  std::int64_t filled = 0;
  std::int64_t total = 0;
  for (const auto& [name, view] : tensors.list) {
    const auto bytes = static_cast<std::int64_t>(view.bytes());
    if (filled > 0 && filled + bytes > options.shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().emplace_back(name, view);
    filled += bytes;
    total += bytes;
  }
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  for (std::size_t k = 0; k < shards.size(); ++k) {
    const std::string name = format_text("model-{:05}-of-{:05}.safetensors", k + 1, shards.size());
    write_safetensors((folder / name).string(), shards[k], note, options.replace);
    for (const auto& [tensor, view] : shards[k]) index["weight_map"][tensor] = name;
  }
  write_text((folder / kIndexFile).string(), index.dump(2) + "\n", options.replace);
}

}  // namespace

void save_gpt(const Gpt& model, const std::string& folder, const SaveGptOptions& options) {
  require_type(is_floating(options.dtype), "save_gpt: {}: parameters cannot be {}", folder,
               name(options.dtype));
  require(options.shard_bytes >= 0, "save_gpt: {}: shard_bytes ({}) must be >= 0", folder,
          options.shard_bytes);
  const std::filesystem::path root(folder);
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) fail(Error::Kind::io, "{}: {}", folder, error.message());
  const bool sharded = options.shard_bytes > 0;
  // Beside each other the two would say which of them is meant to nobody.
  const std::filesystem::path other = root / (sharded ? kOneFile : kIndexFile);
  require(options.replace || !std::filesystem::exists(other, error),
          "{}: exists already, in another form than the one to be written", other.string());
  const FileTensors tensors = file_tensors(model, options);
  // Besides what transformers asks for: what the layers compute, for a file without its folder.
  std::map<std::string, std::string> note = layer_metadata(model.attention(0).options());
  note["format"] = "pt";
  if (sharded) {
    write_shards(root, tensors, options, note);
  } else {
    write_safetensors((root / kOneFile).string(), tensors.list, note, options.replace);
  }
  std::filesystem::remove(other, error);
  GptConfig config{
      model.options(), options.bos_token_id, options.eos_token_id, options.add_bos_token, {}};
  write_text((root / "config.json").string(), gpt_config_json(config, options.dtype),
             options.replace);
}

}  // namespace cephalo
