// Rows R5 and R7 of the list of faults, as far as files and folders alone can show them.
#include "cephalo/train/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "cephalo/core/error.h"
#include "cephalo/io/file_calls.h"
#include "cephalo/train/run_folder.h"
#include "cephalo/train/trainer.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Folder;
using testing::normal;
using testing::read_bytes;
using testing::same_bits;
using testing::write_bytes;

class CheckpointTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "step-00000001.safetensors"; }
  std::string refusal() const {
    const std::string error = error_of([&] { CheckpointFile file(path()); });
    return error.starts_with(path() + ": ") ? error.substr(path().size() + 2) : error;
  }

  Folder folder_;
};

TEST_F(CheckpointTest, what_is_written_can_be_read) {
  const Tensor a = normal({3, 5}, 1);
  write_checkpoint(path(), {{"a", a}}, R"({"step":12,"rate":0.1})");
  const CheckpointFile file(path());
  EXPECT_EQ(file.state(), R"({"rate":0.1,"step":12})");
  EXPECT_TRUE(same_bits(file.read("a"), a));
  Tensor wrong = Tensor::zeros({5, 3});
  EXPECT_EQ(error_of([&] { file.read_into("a", wrong); }),
            path() +
                ": a: is float32 [3, 5], the model's is float32 [5, 3]; the checkpoint belongs to "
                "another model");
  EXPECT_EQ(error_of([&] { file.read("b"); }),
            path() + ": b: is missing; the checkpoint belongs to another model");
}

TEST_F(CheckpointTest, R5_any_flipped_bit_is_a_checksum_error) {
  write_checkpoint(path(), {{"a", normal({3, 5}, 1)}}, R"({"step":12})");
  const std::string whole = read_bytes(path());
  const std::string damaged = "checksum: does not match the " + std::to_string(whole.size()) +
                              " bytes of the file; it is damaged, truncated or not a checkpoint";
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      write_bytes(path(), flipped);
      ASSERT_EQ(refusal(), damaged) << "byte " << byte << ", bit " << bit;
    }
  }
  write_bytes(path(), whole);
  EXPECT_EQ(refusal(), "");
}

TEST_F(CheckpointTest, R5_a_file_cut_at_any_byte_is_a_checksum_error) {
  write_checkpoint(path(), {{"a", normal({3, 5}, 1)}}, R"({"step":12})");
  const std::string whole = read_bytes(path());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_bytes(path(), whole.substr(0, bytes));
    ASSERT_EQ(refusal(), "checksum: does not match the " + std::to_string(bytes) +
                             " bytes of the file; it is damaged, truncated or not a checkpoint");
  }
}

TEST_F(CheckpointTest, R5_a_newer_version_and_files_that_are_none) {
  const auto write = [&](const std::string& inside) {
    write_checked_safetensors(path(), {}, {{"cephalo_checkpoint", inside}}, true);
    return refusal();
  };
  EXPECT_EQ(write(R"({"version":2,"state":{}})"),
            "version: is 2, but this cephalo reads 1; a newer one wrote it");
  EXPECT_EQ(write("[]"), "cephalo_checkpoint: is not a version and a state");
  EXPECT_EQ(write(R"({"version":"1","state":{}})"),
            "cephalo_checkpoint: is not a version and a state");
  write_checked_safetensors(path(), {}, {}, true);
  EXPECT_EQ(refusal(), "is not a checkpoint: its metadata has no cephalo_checkpoint");
}

TEST_F(CheckpointTest, a_state_of_any_depth_is_refused_not_followed) {
  // The checksum has no key: whoever writes the nesting writes the sum as well.
  const std::string open(200'000, '[');
  const std::string close(200'000, ']');
  const auto refusal_of = [&](const std::string& inside) {
    write_checked_safetensors(path(), {}, {{"cephalo_checkpoint", inside}}, true);
    EXPECT_EQ(error_of([&] { read_checkpoint_summary(path()); }), path() + ": " + refusal());
    return refusal();
  };
  EXPECT_EQ(refusal_of(R"({"version":1,"state":{"a":)" + open + close + "}}"),
            "cephalo_checkpoint: objects and arrays nested more than 64 deep at byte 89");
  EXPECT_EQ(refusal_of(R"({"version":1,"state":{"notes":)" + open + close + "}}"),
            "cephalo_checkpoint: objects and arrays nested more than 64 deep at byte 93");
  EXPECT_EQ(refusal_of(std::string("{\"version\":1,\"state\":{}}\0more", 29)),
            "cephalo_checkpoint: not valid UTF-8 JSON at byte 25");
}

class RunFolderTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "run"; }
  static void save(RunFolder& run, std::int64_t step) {
    write_checkpoint(run.checkpoint(step), {}, "{}");
    run.saved(step);
  }
  std::string latest() const { return fs::read_symlink(path() + "/checkpoints/latest").string(); }

  Folder folder_;
};

TEST_F(RunFolderTest, keeps_the_last_two) {
  RunFolder run(path());
  EXPECT_TRUE(run.steps().empty());
  for (const std::int64_t step : {0, 5, 10, 15}) save(run, step);
  EXPECT_EQ(run.steps(), (std::vector<std::int64_t>{10, 15}));
  EXPECT_EQ(latest(), "step-00000015.safetensors");
  EXPECT_TRUE(fs::exists(path() + "/checkpoints/latest"));
  EXPECT_TRUE(run.repairs().empty());
}

// What a process that is killed while it writes `bytes` of a file leaves.
std::string leave_half(const std::string& path, const std::string& bytes) {
  const std::string temporary = temporary_path(path);
  write_bytes(temporary, bytes);
  return temporary;
}

TEST_F(RunFolderTest, R7_what_an_interrupted_save_left_is_removed) {
  {
    RunFolder run(path());
    save(run, 3);
  }
  const std::string whole = read_bytes(path() + "/checkpoints/step-00000003.safetensors");
  const std::string link = temporary_path(path() + "/checkpoints/latest");
  fs::create_symlink("step-00000004.safetensors", link);
  const std::string left[] = {
      leave_half(path() + "/checkpoints/step-00000004.safetensors", ""),
      leave_half(path() + "/checkpoints/step-00000004.safetensors", whole.substr(0, 5)),
      leave_half(path() + "/checkpoints/step-00000004.safetensors", whole.substr(0, 20)),
      leave_half(path() + "/checkpoints/step-00000004.safetensors", whole),
      leave_half(path() + "/tokens.bin", "CEPHTOK1\x01"),
      leave_half(path() + "/loss.csv", "step,lo"),
      leave_half(path() + "/config.json", "{\n"),
      leave_half(path() + "/merges.txt", "#version: 0.2\na b"),
      leave_half(path() + "/loss.svg", "<svg "),
      link};
  const RunFolder run(path());
  EXPECT_EQ(run.steps(), std::vector<std::int64_t>{3});
  EXPECT_EQ(run.repairs().size(), std::size(left));
  for (const std::string& file : left) {
    EXPECT_FALSE(fs::exists(fs::symlink_status(file))) << file;
  }
}

TEST_F(RunFolderTest, R7_no_file_of_the_users_is_removed) {
  {
    RunFolder run(path());
    save(run, 3);
  }
  const std::string temporary = fs::path(temporary_path("step-00000004.safetensors")).filename();
  const std::string mine[] = {
      path() + "/backup.2024-11-15.tmp",
      path() + "/notes.tmp",
      path() + "/checkpoints/latest.tmp",
      path() + "/checkpoints/step-00000004.safetensors.77-0.tmp",
      path() + "/checkpoints/step-x.safetensors",
      path() + "/checkpoints/step-2.safetensors",
      path() + "/checkpoints/" + temporary,  // our name, another content
      temporary_path(path() + "/notes.md"),  // our form of a name, not a file of ours
      temporary_path(path() + "/model.safetensors")};
  for (const std::string& file : mine) write_bytes(file, "precious, and mine");
  fs::create_directory(temporary_path(path() + "/config.json"));
  const std::string link = temporary_path(path() + "/checkpoints/latest");
  fs::create_symlink("../notes.tmp", link);
  RunFolder run(path());
  EXPECT_EQ(run.steps(), std::vector<std::int64_t>{3});
  EXPECT_TRUE(run.repairs().empty());
  for (const std::int64_t step : {4, 5, 6}) save(run, step);
  for (const std::string& file : mine) EXPECT_EQ(read_bytes(file), "precious, and mine") << file;
  EXPECT_TRUE(fs::exists(fs::symlink_status(link)));
}

TEST_F(RunFolderTest, R7_latest_that_points_nowhere_is_repaired) {
  {
    RunFolder run(path());
    save(run, 3);
    save(run, 4);
  }
  const std::string link = path() + "/checkpoints/latest";
  fs::remove(link);
  fs::create_symlink("step-00000009.safetensors", link);
  {
    const RunFolder run(path());
    EXPECT_EQ(latest(), "step-00000004.safetensors");
    EXPECT_EQ(run.repairs(), std::vector<std::string>{"latest: pointed at step-00000009.safetensors"
                                                      ", now at step-00000004.safetensors"});
  }
  fs::remove(link);
  const RunFolder run(path());
  EXPECT_EQ(latest(), "step-00000004.safetensors");
}

TEST_F(RunFolderTest, R7_a_second_run_is_refused_until_the_first_has_ended) {
  const std::string refused =
      path() +
      ": another run is training in this folder; wait for it to end or choose another folder";
  {
    const RunFolder run(path());
    EXPECT_EQ(error_of([&] { RunFolder second(path()); }), refused);
    const pid_t other = fork();
    ASSERT_GE(other, 0);
    if (other == 0) _exit(error_of([&] { RunFolder second(path()); }) == refused ? 0 : 1);
    int status = 1;
    ASSERT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(error_of([&] { RunFolder second(path()); }), "");
}

TEST_F(RunFolderTest, R3_a_folder_that_went_away_is_an_error_that_names_it) {
  RunFolder run(path());
  save(run, 1);
  fs::remove_all(path() + "/checkpoints");
  EXPECT_EQ(error_of([&] { save(run, 2); }), run.checkpoint(2) + ": No such file or directory");
}

TEST_F(RunFolderTest, a_file_in_its_place_is_an_error) {
  write_bytes(path(), "");
  EXPECT_EQ(error_of([&] { RunFolder run(path()); }), path() + ": make folder: Not a directory");
}

}  // namespace
}  // namespace cephalo
