// An array.
#include "cephalo/io/npy.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cephalo::fuzz::read_as_file(data, size, ".npy",
                              [](const std::string& path) { cephalo::read_npy(path); });
  return 0;
}
