// A parameter file: every tensor is read, and a layer is made of it where it is one.
#include "cephalo/attention/layer/layer_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cephalo;
  fuzz::read_as_file(data, size, ".safetensors", [](const std::string& path) {
    const SafetensorsFile file(path);
    for (const auto& entry : file.entries()) file.read(entry);
    LoadOptions options;
    options.settings.num_heads = 2;
    load_layer(path, options);
  });
  return 0;
}
