#include "cephalo/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/io/file.h"
#include "cephalo/io/file_calls.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "step-";
constexpr std::string_view kEnd = ".safetensors";
constexpr const char* kLatest = "latest";
constexpr const char* kLock = "lock";

[[noreturn]] void fail_at(const std::string& path, const char* what, int error) {
  fail(Error::Kind::io, "{}: {}: {}", path, what, std::generic_category().message(error));
}

std::string file_name(std::int64_t step) {
  return format_text("{}{:08}{}", kBegin, step, kEnd);
}

// The step of step-00000012.safetensors; nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  if (name.size() <= kBegin.size() + kEnd.size()) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size() - kEnd.size();
  const auto [stop, error] = std::from_chars(name.data() + kBegin.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return file_name(step) == name ? std::optional(step) : std::nullopt;  // as we write it
}

// What stands at the beginning of the files that a run writes, by the endings of their names.
struct Beginning {
  std::string_view ending;
  std::int64_t at;  // after a length in eight bytes, say
  std::string_view bytes;
};
constexpr Beginning kBeginnings[] = {{".safetensors", 8, "{\"__metadata__\":{\""},
                                     {"config.json", 0, "{\n  \"model_type\""},
                                     {"vocab.json", 0, "{\""},
                                     {".csv", 0, "step,loss,"},
                                     {".txt", 0, "#version"},
                                     {".bin", 0, "CEPHTOK"},
                                     {".svg", 0, "<svg"}};

// Whether a file begins as one of that name does, as far as it goes: it may have been cut at once.
bool begins_as(const InputFile& file, std::string_view name) {
  const auto* known = std::find_if(std::begin(kBeginnings), std::end(kBeginnings),
                                   [&](const Beginning& b) { return name.ends_with(b.ending); });
  if (known == std::end(kBeginnings)) return false;
  const auto there = std::clamp<std::int64_t>(file.size() - known->at, 0, std::ssize(known->bytes));
  std::string bytes(static_cast<std::size_t>(there), '\0');
  file.read(std::min(file.size(), known->at), bytes.data(), there);
  return known->bytes.starts_with(bytes);
}

// What an interrupted save left: by its name and by what is in it. Everything else is the user's.
bool is_leftover(const fs::directory_entry& entry) {
  const std::optional<std::string> name = finished_name(entry.path().filename().string());
  if (!name.has_value()) return false;
  std::error_code error;
  if (entry.is_symlink(error)) {
    return *name == kLatest && step_of(fs::read_symlink(entry.path(), error).string()).has_value();
  }
  if (!entry.is_regular_file(error)) return false;
  try {
    return begins_as(InputFile(entry.path().string()), *name);
  } catch (const Error&) {  // what cannot be read is not removed
    return false;
  }
}

// A folder that was just made must be in its parent after a power loss, too.
void sync_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail_at(path, "open", errno);
  const int failed = file_calls().sync(folder) == 0 ? 0 : errno;
  close(folder);
  if (failed != 0) fail_at(path, "sync", failed);
}

void make_folder(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error) fail_at(path, "make folder", error.value());
  const std::string parent = fs::path(path).parent_path().string();
  if (made) sync_folder(parent.empty() ? "." : parent);
}

}  // namespace

RunFolder::RunFolder(const std::string& path, int keep)
    : path_(path), checkpoints_(path + "/checkpoints"), keep_(keep) {
  require(keep >= 2, "RunFolder: keep ({}) must be 2 or more: one may turn out damaged", keep);
  make_folder(path_);
  make_folder(checkpoints_);
  lock();
  try {
    clean_up();
    repair_latest();
  } catch (...) {
    close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() {
  close(lock_);
}

// The system drops the lock when the process ends, however it ends; the file may stay.
void RunFolder::lock() {
  const std::string file = path_ + "/" + kLock;
  lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail_at(file, "open", errno);
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  close(std::exchange(lock_, -1));
  if (error != EWOULDBLOCK) fail_at(file, "lock", error);
  fail(Error::Kind::io,
       "{}: another run is training in this folder; wait for it to end or choose another folder",
       path_);
}

// Half-written files are nobody's: we hold the lock.
void RunFolder::clean_up() {
  for (const std::string& folder : {path_, checkpoints_}) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (!is_leftover(entry)) continue;
      if (unlink(entry.path().c_str()) == 0) {
        repairs_.push_back(format_text("{}: left by an interrupted save, removed",
                                       entry.path().filename().string()));
      }
    }
    if (error) fail_at(folder, "list", error.value());
  }
}

std::vector<std::int64_t> RunFolder::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_, error)) {
    const auto step = step_of(entry.path().filename().string());
    if (step.has_value()) steps.push_back(*step);
  }
  if (error) fail_at(checkpoints_, "list", error.value());
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string RunFolder::checkpoint(std::int64_t step) const {
  return checkpoints_ + "/" + file_name(step);
}

void RunFolder::repair_latest() {
  const std::string link = checkpoints_ + "/" + kLatest;
  const std::vector<std::int64_t> all = steps();
  std::error_code error;
  const std::string target = fs::read_symlink(link, error).string();
  const bool is_there = !error;
  if (all.empty()) {
    if (is_there && unlink(link.c_str()) == 0) {
      repairs_.push_back(
          format_text("{}: pointed at {}, which is not there; removed", kLatest, target));
    }
    return;
  }
  const std::string newest = file_name(all.back());
  if (is_there && target == newest) return;
  point_latest_at(all.back());
  repairs_.push_back(is_there ? format_text("{}: pointed at {}, now at {}", kLatest, target, newest)
                              : format_text("{}: was missing, points at {}", kLatest, newest));
}

void RunFolder::point_latest_at(std::int64_t step) {
  const std::string link = checkpoints_ + "/" + kLatest;
  const std::string temporary = temporary_path(link);
  if (symlink(file_name(step).c_str(), temporary.c_str()) != 0) fail_at(link, "link", errno);
  if (file_calls().rename(temporary.c_str(), link.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    fail_at(link, "rename", error);
  }
}

void RunFolder::set_aside(std::int64_t step) {
  const std::string path = checkpoint(step);
  if (file_calls().rename(path.c_str(), (path + ".damaged").c_str()) != 0) {
    fail_at(path, "rename", errno);
  }
  repair_latest();
}

void RunFolder::saved(std::int64_t step) {
  point_latest_at(step);
  std::vector<std::int64_t> all = steps();
  while (static_cast<int>(all.size()) > keep_) {
    const std::string oldest = checkpoint(all.front());
    if (unlink(oldest.c_str()) != 0) fail_at(oldest, "remove", errno);
    all.erase(all.begin());
  }
}

}  // namespace cephalo
