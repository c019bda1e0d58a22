
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/io/json_value.h"
#include "cephalo/text/byte_alphabet.h"
#include "cephalo/text/piece_text.h"
#include "cli/terminal.h"
#include "cli/tokenize_train.h"
#include "cli/verbs.h"
#include "cli/vocabulary.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string text, file;
  VocabularyFlags vocabulary;
  bool special = false, decode = false, json = false;
  std::optional<Flag> text_option;
};

std::string text_of(const Flags& flags) {
  const bool given = flags.text_option->given();
  if (given != flags.file.empty()) {
    throw UsageError(given
                         ? "--file: TEXT is also given; use only one of them"
                         : "no TEXT given; pass one, or --file FILE; see cephalo tokenize --help");
  }
  if (given) return flags.text;
  const InputFile file(flags.file);
  std::string content(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, content.data(), file.size());
  return content;
}

std::string heading(const Bpe& bpe, std::size_t tokens, std::size_t bytes) {
  return format_text("{} token{} of {} byte{}, vocabulary of {}\n", tokens, tokens == 1 ? "" : "s",
                     bytes, bytes == 1 ? "" : "s", bpe.vocab_size());
}

// A line for each token: its position, id and bytes.
void print_as_text(const Bpe& bpe, const std::vector<TokenId>& ids, std::size_t bytes) {
  constexpr std::size_t kAtOnce = 1 << 16;
  std::string out = heading(bpe, ids.size(), bytes);
  const std::size_t position_width = std::to_string(ids.size()).size();
  const std::size_t id_width = std::to_string(bpe.vocab_size() - 1).size();
  for (std::size_t k = 0; k < ids.size(); ++k) {
    out += format_text("{:>{}}  {:>{}}  {}\n", k, position_width, ids[k], id_width,
                       in_quotes(bpe.token(ids[k])));
    if (out.size() < kAtOnce) continue;
    print(out);
    out.clear();
  }
  print(out);
}

// Pieces as vocab.json writes them: JSON has no place for half a character.
void print_as_json(const Bpe& bpe, const std::vector<TokenId>& ids, std::size_t bytes) {
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(to_byte_characters(bpe.token(id)));
  const Json json = {{"vocab_size", bpe.vocab_size()},
                     {"tokens", ids.size()},
                     {"bytes", bytes},
                     {"ids", ids},
                     {"pieces", pieces}};
  print(json.dump() + "\n");
}

// "15496, 11 995" or "[15496,11,995]" -> ids
std::vector<TokenId> parse_ids(const std::string& text) {
  constexpr std::string_view kBetween = " ,[]\t\r\n";
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    TokenId id = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || rest != text.data() + end) {
      const std::string word = text.substr(at, std::min<std::size_t>(end - at, 40));
      throw UsageError(
          format_text("--decode: '{}' is not a token id (id {} of the list)", word, ids.size()));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

void tokenize(const Flags& flags) {
  const std::string text = text_of(flags);
  if (flags.decode) {
    const std::vector<TokenId> ids = parse_ids(text);
    const Bpe bpe = flags.vocabulary.load();
    const std::string bytes = bpe.decode(ids);
    return flags.json ? print_as_json(bpe, ids, bytes.size()) : print_bytes(bytes);
  }
  const Bpe bpe = flags.vocabulary.load();
  const auto allowed = flags.special ? bpe.special_tokens() : std::vector<std::string>();
  const std::vector<TokenId> ids = bpe.encode(text, allowed);
  flags.json ? print_as_json(bpe, ids, text.size()) : print_as_text(bpe, ids, text.size());
}

}  // namespace

Verb add_tokenize(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb =
      program.add_subcommand("tokenize", "Text to token ids and back; learn a vocabulary");
  flags->text_option =
      verb.add_option("TEXT", flags->text, "What to tokenise, or ids for --decode");
  verb.add_option("--file", flags->file, "Read it from this file").type_name("FILE");
  flags->vocabulary.add_to(verb);
  verb.add_flag("--special", flags->special, "Read special tokens such as <|endoftext|> as tokens");
  verb.add_flag("--decode", flags->decode, "From ids to text: exactly its bytes");
  verb.add_flag("--json", flags->json, "The same as JSON; pieces as in vocab.json");
  verb.footer(
      "To tokenise the word train, put it after --: cephalo tokenize --vocab FOLDER -- train\n"
      "Examples:\n"
      "  cephalo tokenize train corpus.txt --vocab-size 4096 -o vocabulary\n"
      "  cephalo tokenize \"The cat sat on the mat\" --vocab vocabulary\n"
      "  cephalo tokenize --decode \"464 3797 3332\" --vocab gpt2");
  const Verb train = add_tokenize_train(verb);
  return [flags, verb, train] { verb.chose("train") ? train() : tokenize(*flags); };
}

}  // namespace cephalo::cli
