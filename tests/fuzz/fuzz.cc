#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cephalo/core/error.h"
#include "cephalo/io/checksum.h"

namespace cephalo::fuzz {
namespace {

// One file in memory, seen under a name with the right ending.
struct MemoryFile {
  explicit MemoryFile(const char* suffix) : descriptor(memfd_create("fuzz", 0)) {
    const auto folder = std::filesystem::temp_directory_path();
    path = (folder / ("cephalo-fuzz-" + std::to_string(getpid()) + suffix)).string();
    const std::string target = "/proc/self/fd/" + std::to_string(descriptor);
    unlink(path.c_str());
    if (descriptor < 0 || symlink(target.c_str(), path.c_str()) != 0) std::abort();
  }
  ~MemoryFile() {
    unlink(path.c_str());
    close(descriptor);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor;
  std::string path;
};

}  // namespace

void read_as_file(const std::uint8_t* data, std::size_t size, const char* suffix,
                  const std::function<void(const std::string& path)>& read) {
  static const MemoryFile file(suffix);
  if (ftruncate(file.descriptor, 0) != 0 ||
      pwrite(file.descriptor, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  try {
    read(file.path);
  } catch (const Error& error) {
    // A refusal that says nothing is a finding too.
    if (error.kind() != Error::Kind::memory && *error.what() == '\0') std::abort();
  }
}

std::string with_checksum(std::string bytes) {
  Checksum::Value value{};
  if (bytes.size() < value.size()) return bytes;
  const std::size_t end = bytes.size() - value.size();
  Checksum checksum;
  checksum.add(bytes.data(), end);
  value = checksum.value();
  std::copy(value.begin(), value.end(), bytes.begin() + static_cast<std::ptrdiff_t>(end));
  return bytes;
}

}  // namespace cephalo::fuzz
