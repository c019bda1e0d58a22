#pragma once

#include <cstdint>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace cephalo {

// The folder of one training run. Its checkpoints are checkpoints/step-00000012.safetensors, the
// newest also under the name checkpoints/latest. While an object lives, no other process trains
// there.
class RunFolder {
 public:
  // Makes the folder where it is missing, locks it, removes what an interrupted save left, and
  // points `latest` at the newest checkpoint again. `keep`: how many of the newest stay, 2 or more.
  explicit RunFolder(const std::string& path, int keep = 2);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }
  std::vector<std::int64_t> steps() const;  // that have a checkpoint, ascending
  std::string checkpoint(std::int64_t step) const;

  // After the checkpoint of `step` has been written: `latest` points at it, and all but the last
  // `keep` are removed.
  void saved(std::int64_t step);

  // Renames a checkpoint that cannot be read, so that it no longer counts as one.
  void set_aside(std::int64_t step);

  // What was put right when it was opened, for a person to read: empty when all was well.
  const std::vector<std::string>& repairs() const { return repairs_; }

 private:
  void lock();
  void clean_up();
  void repair_latest();
  void point_latest_at(std::int64_t step);

  std::string path_;
  std::string checkpoints_;
  int keep_;
  int lock_ = -1;
  std::vector<std::string> repairs_;
};

}  // namespace cephalo
#pragma GCC visibility pop
