#include "cephalo/io/checksum.h"

// Compiled in, as our other libraries: who links cephalo needs nothing else.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

namespace cephalo {

struct Checksum::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};  // it asks for 64-byte alignment
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh.get());
}

Checksum::~Checksum() = default;

void Checksum::add(const void* data, std::size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(state_->xxh.get(), data, bytes);
}

Checksum::Value Checksum::value() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh.get()));
  Value value;
  std::memcpy(value.data(), canonical.digest, value.size());
  return value;
}

bool ends_with_checksum(const InputFile& file) {
  Checksum::Value stored{};
  const auto stored_bytes = static_cast<std::int64_t>(stored.size());
  if (file.size() < stored_bytes) return false;
  constexpr std::int64_t kBlock = 1 << 20;
  const std::int64_t end = file.size() - stored_bytes;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kBlock, end)));
  Checksum checksum;
  for (std::int64_t begin = 0; begin < end; begin += kBlock) {
    const std::int64_t bytes = std::min(kBlock, end - begin);
    file.read(begin, block.data(), bytes);
    checksum.add(block.data(), static_cast<std::size_t>(bytes));
  }
  file.read(end, stored.data(), stored_bytes);
  return checksum.value() == stored;
}

}  // namespace cephalo
