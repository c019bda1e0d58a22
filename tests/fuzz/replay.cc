// Stands in for libFuzzer where there is no clang: replays a corpus and a number of seeded
// mutations of it. replay COUNT FOLDER
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

void mutate(Bytes& bytes, const std::vector<Bytes>& corpus, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(5)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1U << below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 2:
        bytes.insert(place, static_cast<std::uint8_t>("0123456789-{}[]\",:.e"[below(20)]));
        break;
      case 3:
        bytes.resize(at);
        break;
      default: {  // the end of another file
        const Bytes& other = corpus[below(corpus.size())];
        bytes.erase(place, bytes.end());
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())),
                     other.end());
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::vector<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(argv[2]))
    paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());  // the same order on every machine
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  if (corpus.empty()) return 2;
  std::mt19937 random(1);
  const long count = std::atol(argv[1]);
  for (long k = 0; k < count; ++k) {
    Bytes bytes = corpus[random() % corpus.size()];
    mutate(bytes, corpus, random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu files and %ld mutations without a finding\n", corpus.size(), count);
}
