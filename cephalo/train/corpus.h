#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/text/bpe.h"
#include "cephalo/train/token_file.h"

namespace cephalo {

// Done of all, in bytes of the files.
using CorpusProgress = std::function<void(std::int64_t done, std::int64_t all)>;

std::int64_t corpus_bytes(const std::vector<std::string>& files);

// A vocabulary learned from text files. Of a larger corpus than max_bytes it reads blocks at equal
// distances: what is common is in them, and the memory for distinct words stays bounded.
Bpe learn_vocabulary(const std::vector<std::string>& files, std::int64_t vocab_size,
                     std::int64_t max_bytes = std::int64_t{32} << 20,
                     const CorpusProgress& progress = {});

// A corpus as ids in a file, and which of them are for what: of each text the last share is kept
// out of training.
struct TokenizedCorpus {
  std::string path;
  std::string checksum;  // of the file
  std::vector<TokenStream::Part> training;
  std::vector<TokenStream::Part> validation;
};

// Each text is preceded by <|endoftext|> where the vocabulary has it. Memory does not grow with the
// corpus.
TokenizedCorpus tokenize_corpus(const std::vector<std::string>& files, const Bpe& bpe,
                                const std::string& path, double validation_share,
                                const CorpusProgress& progress = {});

inline constexpr const char* kEndOfText = "<|endoftext|>";

}  // namespace cephalo
