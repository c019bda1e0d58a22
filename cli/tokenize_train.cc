#include "cli/tokenize_train.h"

#include <memory>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/text/bpe_trainer.h"
#include "cli/layer_flags.h"
#include "cli/numbers.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::vector<std::string> corpus;
  std::string output, vocab_size = "4096", min_count = "2";
  std::vector<std::string> special = {"<|endoftext|>"};
  bool force = false;
};

BpeTrainOptions parse(const Flags& flags) {
  BpeTrainOptions options;
  options.special_tokens = flags.special;
  for (const std::string& token : flags.special) {
    if (token.size() < 2) throw UsageError("--special-token: must have at least two bytes");
  }
  const auto least = 256 + static_cast<std::int64_t>(flags.special.size());
  options.vocab_size = parse_integer("--vocab-size", flags.vocab_size, least, 1'000'000);
  options.min_count = parse_integer("--min-count", flags.min_count, 1, INT64_MAX);
  return options;
}

// All files are there before the first is read.
std::int64_t bytes_of(const std::vector<std::string>& corpus) {
  std::int64_t bytes = 0;
  for (const std::string& path : corpus) bytes += InputFile(path).size();
  return bytes;
}

Bpe learn(const Flags& flags, const BpeTrainOptions& options, std::int64_t all_bytes) {
  BpeTrainer trainer(options);
  std::int64_t before = 0;
  for (const std::string& path : flags.corpus) {
    std::int64_t in_file = 0;
    trainer.add_file(path, [&](std::int64_t done, std::int64_t) {
      in_file = done;
      show_progress("counting", before + done, all_bytes);
    });
    before += in_file;
  }
  return trainer.train([](std::int64_t done, std::int64_t all) {
    if (done == all) {
      show_status("");
    } else if (done % 64 == 0) {
      show_status(format_text("learning: {} of {} tokens", done, all));
    }
  });
}

std::int64_t count_tokens(const Bpe& bpe, const std::vector<std::string>& corpus,
                          std::int64_t all_bytes) {
  std::int64_t tokens = 0;
  std::int64_t before = 0;
  for (const std::string& path : corpus) {
    const InputFile file(path);
    bpe.encode_file(file, {}, [&](std::span<const TokenId> ids, std::int64_t done) {
      tokens += static_cast<std::int64_t>(ids.size());
      show_progress("tokenising", before + done, all_bytes);
    });
    before += file.size();
  }
  return tokens;
}

void train(const Flags& flags) {
  const BpeTrainOptions options = parse(flags);
  for (const std::string& path : flags.corpus) {
    for (const char* name : {"vocab.json", "merges.txt"}) {
      check_output(format_text("{}/{}", flags.output, name), path);
    }
  }
  const std::int64_t all_bytes = bytes_of(flags.corpus);
  const Bpe bpe = learn(flags, options, all_bytes);
  bpe.save(flags.output, flags.force);
  const std::int64_t tokens = count_tokens(bpe, flags.corpus, all_bytes);
  std::string line = format_text("{}: {} tokens, {} merges", printable(flags.output),
                                 bpe.vocab_size(), bpe.merges().size());
  if (tokens > 0) {
    line += format_text("; the corpus is {} tokens, {:.2f} bytes each", tokens,
                        static_cast<double>(all_bytes) / static_cast<double>(tokens));
  }
  if (bpe.vocab_size() < options.vocab_size) {
    line += format_text("\nfewer than {}: no other pair occurs {} times", options.vocab_size,
                        options.min_count);
  }
  print(line + "\n");
}

}  // namespace

Verb add_tokenize_train(Command tokenize) {
  auto flags = std::make_shared<Flags>();
  Command verb = tokenize.add_subcommand("train", "Learn a byte-level BPE from text files");
  verb.add_option("CORPUS", flags->corpus, "Text files").required();
  verb.add_option("-o,--output", flags->output, "Folder for vocab.json and merges.txt")
      .required()
      .type_name("FOLDER");
  verb.add_option("--vocab-size", flags->vocab_size, "Tokens, the 256 bytes included")
      .type_name("N")
      .show_default();
  verb.add_option("--min-count", flags->min_count, "Pairs that are rarer are not joined")
      .type_name("N")
      .show_default();
  verb.add_option("--special-token", flags->special, "Gets one of the last ids; can be repeated")
      .type_name("TEXT")
      .show_default();
  verb.add_flag("--force", flags->force, "Replace files that exist");
  verb.footer("Example:\n  cephalo tokenize train corpus.txt --vocab-size 4096 -o vocabulary");
  return [flags] { train(*flags); };
}

}  // namespace cephalo::cli
