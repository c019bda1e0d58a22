#pragma once

#include <filesystem>
#include <string>

namespace cephalo::testing {

// An empty folder that is gone after the test.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t files() const;  // how many there are

 private:
  std::filesystem::path path_;
};

void write_bytes(const std::string& path, const std::string& bytes);
std::string read_bytes(const std::string& path);

}  // namespace cephalo::testing
