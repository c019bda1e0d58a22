#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cephalo::fuzz {

// Puts the bytes into a file in memory that is called `name`.suffix and calls read(path). A
// cephalo::Error is the right answer to a bad file; anything else escapes and is a finding.
void read_as_file(const std::uint8_t* data, std::size_t size, const char* suffix,
                  const std::function<void(const std::string& path)>& read);

// The same with the checksum of what stands before it as its last sixteen bytes: a reader that
// trusts its checksum is fuzzed as one that has none.
std::string with_checksum(std::string bytes);

}  // namespace cephalo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
