#include "cephalo/train/best_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/train/checkpoint.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBegin = "best-";
constexpr const char* kEnd = ".safetensors";

}  // namespace

BestModel::BestModel(const std::string& run_folder) : folder_(run_folder + "/checkpoints") {}

std::string BestModel::path_of(std::int64_t step) const {
  return fmt::format("{}/{}{:08}{}", folder_, kBegin, step, kEnd);
}

void BestModel::keep(const Gpt& model, const ValidationRecord& record) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const GptParameter& p : model.parameters()) tensors.emplace_back(p.name, p.value);
  const nlohmann::json state = {{"step", record.step}, {"validation_loss", record.loss}};
  write_checkpoint(path_of(record.step), tensors, state.dump());
}

void BestModel::remove_all_but(std::int64_t step) {
  const std::string kept = fs::path(path_of(step)).filename().string();
  std::vector<fs::path> others;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours =
        name.starts_with(kBegin) && name.ends_with(kEnd) && name.size() == kept.size();
    if (ours && name != kept) others.push_back(entry.path());
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
