// A corpus of 1 GB: learned from, tokenised and cut into windows in little memory.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "cephalo/core/format.h"
#include "cephalo/text/bpe_trainer.h"
#include "cephalo/text/windows.h"
#include "tests/support/files.h"
#include "tests/support/golden.h"
#include "tests/support/memory.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::extra_mib;

constexpr std::size_t kBytes = std::size_t{1} << 30;

// Words of two syllables out of 5,000: as many different pieces as a small corpus has.
void write_corpus(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::uint32_t random = 1;
  std::string block;
  for (std::size_t written = 0; written < kBytes; written += block.size()) {
    block.clear();
    while (block.size() < (1U << 20)) {
      random = random * 1664525 + 1013904223;
      const std::uint32_t word = (random >> 16) % 5000;
      for (std::uint32_t part = word + 1; part > 0; part /= 15) {
        block += "bcdfghklmnprstv"[part % 15];
        block += "aeiou"[part % 5];
      }
      block += random % 11 == 0 ? ".\n" : " ";
    }
    file << block;
  }
}

TEST(CorpusTest, a_corpus_of_1_gb_becomes_windows_in_less_than_32_mib) {
  const testing::Folder folder;
  write_corpus(folder / "corpus");
  const std::vector<std::string> texts = {folder / "corpus"};
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Bpe> bpe;
  const double learning = extra_mib([&] {
    BpeTrainer trainer({.vocab_size = 1000});
    trainer.add_file(texts[0]);
    bpe = std::make_unique<Bpe>(trainer.train());
  });
  dim_t tokens = 0;
  const double writing =
      extra_mib([&] { tokens = write_token_file(*bpe, texts, folder / "tokens"); });
  const double reading = extra_mib([&] {
    const auto file = std::make_shared<TokenFile>(folder / "tokens", bpe.get());
    const Windows windows(file, {.context_length = 256, .stride = 1, .batch = 64, .shuffle = true});
    for (WindowPosition at; at.batch < 1000; at = windows.after(at)) {
      EXPECT_EQ(windows.batch(at).inputs.dim(0), 64);
    }
  });
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  testing::report(
      format_text("1 GB of text, {} million tokens: {:.1f} MiB to learn a vocabulary, {:.1f} to "
                  "tokenise, {:.1f} "
                  "for 1,000 batches; {:.0f} s",
                  tokens / 1000000, learning, writing, reading, time.count()));
  EXPECT_LT(learning, 32.0);
  EXPECT_LT(writing, 32.0);
  EXPECT_LT(reading, 32.0);
}

}  // namespace
}  // namespace cephalo
