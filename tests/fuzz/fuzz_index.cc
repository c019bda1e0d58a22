// The index of a model in several files. The shards that it names do not exist.
#include "cephalo/io/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cephalo::fuzz::read_as_file(data, size, ".json",
                              [](const std::string& path) { cephalo::SafetensorsFile file(path); });
  return 0;
}
