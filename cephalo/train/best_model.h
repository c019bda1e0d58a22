#pragma once

#include <cstdint>
#include <string>

#include "cephalo/model/gpt.h"
#include "cephalo/train/history.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The parameters of the step of a run that validated best, next to the run's checkpoints in
// checkpoints/best-00000684.safetensors. A new one is written before a checkpoint knows of it, and
// the one before it goes when a checkpoint does: wherever a run is interrupted, the best model that
// its newest checkpoint knows of is there.
class BestModel {
 public:
  explicit BestModel(const std::string& run_folder);

  void keep(const Gpt& model, const ValidationRecord& record);
  void remove_all_but(std::int64_t step);

  bool has(std::int64_t step) const;
  // options: of the model that was kept. A file that is damaged or of another model is an error.
  Gpt read(std::int64_t step, const GptOptions& options) const;

 private:
  std::string path_of(std::int64_t step) const;

  std::string folder_;
};

}  // namespace cephalo
#pragma GCC visibility pop
