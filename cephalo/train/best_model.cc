#include "cephalo/train/best_model.h"

#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/io/json.h"
#include "cephalo/train/checkpoint.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBegin = "best-";
constexpr const char* kEnd = ".safetensors";

std::string file_name(std::int64_t step) {
  return format_text("{}{:08}{}", kBegin, step, kEnd);
}

// A file that keep() wrote, by its name and by what is in it: everything else is the user's.
bool is_ours(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  try {
    const SafetensorsFile file(path.string());
    const auto& metadata = file.metadata();
    const auto found = metadata.find(kCheckpointKey);
    if (found == metadata.end()) return false;
    const Json inside = parse_json(found->second, path.string());
    return file_name(inside.at("state").at("step").as_int64()) == name;
  } catch (const std::exception&) {  // what cannot be read is not removed
    return false;
  }
}

}  // namespace

BestModel::BestModel(const std::string& run_folder) : folder_(run_folder + "/checkpoints") {}

std::string BestModel::path_of(std::int64_t step) const {
  return folder_ + "/" + file_name(step);
}

void BestModel::keep(const Gpt& model, const ValidationRecord& record) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const GptParameter& p : model.parameters()) tensors.emplace_back(p.name, p.value);
  const Json state = {{"step", record.step}, {"validation_loss", record.loss}};
  write_checkpoint(path_of(record.step), tensors, state.dump());
}

void BestModel::remove_all_but(std::int64_t step) {
  std::vector<fs::path> others;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename() != file_name(step) && is_ours(entry.path())) {
      others.push_back(entry.path());
    }
  }
  // One that stays is in nobody's way: the next call tries again.
  for (const fs::path& other : others) fs::remove(other, error);
}

bool BestModel::has(std::int64_t step) const {
  std::error_code ignored;
  return fs::exists(path_of(step), ignored);
}

Gpt BestModel::read(std::int64_t step, const GptOptions& options) const {
  const CheckpointFile file(path_of(step));
  return Gpt(options, [&](const std::string& name, const MutableTensorView& to) {
    file.read_into(name, to);
  });
}

}  // namespace cephalo
