#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace cephalo {

// A regular file open for reading at any offset. Reads, never maps: a file that another process
// cuts short is an error here, not a signal. Errors name the path and the system's reason.
class InputFile {
 public:
  explicit InputFile(const std::string& path);  // refuses directories, pipes and devices by name
  // Bytes in memory read as a file is; they must live as long. `name` takes the place of the path.
  InputFile(const std::string& name, std::span<const std::byte> bytes);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  // when it was opened

  // Exactly `bytes` from `offset`; an error when the file no longer has them.
  void read(std::int64_t offset, void* to, std::int64_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  const std::byte* memory_ = nullptr;  // in place of a descriptor
  std::int64_t size_ = 0;
};

// A stream into a file that does not exist under its name until it is complete: written next to its
// place, synced, renamed, and the folder synced. Left unfinished, nothing remains of it.
class AtomicFile {
 public:
  // Without `replace` an existing file is an error, now and at the end.
  AtomicFile(const std::string& path, bool replace);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, std::size_t bytes);
  void finish();

 private:
  [[noreturn]] void fail_with(const char* what) const;

  std::string path_;
  std::string temporary_;
  bool replace_;
  int descriptor_ = -1;
};

// A whole file at once, in the same way.
void write_file(const std::string& path, std::string_view bytes, bool replace);

// A name next to `path` that no other call returns, in this process or another: what is written
// there is not finished. finished_name gives the file name back; nothing where a
// name is not of that form.
std::string temporary_path(const std::string& path);
std::optional<std::string> finished_name(const std::string& temporary_name);

// What a pickle or a zip of pickles gets, whatever its name: they can run code, so they are not
// read. Throws when the first bytes are theirs.
void refuse_pickle(const InputFile& file);

}  // namespace cephalo
#pragma GCC visibility pop
