#include "cephalo/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/io/file_calls.h"

namespace cephalo {
namespace {

// glibc's strerror_r gives the text, everybody else's fills the buffer.
[[maybe_unused]] std::string text_of(const char* text, const char*) {
  return text;
}
[[maybe_unused]] std::string text_of(int, const char* buffer) {
  return buffer;
}

// strerror is not safe in threads; this is, and the text is the same.
std::string reason(int error) {
  char buffer[256] = {};
  return text_of(strerror_r(error, buffer, sizeof buffer), buffer);
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// NAME.cephalo-0123456789abcdef.tmp. Random, not counted: in a container every process has the
// same number, and a killed one leaves its file.
constexpr std::string_view kMark = ".cephalo-";
constexpr std::string_view kTemporary = ".tmp";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kSuffix = kMark.size() + kDigits + kTemporary.size();

}  // namespace

std::string temporary_path(const std::string& path) {
  constexpr std::size_t kLongestName = 255;  // of nearly every file system
  std::random_device random;
  const std::uint64_t number = (std::uint64_t{random()} << 32) | random();
  const std::size_t name = path.size() - std::min(path.size(), path.rfind('/') + 1);
  const std::size_t cut = name - std::min(name, kLongestName - kSuffix);
  return format_text("{}{}{:016x}{}", std::string_view(path).substr(0, path.size() - cut), kMark,
                     number, kTemporary);
}

std::optional<std::string> finished_name(const std::string& name) {
  if (name.size() <= kSuffix || !name.ends_with(kTemporary)) return std::nullopt;
  const std::string_view suffix = std::string_view(name).substr(name.size() - kSuffix);
  const std::string_view digits = suffix.substr(kMark.size(), kDigits);
  const bool ours = suffix.starts_with(kMark) &&
                    digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!ours) return std::nullopt;
  return name.substr(0, name.size() - kSuffix);
}

FileCalls& file_calls() {
  static FileCalls calls{::write, ::fsync, ::close, ::rename, ::link};
  return calls;
}

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait for ever.
  descriptor_ = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) fail(Error::Kind::io, "{}: {}", path, reason(errno));
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(std::exchange(descriptor_, -1));
    fail(Error::Kind::io, "{}: is {}, not a file", path, kind_of(status.st_mode));
  }
  size_ = status.st_size;
}

InputFile::InputFile(const std::string& name, std::span<const std::byte> bytes)
    : path_(name), memory_(bytes.data()), size_(std::ssize(bytes)) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(other.memory_),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void InputFile::read(std::int64_t offset, void* to, std::int64_t bytes) const {
  constexpr std::int64_t kOnce = std::int64_t{1} << 30;  // the system takes no more at a time
  auto* out = static_cast<std::byte*>(to);
  if (descriptor_ < 0) {
    if (offset < 0 || offset > size_ || bytes > size_ - offset) {
      fail(Error::Kind::io, "{}: has no {} bytes starting at byte {} (it has {})", path_, bytes,
           offset, size_);
    }
    if (bytes > 0) std::memcpy(out, memory_ + offset, static_cast<std::size_t>(bytes));
    return;
  }
  while (bytes > 0) {
    const ssize_t got =
        pread(descriptor_, out, static_cast<std::size_t>(std::min(bytes, kOnce)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Error::Kind::io, "{}: {}", path_, reason(errno));
    if (got == 0) {
      fail(Error::Kind::io, "{}: was truncated to {} bytes while being read (it had {})", path_,
           offset, size_);
    }
    out += got;
    offset += got;
    bytes -= got;
  }
}

AtomicFile::AtomicFile(const std::string& path, bool replace) : path_(path), replace_(replace) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      fail(Error::Kind::io, "{}: is {}, not a file", path, kind_of(status.st_mode));
    }
    if (!replace) fail(Error::Kind::io, "{}: already exists; replace = true overwrites it", path);
  }
  temporary_ = temporary_path(path);
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail(Error::Kind::io, "{}: {}", path, reason(error));
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::fail_with(const char* what) const {
  fail(Error::Kind::io, "{}: {}: {}", path_, what, reason(errno));
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written =
        file_calls().write(descriptor_, from, std::min<std::size_t>(bytes, 1U << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with("write");
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::finish() {
  if (file_calls().sync(descriptor_) != 0) fail_with("sync");
  if (file_calls().close(std::exchange(descriptor_, -1)) != 0) fail_with("close");
  // link does not replace, rename does.
  if (replace_) {
    if (file_calls().rename(temporary_.c_str(), path_.c_str()) != 0) fail_with("rename");
    temporary_.clear();
  } else if (file_calls().link(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) {
      fail(Error::Kind::io,
           "{}: its file system has no hard links, so a new file could overwrite another; replace "
           "= true allows that",
           path_);
    }
    fail_with("link");
  }
  const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail_with("open its folder");
  const bool synced = file_calls().sync(folder) == 0;
  close(folder);
  if (!synced) fail_with("sync its folder");
}

void write_file(const std::string& path, std::string_view bytes, bool replace) {
  AtomicFile file(path, replace);
  file.write(bytes.data(), bytes.size());
  file.finish();
}

void refuse_pickle(const InputFile& file) {
  unsigned char first[9] = {};
  const auto count = std::min<std::int64_t>(file.size(), 9);
  file.read(0, first, count);
  const bool zip = count >= 4 && std::memcmp(first, "PK\x03\x04", 4) == 0;
  // A .safetensors header of 640 bytes begins as a pickle does. Read as a header's length, a
  // pickle's first eight bytes are a number beyond any file.
  std::uint64_t length = 0;
  std::memcpy(&length, first, sizeof length);
  const bool header = first[8] == '{' && length <= static_cast<std::uint64_t>(file.size());
  const bool pickle = count >= 2 && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5 && !header;
  if (zip || pickle) {
    fail(Error::Kind::value,
         "{}: is a PyTorch {}, which can run code when it is read; convert it once with "
         "safetensors.torch.save_file(torch.load(path, weights_only=True), \"layer.safetensors\")",
         file.path(), zip ? "archive (zip of pickles)" : "pickle");
  }
}

}  // namespace cephalo
