#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cephalo/io/safetensors.h"

namespace cephalo {

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // sorted by where they begin
  std::vector<std::uint32_t> by_name;           // their places, in the order of the names
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // of the first tensor, in the file
};

// The header of a file, read a block at a time and checked against the data that follow it. Every
// size is compared with what is there before anything is allocated.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// Places of entries in the order of their names.
std::vector<std::uint32_t> order_by_name(const std::vector<SafetensorsFile::Entry>& entries);

// What the format calls a type: "BF16".
const char* safetensors_word(DType dtype);

}  // namespace cephalo
