#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/io/file.h"

namespace cephalo {

// What the index of a model in several files says: which tensor is in which of them.
struct ShardIndex {
  std::vector<std::string> shards;                              // names of files, in their order
  std::vector<std::pair<std::string, std::uint32_t>> shard_of;  // by tensor, in the names' order

  const std::uint32_t* find(const std::string& tensor) const;  // null when there is none
};

// Its JSON, event by event. Files are plain names, not paths: an index must not lead anywhere else.
ShardIndex read_shard_index(const InputFile& file);

}  // namespace cephalo
