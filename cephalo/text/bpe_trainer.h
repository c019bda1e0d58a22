#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/text/bpe.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How large a vocabulary to learn.
struct BpeTrainOptions {
  std::int64_t vocab_size = 4096;  // 256 bytes, merges and special tokens together
  std::int64_t min_count = 2;      // a pair that is rarer in the corpus is never joined
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // get the last ids
};

// Learns a byte-level BPE from text: repeatedly, the most frequent pair of neighbours becomes a
// token. Ties go to the smaller left id, then to the smaller right id: the same corpus gives the
// same files, in whatever order and portions it comes. Ids are GPT-2's: the bytes in the order of
// their characters, then merges.
//
// Corpora are read in blocks; what is held are the distinct pieces and their counts. A piece of
// more than kMaxPieceBytes is counted in portions of that size.
class BpeTrainer {
 public:
  static constexpr std::size_t kMaxPieceBytes = 256;

  explicit BpeTrainer(BpeTrainOptions options = {});
  BpeTrainer(BpeTrainer&&) noexcept;
  BpeTrainer& operator=(BpeTrainer&&) noexcept;
  ~BpeTrainer();

  // done of all: bytes of a file, then tokens of the vocabulary.
  using Progress = std::function<void(std::int64_t done, std::int64_t all)>;

  void add_text(std::string_view text);
  void add_file(const std::string& path, const Progress& progress = {});

  // A corpus with too few repetitions gives fewer tokens than vocab_size.
  Bpe train(const Progress& progress = {}) const;

 private:
  struct Counts;
  BpeTrainOptions options_;
  std::unique_ptr<Counts> counts_;
};

}  // namespace cephalo
#pragma GCC visibility pop
