#pragma once

#include <map>
#include <string>
#include <vector>

#include "cephalo/io/safetensors.h"

namespace cephalo {

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // sorted by where they begin
  std::map<std::string, std::string> metadata;
};

// The header's JSON, checked against the number of data bytes that follow it. Every size is
// compared with what is there before anything is allocated. `path` begins the messages.
SafetensorsHeader parse_safetensors_header(const std::string& json, std::int64_t data_bytes,
                                           const std::string& path);

// What the format calls a type: "BF16".
const char* safetensors_word(DType dtype);

}  // namespace cephalo
