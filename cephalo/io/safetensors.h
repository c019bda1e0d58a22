#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/io/file.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A .safetensors file: opened and checked whole before a number is read. What the format forbids is
// refused by name: duplicate names, holes, overlaps, sizes that do not fit, bytes left over. Of a
// model in several files, the path is that of its index (model.safetensors.index.json); the shards
// must be next to it.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    std::int64_t begin;  // in bytes from the first tensor
    std::int64_t end;
    std::size_t shard = 0;  // in which file, where there are several
  };

  explicit SafetensorsFile(const std::string& path);
  explicit SafetensorsFile(InputFile file);  // a single file, in memory say

  const std::string& path() const { return file_.path(); }
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Entry* find(const std::string& name) const;  // null when there is none

  Tensor read(const Entry& entry) const;
  // Into memory that is there already: same shape; straight where the type is the same and the
  // memory dense, otherwise a few rows at a time, so that a large file is never in memory twice.
  void read_into(const Entry& entry, const MutableTensorView& to) const;

 private:
  void open_file();
  void open_shards();

  InputFile file_;
  std::vector<SafetensorsFile> shards_;  // of an index; empty for a single file
  std::int64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_name_;  // their places, in the order of the names
  std::map<std::string, std::string> metadata_;
};

// Writes whole or not at all. Tensors of any strides, in the order given.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors,
                       const std::map<std::string, std::string>& metadata, bool replace = false);

// The same with one tensor more at the end, kChecksumTensor: the checksum of every byte before it,
// header and all. io/checksum.h tells whether a file still has it.
inline constexpr const char* kChecksumTensor = "xxh3_128";  // uint8, [16]
void write_checked_safetensors(const std::string& path,
                               const std::vector<std::pair<std::string, TensorView>>& tensors,
                               const std::map<std::string, std::string>& metadata,
                               bool replace = false);

// The bytes of such a file without a checksum, in memory; `name` takes the place of the path.
std::string safetensors_bytes(const std::string& name,
                              const std::vector<std::pair<std::string, TensorView>>& tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace cephalo
#pragma GCC visibility pop
