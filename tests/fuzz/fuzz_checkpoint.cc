// A checkpoint, its checksum made right first. An input that begins with '{' is what a checkpoint
// says of itself, in a file with the tensors of a small model; any other is a whole file.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/io/json.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/train/trainer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo::fuzz {
namespace {

void zeros(std::int64_t, std::span<std::int64_t> ids) {
  std::fill(ids.begin(), ids.end(), 0);
}

// A trainer to load into, and the file of its first step without what it says of itself.
class Trained {
 public:
  Trained()
      : model_(testing::tiny_options()), trainer(model_, zeros, {.schedule = {}, .batch = 1}) {
    const auto folder = std::filesystem::temp_directory_path();
    const std::string path = folder / ("cephalo-fuzz-" + std::to_string(getpid()) + ".saved");
    trainer.step();
    trainer.save(path);
    std::vector<Tensor> tensors;
    std::vector<std::pair<std::string, TensorView>> named;
    const SafetensorsFile file(path);
    tensors.reserve(file.entries().size());
    for (const auto& entry : file.entries()) {
      tensors.push_back(file.read(entry));
      named.emplace_back(entry.name, tensors.back());
    }
    write_safetensors(path, named, {}, true);
    std::ifstream stream(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLength);
    header_ = bytes.substr(kLength, length);
    data_ = bytes.substr(kLength + length);
    std::remove(path.c_str());
  }

  std::string file_that_says(const std::string& text) const {
    const std::string json =
        "{\"__metadata__\":{\"cephalo_checkpoint\":" + quoted_json(text, "input") + "}," +
        header_.substr(1);
    const std::uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), kLength) + json + data_;
  }

 private:
  static constexpr std::size_t kLength = 8;

  Gpt model_;
  std::string header_, data_;

 public:
  Trainer trainer;
};

void read_checkpoint(Trained& trained, const std::string& bytes) {
  const std::string whole = with_checksum(bytes);
  const auto* data = reinterpret_cast<const std::uint8_t*>(whole.data());
  read_as_file(data, whole.size(), ".safetensors",
               [](const std::string& path) { read_checkpoint_summary(path); });
  read_as_file(data, whole.size(), ".safetensors", [&](const std::string& path) {
    trained.trainer.load(path);
    const TrainerOptions& options = trained.trainer.options();
    constexpr dim_t kSmall = 4;  // what is right may still be long
    if (options.batch <= kSmall && options.accumulate <= kSmall) trained.trainer.step();
  });
}

}  // namespace
}  // namespace cephalo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static cephalo::fuzz::Trained trained;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with('{')) {
    try {
      bytes = trained.file_that_says(bytes);
    } catch (const cephalo::Error&) {  // it is not UTF-8, so no string of a header
      return 0;
    }
  }
  cephalo::fuzz::read_checkpoint(trained, bytes);
  return 0;
}
