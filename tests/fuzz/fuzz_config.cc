// config.json: what is read can be written and read again, and says the same.
#include <cstdlib>
#include <string>

#include "cephalo/core/error.h"
#include "cephalo/model/gpt_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cephalo;
  const std::string json(reinterpret_cast<const char*>(data), size);
  for (const bool allow_extra : {false, true}) {
    GptConfig config;
    try {
      config = parse_gpt_config(json, "config.json", {.allow_extra = allow_extra});
      static_cast<void>(parameter_count(config.options));
    } catch (const Error& error) {
      if (*error.what() == '\0') std::abort();
      continue;
    }
    const std::string written = gpt_config_json(config, DType::f32);
    const GptConfig again = parse_gpt_config(written, "config.json");
    if (gpt_config_json(again, DType::f32) != written) std::abort();
  }
  return 0;
}
