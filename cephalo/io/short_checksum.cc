#include "cephalo/io/short_checksum.h"

// Compiled in, as in checksum.cc.
#define XXH_INLINE_ALL
#define XXH_NO_XXH3
#include <xxhash.h>

namespace cephalo {

std::uint32_t short_checksum(std::span<const std::byte> bytes) {
  XXH32_state_t state;
  XXH32_reset(&state, 0);
  if (!bytes.empty()) XXH32_update(&state, bytes.data(), bytes.size());
  return XXH32_digest(&state);
}

}  // namespace cephalo
