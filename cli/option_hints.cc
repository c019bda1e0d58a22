#include "cli/option_hints.h"

#include <utility>

namespace cephalo::cli {

std::string with_flags(std::string message) {
  constexpr std::pair<const char*, const char*> kHints[] = {
      {"replace = true", "--force"},
      {"allow_extra = true", "--allow-extra"},
      {"allow_rotary = true", "--allow-rotary"},
      {"zero_bias = true", "--zero-bias"},
      {"raise most_bytes", "raise --max-size"},
      {"or record it", "or --recorded"},
      {"pass num_heads", "pass --num-heads"},
      {"more time (timeout)", "more time (--timeout)"}};
  for (const auto& [option, flag] : kHints) {
    // Hints come last; what stands before may be the name of a file.
    const std::size_t at = message.rfind(option);
    if (at != std::string::npos) return message.replace(at, std::string(option).size(), flag);
  }
  return message;
}

}  // namespace cephalo::cli
