#include "cephalo/model/gpt_file.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/finite.h"
#include "cephalo/core/views.h"
#include "cephalo/io/file.h"
#include "cephalo/io/json_value.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/model/families.h"
#include "cephalo/model/file_names.h"

namespace cephalo {
namespace {

using Entry = SafetensorsFile::Entry;
constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

MutableTensorView transposed(const MutableTensorView& t) {
  return {t.mutable_data(), t.dtype(), {t.dim(1), t.dim(0)}, {t.strides()[1], t.strides()[0]}};
}

// The habit whose name for the token embedding is there; null: none.
template <typename Has>
const FileNames* names_in(const Has& has) {
  for (const FileNames* names : all_file_names()) {
    if (has(file_name(*names, ModelPart::token_embedding))) return names;
  }
  return nullptr;
}

// What a file calls its token embedding, in anybody's habit.
std::vector<std::string> embedding_names() {
  std::vector<std::string> all;
  for (const FileNames* names : all_file_names()) {
    all.push_back(file_name(*names, ModelPart::token_embedding));
  }
  return all;
}

// The parameters' file of a folder, under one kind of names.
class GptFile {
 public:
  explicit GptFile(SafetensorsFile&& file) : file_(std::move(file)) {
    for (const Entry& entry : file_.entries()) entries_[entry.name] = &entry;
    names_ = names_in([&](const std::string& name) { return entries_.contains(name); });
    require(names_ != nullptr, "{}: is not a GPT: it holds none of {}", file_.path(),
            joined(embedding_names(), ", "));
  }

  std::string head_name() const { return file_name(*names_, ModelPart::head); }
  bool has_head() const { return entries_.contains(head_name()); }
  const FileNames& names() const { return *names_; }
  const std::string& path() const { return file_.path(); }

  // The entries of a parameter: all there, all fitting.
  std::vector<const Entry*> entries_of(const FilePlace& place, const Shape& shape) const {
    std::vector<const Entry*> found;
    for (std::size_t k = 0; k < place.names.size(); ++k) {
      const std::string& name = place.names[k];
      Shape wanted = shape;
      wanted[0] = place.rows[k];
      if (place.transposed) std::swap(wanted[0], wanted[1]);
      const auto at = entries_.find(name);
      require(at != entries_.end(), "{}: {}: is missing, but config.json requires it", path(),
              name);
      require(at->second->shape == wanted, "{}: {}: has shape {}, but config.json implies {}",
              path(), name, at->second->shape, wanted);
      require(is_floating(at->second->dtype), "{}: {}: parameters cannot be {}", path(), name,
              cephalo::name(at->second->dtype));
      found.push_back(at->second);
    }
    return found;
  }

  // -> bytes read. `to`: [out, in], or [width]
  std::int64_t read(const FilePlace& place, const MutableTensorView& to) const {
    const std::vector<const Entry*> parts = entries_of(place, to.shape());
    std::int64_t bytes = 0;
    dim_t first = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const MutableTensorView part = to.slice(0, first, first + place.rows[k]);
      file_.read_into(*parts[k], place.transposed ? transposed(part) : part);
      bytes += parts[k]->end - parts[k]->begin;
      first += place.rows[k];
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
      require(known, "{}: {}: does not belong to this model (allow_extra = true ignores it)",
              path(), name);
    }
  }

 private:
  SafetensorsFile file_;
  std::map<std::string, const Entry*> entries_;
  const FileNames* names_;
};

// config.json as it applies to a file, whose names and shapes fit it.
struct CheckedConfig {
  GptConfig config;
  std::map<std::string, FilePlace> places;  // of each parameter, by its own name
  std::int64_t bytes = 0;                   // that will be read
};

// Compares names and shapes, and notes where each parameter is.
void check_file(const GptFile& file, bool allow_extra, CheckedConfig& checked) {
  std::set<std::string> used;
  for (const ParameterInfo& p : ParameterList(checked.config.options)) {
    const FilePlace place = place_in(file.names(), p);
    for (const Entry* entry : file.entries_of(place, p.shape)) {
      checked.bytes += entry->end - entry->begin;
    }
    used.insert(place.names.begin(), place.names.end());
    checked.places.emplace(p.name, place);
  }
  if (!allow_extra) file.refuse_extra(used);
}

CheckedConfig checked_config(const GptFile& file, GptConfig config, const LoadGptOptions& options) {
  if (!config.tied_head && file.names().always_head) {
    config.options.tied_head = !file.has_head();
  }
  config.options.dtype = options.dtype;
  config.options = checked_options(config.options, "load_gpt");
  CheckedConfig checked{.config = config, .places = {}};
  check_file(file, options.allow_extra, checked);
  return checked;
}

LoadedGpt load_from(const GptFile& file, const GptConfig& found, const LoadGptOptions& options,
                    std::vector<std::string>* warnings) {
  const CheckedConfig checked = checked_config(file, found, options);
  const GptConfig& config = checked.config;
  std::int64_t done = 0;
  Gpt model(config.options, [&](const std::string& name, const MutableTensorView& to) {
    done += file.read(checked.places.at(name), to);
    if (options.progress) options.progress(done, checked.bytes);
    const dim_t bad = count_not_finite(to);
    if (bad == 0) return;
    const std::string message =
        format_text("{}: {}: {} numbers are NaN or infinite", file.path(), name, bad);
    if (options.strict) fail(Error::Kind::value, "{}", message);
    if (warnings != nullptr) warnings->push_back(message);
  });
  if (config.options.tied_head) {
    file.check_tied_head(model.parameter(own_name(ModelPart::token_embedding)));
  }
  return {std::move(model), config};
}

}  // namespace

bool is_gpt_file(const SafetensorsFile& file) {
  return names_in([&](const std::string& name) { return file.find(name) != nullptr; }) != nullptr;
}

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

// A parameter under the names of a file, in parts where it has several.
void add_parameter(const FileNames& names, const ParameterInfo& p, const TensorView& value,
                   DType dtype, FileTensors& tensors) {
  const FilePlace place = place_in(names, p);
  dim_t first = 0;
  for (std::size_t k = 0; k < place.names.size(); ++k) {
    TensorView part = value.slice(0, first, first + place.rows[k]);
    first += place.rows[k];
    if (place.transposed) part = transpose(part, 0, 1);
    if (part.dtype() != dtype) {
      tensors.converted.push_back(Tensor::copy(part, dtype));
      part = tensors.converted.back();
    }
    tensors.list.emplace_back(place.names[k], part);
  }
}

FileTensors file_tensors(const Gpt& model, const SaveGptOptions& options) {
  GptOptions o = model.options();
  const FileNames& names = options.names == GptNames::book ? kBookNames : *family_of(o).names;
  if (names.always_head) o.tied_head = false;
  const std::vector<GptParameter> parameters = model.parameters();
  FileTensors tensors;
  tensors.converted.reserve(3 * (parameters.size() + 1));  // pointed at
  std::size_t k = 0;
  for (const ParameterInfo& p : ParameterList(o)) {
    // A head that is not the model's own comes last: the token embedding once more, the first.
    const TensorView& value = parameters[k < parameters.size() ? k : 0].value;
    add_parameter(names, p, value, options.dtype, tensors);
    ++k;
  }
  return tensors;
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
  Json weight_map = Json::object();
  for (std::size_t k = 0; k < shards.size(); ++k) {
    const std::string name = format_text("model-{:05}-of-{:05}.safetensors", k + 1, shards.size());
    write_safetensors((folder / name).string(), shards[k], note, options.replace);
    for (const auto& [tensor, view] : shards[k]) weight_map.add(tensor, name);
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file((folder / kIndexFile).string(), index.dump({.indent = 2}) + "\n", options.replace);
}

// What config.json is to say of a model.
GptConfig config_of(const Gpt& model, const SaveGptOptions& options) {
  GptConfig config{.options = model.options(),
                   .bos_token_id = options.bos_token_id,
                   .eos_token_id = options.eos_token_id,
                   .add_bos_token = options.add_bos_token,
                   .trained_context_length = options.trained_context_length};
  if (!options.context_length) return config;
  const dim_t own = model.options().context_length;
  const dim_t wanted = *options.context_length;
  require(wanted >= 1, "save_gpt: context_length ({}) must be >= 1", wanted);
  require(wanted == own || model.options().positions == PositionKind::rotary,
          "save_gpt: context_length ({}) must be the model's own ({}): its positions are learned, "
          "a vector for each of them",
          wanted, own);
  config.options.context_length = wanted;
  if (wanted > own && !config.trained_context_length) config.trained_context_length = own;
  return config;
}

}  // namespace

void save_gpt(const Gpt& model, const std::string& folder, const SaveGptOptions& options) {
  require_type(is_floating(options.dtype), "save_gpt: {}: parameters cannot be {}", folder,
               name(options.dtype));
  require(options.shard_bytes >= 0, "save_gpt: {}: shard_bytes ({}) must be >= 0", folder,
          options.shard_bytes);
  const GptConfig config = config_of(model, options);
  const std::filesystem::path root(folder);
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) fail(Error::Kind::io, "{}: {}", folder, error.message());
  const bool sharded = options.shard_bytes > 0;
  // With both files present, no reader could tell which one to use.
  const std::filesystem::path other = root / (sharded ? kOneFile : kIndexFile);
  require(
      options.replace || !std::filesystem::exists(other, error),
      "{}: already exists, in another form than the one being written; replace = true replaces it",
      other.string());
  const FileTensors tensors = file_tensors(model, options);
  // Besides what transformers asks for: what the layers compute, for a file without its folder.
  auto layer = model.attention(0).options();
  layer.context_length = config.options.context_length;
  std::map<std::string, std::string> note = layer_metadata(layer);
  note["format"] = "pt";
  if (sharded) {
    write_shards(root, tensors, options, note);
  } else {
    write_safetensors((root / kOneFile).string(), tensors.list, note, options.replace);
  }
  std::filesystem::remove(other, error);
  write_file((root / "config.json").string(), gpt_config_json(config, options.dtype),
             options.replace);
}

}  // namespace cephalo
