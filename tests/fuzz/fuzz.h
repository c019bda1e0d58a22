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

}  // namespace cephalo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
