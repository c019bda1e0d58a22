#include "cli/train_corpus.h"

#include <algorithm>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/text/bpe_trainer.h"
#include "cephalo/text/windows.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/train_plan.h"
#include "cli/train_report.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::string tokens_path(const std::string& folder) {
  return folder + "/tokens.bin";
}

std::int64_t bytes_of_files(const std::vector<std::string>& files) {
  std::int64_t bytes = 0;
  for (const std::string& path : files) bytes = checked_add(bytes, InputFile(path).size());
  return bytes;
}

// Of a large corpus, blocks at equal distances: what is common is in them, and the memory for
// distinct words stays bounded. A block is cut between words.
void add_blocks(BpeTrainer& trainer, const InputFile& file, std::int64_t block,
                std::int64_t distance) {
  std::string text;
  for (std::int64_t begin = 0; begin < file.size(); begin += distance) {
    text.resize(static_cast<std::size_t>(std::min(block, file.size() - begin)));
    file.read(begin, text.data(), static_cast<std::int64_t>(text.size()));
    const std::size_t first = begin == 0 ? 0 : text.find_first_of(" \n");
    const std::size_t last = text.find_last_of(" \n");
    if (first == std::string::npos || last == std::string::npos || last <= first) continue;
    trainer.add_text(std::string_view(text).substr(first, last - first));
  }
}

Bpe learn_vocabulary(const std::vector<std::string>& files, std::int64_t vocab_size) {
  constexpr std::int64_t kBlock = kMiB / 4;
  constexpr std::int64_t kMostBytes = 64 * kMiB;
  const std::int64_t all = bytes_of_files(files);
  const std::int64_t distance =
      kBlock * std::max<std::int64_t>(1, (all + kMostBytes - 1) / kMostBytes);
  BpeTrainOptions options;
  options.vocab_size = vocab_size;
  BpeTrainer trainer(options);
  for (const std::string& path : files) {
    show_status(format_text("reading {}", printable(path)));
    if (distance == kBlock) {
      trainer.add_file(path);
    } else {
      add_blocks(trainer, InputFile(path), kBlock, distance);
    }
  }
  return trainer.train([](std::int64_t done, std::int64_t of) {
    show_status(format_text("learning the vocabulary: {} of {} tokens", done, of));
  });
}

Bpe choose_vocabulary(const TrainFlags& flags, std::int64_t bytes) {
  if (!flags.vocab.empty()) {
    if (!flags.vocab_size.empty()) {
      throw UsageError(
          "--vocab-size: the vocabulary of --vocab has its own size; give one of them");
    }
    return Bpe::load(flags.vocab);
  }
  constexpr std::int64_t kLeast = 257, kMost = 1 << 20;
  const std::int64_t vocab_size =
      flags.vocab_size.empty() ? recipe_vocab_size(bytes)
                               : parse_integer("--vocab-size", flags.vocab_size, kLeast, kMost);
  return learn_vocabulary(flags.files, vocab_size);
}

}  // namespace

void check_texts(const TrainFlags& flags) {
  const std::int64_t bytes = bytes_of_files(flags.files);
  if (flags.files.empty()) return;
  const std::string& first = flags.files.front();
  if (bytes == 0) {
    throw Error(Error::Kind::value, first + ": is empty; there is nothing to learn from");
  }
  // A token is a byte or more. A run that is resumed may have shorter rows than these flags say.
  if (flags.resume || bytes >= shortest_row(flags)) return;
  throw Error(Error::Kind::value,
              format_text("{}: has {} bytes, a row needs {} tokens; more text or a shorter "
                          "--context-length helps",
                          first, bytes, shortest_row(flags)));
}

TrainCorpus prepare_corpus(const TrainFlags& flags, const std::string& folder) {
  const std::int64_t bytes = bytes_of_files(flags.files);
  Bpe bpe = choose_vocabulary(flags, bytes);
  bpe.save(folder, true);
  TokenFileOptions options;
  options.before_each_file = bpe.find(kEndOfText);
  options.replace = true;
  options.progress = [](std::int64_t done, std::int64_t all) {
    show_status(format_text("tokenising: {} of {}", in_bytes(done), in_bytes(all)));
  };
  write_token_file(bpe, flags.files, tokens_path(folder), options);
  show_status("");
  return open_corpus(folder);
}

TrainCorpus open_corpus(const std::string& folder) {
  Bpe bpe = Bpe::load(folder);
  auto tokens = std::make_shared<TokenFile>(tokens_path(folder), &bpe);
  return {std::move(bpe), std::move(tokens)};
}

std::string checksum_of(const TrainCorpus& corpus) {
  constexpr std::int64_t kBytes = 16;
  const InputFile file(corpus.tokens->path());
  unsigned char bytes[kBytes];
  file.read(file.size() - kBytes, bytes, kBytes);
  std::string digits;
  for (const unsigned char byte : bytes) digits += format_text("{:02x}", static_cast<int>(byte));
  return digits;
}

dim_t training_tokens(const TokenFile& tokens, double validation_share) {
  return split_tokens(tokens.tokens(), validation_share).first.end;
}

TrainRows rows_of(const TrainCorpus& corpus, dim_t training_end, const GptOptions& model,
                  const TrainSettings& settings) {
  return recipe_rows(corpus.tokens, corpus.bpe, training_end, model,
                     {settings.repeat_share, settings.repeat_sentences, settings.validation_rows});
}

}  // namespace cephalo::cli
