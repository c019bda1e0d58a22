// Rows R3, R4 and N4 of the list of faults: what AtomicFile leaves behind when the disk fails, when
// the power goes, and when others read and write at the same time.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/io/checksum.h"
#include "cephalo/io/file.h"
#include "cephalo/io/file_calls.h"
#include "cephalo/io/short_checksum.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Folder;
using testing::read_bytes;
using testing::write_bytes;

// Other system calls while it lives.
class AtomicFileTest : public ::testing::Test {
 protected:
  void TearDown() override { file_calls() = usual_; }

  void write(const std::string& text) const {
    AtomicFile file(path(), true);
    file.write(text.data(), text.size());
    file.finish();
  }
  std::string path() const { return folder_ / "file"; }

  Folder folder_;
  FileCalls usual_ = file_calls();
};

TEST_F(AtomicFileTest, R3_a_disk_that_fails_at_any_call_leaves_the_old_file_and_nothing_else) {
  write_bytes(path(), "old");
  int syncs = 0;
  const std::vector<std::pair<std::string, std::function<void()>>> faults = {
      {": write: No space left on device",
       [] {
         file_calls().write = [](int, const void*, std::size_t) -> ssize_t {
           errno = ENOSPC;
           return -1;
         };
       }},
      {": write: Input/output error",
       [] {
         file_calls().write = [](int, const void*, std::size_t) -> ssize_t {
           errno = EIO;
           return -1;
         };
       }},
      {": sync: Input/output error",
       [] {
         file_calls().sync = [](int) {
           errno = EIO;
           return -1;
         };
       }},
      {": close: Input/output error",
       [this] {
         file_calls().close = [this](int descriptor) {
           usual_.close(descriptor);
           errno = EIO;
           return -1;
         };
       }},
      {": rename: Input/output error",
       [] {
         file_calls().rename = [](const char*, const char*) {
           errno = EIO;
           return -1;
         };
       }},
  };
  for (const auto& [message, install] : faults) {
    install();
    EXPECT_EQ(error_of([&] { write("new"); }), path() + message);
    file_calls() = usual_;
    EXPECT_EQ(read_bytes(path()), "old") << message;
    EXPECT_EQ(folder_.files(), 1U) << message;
  }
  // After the rename the new file is whole; that it may not outlast a power loss is still told.
  file_calls().sync = [&](int descriptor) {
    if (++syncs == 1) return usual_.sync(descriptor);
    errno = EIO;
    return -1;
  };
  EXPECT_EQ(error_of([&] { write("new"); }), path() + ": sync its folder: Input/output error");
  EXPECT_EQ(read_bytes(path()), "new");
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(AtomicFileTest, what_a_killed_process_of_the_same_number_left_is_in_nobodys_way) {
  // In a container every run is process 1 and writes its first file.
  for (int round = 0; round < 2; ++round) {
    const pid_t killed = fork();
    ASSERT_GE(killed, 0);
    if (killed == 0) {
      AtomicFile file(path(), true);
      file.write("half", 4);
      _exit(0);  // no destructor, as in a kill
    }
    ASSERT_EQ(waitpid(killed, nullptr, 0), killed);
  }
  EXPECT_EQ(folder_.files(), 2U);
  write_bytes(path() + "." + std::to_string(getpid()) + "-0.tmp", "of an older version");
  write("new");
  EXPECT_EQ(read_bytes(path()), "new");
  EXPECT_EQ(folder_.files(), 4U);  // those that were there, and the file
}

TEST_F(AtomicFileTest, temporary_names_differ_and_are_told_from_all_others) {
  std::set<std::string> names;
  for (int k = 0; k < 1000; ++k) names.insert(temporary_path("a/model.safetensors"));
  EXPECT_EQ(names.size(), 1000U);
  EXPECT_EQ(finished_name(fs::path(*names.begin()).filename()), "model.safetensors");
  for (const char* other :
       {"backup.2024-11-15.tmp", "model.safetensors.77-0.tmp", "notes.tmp", ".tmp",
        "model.cephalo-0123456789abcde.tmp", "model.cephalo-0123456789abcdeX.tmp",
        "model.cephalo-0123456789ABCDEF.tmp", ".cephalo-0123456789abcdef.tmp",
        "model.cephalo-0123456789abcdef.tmp.bak"}) {
    EXPECT_EQ(finished_name(other), std::nullopt) << other;
  }
}

TEST_F(AtomicFileTest, the_longest_name_that_a_file_may_have_can_be_written) {
  const std::string name = folder_ / std::string(255, 'x');
  AtomicFile file(name, false);
  file.write("new", 3);
  file.finish();
  EXPECT_EQ(read_bytes(name), "new");
}

TEST_F(AtomicFileTest, a_file_system_without_links_is_named_as_such) {
  for (const int error : {EPERM, EOPNOTSUPP, ENOSYS}) {
    file_calls().link = [error](const char*, const char*) {
      errno = error;
      return -1;
    };
    EXPECT_EQ(error_of([&] {
                AtomicFile file(path(), false);
                file.finish();
              }),
              path() +
                  ": its file system has no hard links, so a new file could overwrite another; "
                  "replace = true allows that");
    EXPECT_EQ(folder_.files(), 0U);
  }
  write("new");  // replacing needs none
  EXPECT_EQ(read_bytes(path()), "new");
}

TEST_F(AtomicFileTest, a_write_that_takes_a_part_goes_on_with_the_rest) {
  file_calls().write = [this](int descriptor, const void* data, std::size_t bytes) {
    return usual_.write(descriptor, data, std::min<std::size_t>(bytes, 7));
  };
  const std::string text(1000, 'x');
  write(text);
  EXPECT_EQ(read_bytes(path()), text);
}

// A disk that forgets: what was written since the last sync of a file, and names changed since the
// last sync of their folder, may or may not be there after the power went.
struct Disk {
  bool data_synced = false;    // of the new file
  bool renamed = false;        // in the cache
  bool folder_synced = false;  // after the rename
  bool written_after = false;  // data written after its sync

  // What may be found under the name: every choice that the disk has.
  std::vector<std::string> outcomes() const {
    const std::string fresh = data_synced && !written_after ? "new" : "torn";
    if (!renamed) return {"old"};
    if (folder_synced) return {fresh};
    return {"old", fresh};
  }
};

TEST_F(AtomicFileTest, R4_power_loss_at_any_instant_leaves_old_or_new) {
  write_bytes(path(), "old");
  Disk disk;
  std::vector<Disk> instants = {disk};
  std::vector<std::string> order;
  const auto then = [&](const char* what) {
    order.emplace_back(what);
    instants.push_back(disk);
  };
  const auto is_folder = [](int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  };
  file_calls().write = [&](int descriptor, const void* data, std::size_t bytes) {
    disk.written_after = disk.data_synced;
    then("write");
    return usual_.write(descriptor, data, bytes);
  };
  file_calls().sync = [&](int descriptor) {
    const bool folder = is_folder(descriptor);
    (folder ? disk.folder_synced : disk.data_synced) = true;
    then(folder ? "sync folder" : "sync");
    return usual_.sync(descriptor);
  };
  file_calls().rename = [&](const char* from, const char* to) {
    disk.renamed = true;
    disk.folder_synced = false;
    then("rename");
    return usual_.rename(from, to);
  };
  write("new");
  const std::vector<std::string> wanted = {"write", "sync", "rename", "sync folder"};
  EXPECT_EQ(order, wanted);
  for (const Disk& instant : instants) {
    for (const std::string& found : instant.outcomes())
      EXPECT_TRUE(found == "old" || found == "new");
  }
  EXPECT_EQ(instants.back().outcomes(), std::vector<std::string>{"new"});
}

// A text of its own length that carries its checksum.
std::string checked_text(std::size_t length, char fill) {
  std::string text(length, fill);
  Checksum checksum;
  checksum.add(text.data(), text.size());
  const Checksum::Value value = checksum.value();
  return text + std::string(value.begin(), value.end());
}

TEST_F(AtomicFileTest, N4_two_processes_write_one_file_and_every_reader_sees_a_whole_one) {
  write(checked_text(100000, '0'));
  std::vector<pid_t> writers;
  for (int k = 0; k < 2; ++k) {
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      int failed = 0;
      for (int round = 0; round < 60; ++round) {
        const auto length = static_cast<std::size_t>(1000 + 50000 * ((round + k) % 5));
        failed += error_of([&] {
                    write(checked_text(length, static_cast<char>('a' + round % 26)));
                  }).empty()
                      ? 0
                      : 1;
      }
      _exit(failed == 0 ? 0 : 1);
    }
    writers.push_back(writer);
  }
  int reads = 0;
  for (bool writing = true; writing || reads < 100; ++reads) {
    const InputFile file(path());
    EXPECT_TRUE(ends_with_checksum(file));
    if (writing) writing = waitpid(writers.back(), nullptr, WNOHANG) == 0;
  }
  int status = 0;
  ASSERT_EQ(waitpid(writers.front(), &status, 0), writers.front());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder_.files(), 1U);
}

TEST(ChecksumTest, is_the_one_that_xxhsum_prints) {
  const auto hex = [](const std::string& text) {
    Checksum checksum;
    for (const char c : text) checksum.add(&c, 1);
    std::string digits;
    for (const unsigned char byte : checksum.value()) {
      constexpr const char* kDigits = "0123456789abcdef";
      digits += kDigits[byte >> 4];
      digits += kDigits[byte & 15];
    }
    return digits;
  };
  EXPECT_EQ(hex(""), "99aa06d3014798d86001c324468d497f");  // the specification's
  const auto in_short = [](std::string_view text) {
    return short_checksum(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(in_short(""), 0x02cc5d05U);
  EXPECT_EQ(in_short("Nobody inspects the spammish repetition"), 0xe2293b2fU);
}

}  // namespace
}  // namespace cephalo
