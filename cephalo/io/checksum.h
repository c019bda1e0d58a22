#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "cephalo/io/file.h"

#pragma GCC visibility push(default)
namespace cephalo {

// XXH3 of 128 bits over bytes that come in pieces, as `xxhsum -H2` prints it.
class Checksum {
 public:
  using Value = std::array<unsigned char, 16>;

  Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum();

  void add(const void* data, std::size_t bytes);
  Value value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether the last sixteen bytes of a file are the checksum of everything before them.
bool ends_with_checksum(const InputFile& file);

}  // namespace cephalo
#pragma GCC visibility pop
