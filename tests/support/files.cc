#include "tests/support/files.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace cephalo::testing {

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "cephalo-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::size_t Folder::files() const {
  const std::filesystem::directory_iterator begin(path_);
  return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace cephalo::testing
