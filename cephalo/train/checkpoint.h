#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/io/safetensors.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A checkpoint is a .safetensors file that carries what a run was doing as JSON in
// __metadata__[kCheckpointKey], and ends with the checksum of everything in it.
inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kCheckpointKey = "cephalo_checkpoint";

// Whole and durable under its name when this returns; on an error nothing is left of it and what
// stood there is as it was. state: a JSON object.
void write_checkpoint(const std::string& path,
                      const std::vector<std::pair<std::string, TensorView>>& tensors,
                      const std::string& state);

// Opened only when its checksum is right and its version is one that we read.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::string& state() const { return state_; }  // as it was given to write_checkpoint
  const std::vector<SafetensorsFile::Entry>& entries() const { return file_.entries(); }

  // An error that names the tensor where it is missing or has another shape or type than `like`.
  void check(const std::string& name, const TensorView& like) const;
  void read_into(const std::string& name, const MutableTensorView& to) const;
  Tensor read(const std::string& name) const;

 private:
  const SafetensorsFile::Entry& entry(const std::string& name) const;

  SafetensorsFile file_;
  std::string state_;
};

}  // namespace cephalo
#pragma GCC visibility pop
