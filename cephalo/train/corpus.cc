#include "cephalo/train/corpus.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/text/bpe_trainer.h"

namespace cephalo {
namespace {

constexpr std::int64_t kBlock = std::int64_t{256} << 10;

// Blocks that lie `distance` apart. A block begins and ends between words: those that it cuts are
// left out.
void add_blocks(BpeTrainer& trainer, const InputFile& file, std::int64_t distance,
                const std::function<void(std::int64_t)>& done) {
  std::string text;
  for (std::int64_t begin = 0; begin < file.size(); begin += distance) {
    text.resize(static_cast<std::size_t>(std::min(kBlock, file.size() - begin)));
    file.read(begin, text.data(), static_cast<std::int64_t>(text.size()));
    const std::size_t first = begin == 0 ? 0 : text.find_first_of(" \n");
    const std::size_t last = text.find_last_of(" \n");
    if (first != std::string::npos && last != std::string::npos && last > first) {
      trainer.add_text(std::string_view(text).substr(first, last - first));
    }
    done(begin);
  }
}

}  // namespace

std::int64_t corpus_bytes(const std::vector<std::string>& files) {
  std::int64_t bytes = 0;
  for (const std::string& path : files) bytes = checked_add(bytes, InputFile(path).size());
  return bytes;
}

Bpe learn_vocabulary(const std::vector<std::string>& files, std::int64_t vocab_size,
                     std::int64_t max_bytes, const CorpusProgress& progress) {
  BpeTrainOptions options;
  options.vocab_size = vocab_size;
  BpeTrainer trainer(options);
  const std::int64_t all = corpus_bytes(files);
  const std::int64_t distance =
      kBlock *
      std::max<std::int64_t>(1, (all + max_bytes - 1) / std::max<std::int64_t>(max_bytes, 1));
  std::int64_t before = 0;
  for (const std::string& path : files) {
    if (distance == kBlock) {
      trainer.add_file(path);
    } else {
      add_blocks(trainer, InputFile(path), distance, [&](std::int64_t done) {
        if (progress) progress(before + done, all);
      });
    }
    before += InputFile(path).size();
    if (progress) progress(before, all);
  }
  return trainer.train();
}

TokenizedCorpus tokenize_corpus(const std::vector<std::string>& files, const Bpe& bpe,
                                const std::string& path, double validation_share,
                                const CorpusProgress& progress) {
  require(validation_share >= 0.0 && validation_share < 1.0,
          "tokenize_corpus: validation_share ({}) must be in [0, 1)", validation_share);
  const std::int64_t all = corpus_bytes(files);
  const std::optional<TokenId> end_of_text = bpe.find(kEndOfText);
  TokenizedCorpus corpus;
  corpus.path = path;
  TokenFileWriter writer(path, bpe.vocab_size());
  std::int64_t before = 0;
  for (const std::string& text : files) {
    const InputFile file(text);
    const std::int64_t begin = writer.tokens();
    if (end_of_text.has_value()) writer.add(std::span(&*end_of_text, 1));
    bpe.encode_file(file, {}, [&](std::span<const TokenId> ids, std::int64_t done) {
      writer.add(ids);
      if (progress) progress(before + done, all);
    });
    before += file.size();
    const std::int64_t kept_out = static_cast<std::int64_t>(
        std::floor(validation_share * static_cast<double>(writer.tokens() - begin)));
    const std::int64_t cut = writer.tokens() - kept_out;
    corpus.training.push_back({begin, cut});
    corpus.validation.push_back({cut, writer.tokens()});
  }
  writer.finish();
  corpus.checksum = TokenFile(path, bpe.vocab_size()).checksum();
  return corpus;
}

}  // namespace cephalo
