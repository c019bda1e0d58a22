#include "cephalo/train/checkpoint.h"

#include "cephalo/core/fail.h"
#include "cephalo/io/checksum.h"
#include "cephalo/io/json.h"

namespace cephalo {
namespace {

// The checksum comes before anything is believed, the header's sizes too.
const std::string& checked(const std::string& path) {
  const InputFile file(path);
  require(ends_with_checksum(file),
          "{}: checksum: does not match the {} bytes of the file; it is damaged, truncated or not "
          "a checkpoint",
          path, file.size());
  return path;
}

}  // namespace

void write_checkpoint(const std::string& path,
                      const std::vector<std::pair<std::string, TensorView>>& tensors,
                      const std::string& state) {
  const Json inside = {{"state", parse_json(state, path + ": state")},
                       {"version", kCheckpointVersion}};
  write_checked_safetensors(path, tensors, {{kCheckpointKey, inside.dump()}}, true);
}

CheckpointFile::CheckpointFile(const std::string& path) : file_(checked(path)) {
  const auto found = file_.metadata().find(kCheckpointKey);
  require(found != file_.metadata().end(), "{}: is not a checkpoint: its metadata has no {}", path,
          kCheckpointKey);
  const Json inside = parse_json(found->second, format_text("{}: {}", path, kCheckpointKey));
  const bool whole = inside.is_object() && inside.contains("version") && inside.contains("state") &&
                     inside.at("version").is_whole() && inside.at("state").is_object();
  require(whole, "{}: {}: is not a version and a state", path, kCheckpointKey);
  const Json& version = inside.at("version");
  require(version.is_unsigned() && version.as_uint64() == kCheckpointVersion,
          "{}: version: is {}, but this cephalo reads {}; a newer one wrote it", path,
          version.dump(), kCheckpointVersion);
  state_ = inside.at("state").dump();
}

const SafetensorsFile::Entry& CheckpointFile::entry(const std::string& name) const {
  const SafetensorsFile::Entry* found = file_.find(name);
  require(found != nullptr, "{}: {}: is missing; the checkpoint belongs to another model", path(),
          name);
  return *found;
}

void CheckpointFile::check(const std::string& name, const TensorView& like) const {
  const SafetensorsFile::Entry& from = entry(name);
  require(from.shape == like.shape() && from.dtype == like.dtype(),
          "{}: {}: is {} {}, the model's is {} {}; the checkpoint belongs to another model", path(),
          name, cephalo::name(from.dtype), from.shape, cephalo::name(like.dtype()), like.shape());
}

void CheckpointFile::read_into(const std::string& name, const MutableTensorView& to) const {
  check(name, to);
  file_.read_into(entry(name), to);
}

Tensor CheckpointFile::read(const std::string& name) const {
  return file_.read(entry(name));
}

}  // namespace cephalo
