// vocab.json and merges.txt: read with every rule checked, and written.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/checksum.h"
#include "cephalo/io/json.h"
#include "cephalo/text/bpe_tables.h"
#include "cephalo/text/byte_alphabet.h"
#include "cephalo/text/pre_split.h"

namespace cephalo {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{32} << 20;  // GPT-2's is 1 MB
constexpr JsonLimits kLimits = {
    .bytes = kMaxFileBytes, .values = 4'000'000, .string_bytes = 1 << 20, .depth = 8};
constexpr std::uint64_t kMaxId = INT32_MAX;

// In quotes, and no longer than a message bears.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string shown;
  while (!text.empty() && shown.size() < kShown) {
    const std::string_view next = text.substr(0, first_character(text).bytes);
    const bool broken = next.size() == 1 && static_cast<unsigned char>(next[0]) >= 0x80;
    shown += broken ? "?" : printable(next);
    text.remove_prefix(next.size());
  }
  return format_text("\"{}\"{}", shown, text.empty() ? "" : "...");
}

// The characters of a token in vocab.json.
std::string characters_of(std::string_view bytes, bool special) {
  // A special token may hold what stands for no byte, as a space: it is written as it is.
  const bool as_it_is =
      special && !from_byte_characters(bytes).has_value() && is_json(format_text("\"{}\"", bytes));
  return as_it_is ? std::string(bytes) : to_byte_characters(bytes);
}

std::string bytes_of(const std::string& characters) {
  return from_byte_characters(characters).value_or(characters);
}

std::string shown(std::string_view bytes) {
  return in_quotes(to_byte_characters(bytes));
}

// Reads one object of numbers, event by event: nothing is built for what does not belong there.
class VocabReader : public JsonEvents {
 public:
  VocabReader(const std::string& name, std::int64_t model_vocab_size)
      : name_(name), model_vocab_size_(model_vocab_size) {}

  StringList tokens;  // bytes, in the order of the file
  std::vector<TokenId> ids;

  bool start_object() override {
    if (inside_) complain("an object");
    inside_ = true;
    return true;
  }
  bool end_object() override { return true; }
  bool start_array() override { complain("an array"); }
  bool end_array() override { return true; }
  bool key(std::string& text) override {
    token_ = text;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (!inside_) complain("a number");
    const bool modelled = model_vocab_size_ > 0;
    const std::uint64_t limit =
        modelled ? static_cast<std::uint64_t>(model_vocab_size_ - 1) : kMaxId;
    if (value > limit) {
      fail(Error::Kind::value, "{}: token {}: id {} is over the limit {}{}", name_,
           in_quotes(token_), value, limit, modelled ? " of the model's vocab_size" : "");
    }
    tokens.push_back(bytes_of(token_));
    ids.push_back(static_cast<TokenId>(value));
    return true;
  }
  bool number_integer(std::int64_t value) override {
    if (!inside_) complain("a number");
    fail(Error::Kind::value, "{}: token {}: id {} is negative", name_, in_quotes(token_), value);
  }
  bool number_float(double, const std::string& text) override {
    if (!inside_) complain("a number");
    fail(Error::Kind::value, "{}: token {}: id {} is not a whole number up to {}", name_,
         in_quotes(token_), cephalo::shown(text), kMaxId);
  }
  bool string(std::string& text) override {
    if (!inside_) complain("a string");
    fail(Error::Kind::value, "{}: token {}: id {} is not a number", name_, in_quotes(token_),
         in_quotes(text));
  }
  bool boolean(bool) override { complain("true or false"); }
  bool null() override { complain("null"); }

 private:
  [[noreturn]] void complain(const char* what) const {
    if (!inside_) {
      fail(Error::Kind::value, "{}: is {}, not an object of tokens and their ids", name_, what);
    }
    fail(Error::Kind::value, "{}: token {}: {} is not an id", name_, in_quotes(token_), what);
  }

  const std::string& name_;
  const std::int64_t model_vocab_size_;
  bool inside_ = false;
  std::string token_;
};

// By id. The ids must be 0, 1, 2 … without gaps, each of one token.
StringList sort_by_id(const VocabReader& read, const std::string& name) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  const std::size_t count = read.ids.size();
  std::vector<std::uint32_t> place_of(count, kNone);
  for (std::uint32_t place = 0; place < count; ++place) {
    const auto id = static_cast<std::size_t>(read.ids[place]);
    if (id >= count) {
      fail(Error::Kind::value,
           "{}: token {}: id {}, but {} tokens have the ids 0 to {} without gaps", name,
           shown(read.tokens[place]), id, count, count - 1);
    }
    if (place_of[id] != kNone) {
      fail(Error::Kind::value, "{}: tokens {} and {} share the id {}", name,
           shown(read.tokens[place_of[id]]), shown(read.tokens[place]), id);
    }
    place_of[id] = place;
  }
  StringList sorted;
  for (const std::uint32_t place : place_of) sorted.push_back(read.tokens[place]);
  return sorted;
}

struct Vocabulary {
  StringList tokens;
  StringIndex index;
};

Vocabulary parse_vocabulary(std::string_view json, const std::string& name,
                            std::int64_t model_vocab_size) {
  VocabReader reader(name, model_vocab_size);
  read_json(json, name, kLimits, reader);
  Vocabulary vocabulary{sort_by_id(reader, name), StringIndex(reader.ids.size())};
  for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::uint32_t other = vocabulary.index.insert(vocabulary.tokens, id);
    if (other != StringIndex::kNone) {
      fail(Error::Kind::value, "{}: token {} appears twice, with the ids {} and {}", name,
           shown(vocabulary.tokens[id]), other, id);
    }
  }
  find_bytes(vocabulary.tokens, vocabulary.index, name);  // now, not when a text needs it
  return vocabulary;
}

// Reads merges.txt line by line. Harmless: a byte order mark, lines that end in \r\n, empty lines,
// a first line that is no #version.
class MergesReader {
 public:
  MergesReader(const Vocabulary& vocabulary, const std::string& name)
      : vocabulary_(vocabulary), name_(name) {}

  std::vector<Bpe::Merge> merges;
  std::vector<TokenId> results;

  void read(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    seen_.emplace(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      ++line_;
      const bool is_version = line_ == 1 && line.starts_with("#version");
      if (!line.empty() && !is_version) read_line(line);
    }
  }

 private:
  void read_line(std::string_view line) {
    const auto spaces = std::count(line.begin(), line.end(), ' ');
    const std::size_t middle = line.find(' ');
    if (spaces != 1 || middle == 0 || middle + 1 == line.size()) {
      complain(format_text("{} is not two tokens with one space between", in_quotes(line)));
    }
    const std::string left = bytes_of(std::string(line.substr(0, middle)));
    const std::string right = bytes_of(std::string(line.substr(middle + 1)));
    const Bpe::Merge merge{id_of(left, "the token"), id_of(right, "the token")};
    const TokenId result = id_of(left + right, "its result");
    const auto rank = static_cast<std::uint32_t>(merges.size());
    if (!seen_->insert(merge.first, merge.second, {rank, result})) {
      complain(format_text("the pair {} is already on an earlier line", in_quotes(line)));
    }
    merges.push_back(merge);
    results.push_back(result);
  }

  TokenId id_of(const std::string& bytes, const char* what) const {
    const std::uint32_t id = vocabulary_.index.find(vocabulary_.tokens, bytes);
    if (id == StringIndex::kNone) {
      complain(format_text("{} {} is not in the vocabulary", what, shown(bytes)));
    }
    return static_cast<TokenId>(id);
  }

  [[noreturn]] void complain(const std::string& what) const {
    fail(Error::Kind::value, "{}:{}: {}", name_, line_, what);
  }

  const Vocabulary& vocabulary_;
  const std::string& name_;
  std::int64_t line_ = 0;
  std::optional<PairTable> seen_;
};

std::string read_whole(const std::string& path) {
  const InputFile file(path);
  require(file.size() <= kMaxFileBytes, "{}: {} bytes are over the limit {}", path, file.size(),
          kMaxFileBytes);
  std::string content(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, content.data(), file.size());
  return content;
}

void write_whole(AtomicFile& file, const std::string& content) {
  file.write(content.data(), content.size());
  file.finish();
}

}  // namespace

std::shared_ptr<const BpeTables> parse_bpe(std::string_view vocab_json,
                                           const std::string& vocab_name,
                                           std::string_view merges_txt,
                                           const std::string& merges_name,
                                           std::int64_t model_vocab_size) {
  Vocabulary vocabulary = parse_vocabulary(vocab_json, vocab_name, model_vocab_size);
  MergesReader reader(vocabulary, merges_name);
  reader.read(merges_txt);
  return std::make_shared<BpeTables>(std::move(vocabulary.tokens), std::move(vocabulary.index),
                                     std::move(reader.merges), reader.results);
}

Bpe Bpe::parse(std::string_view vocab_json, std::string_view merges_txt,
               std::int64_t model_vocab_size) {
  return Bpe(parse_bpe(vocab_json, "vocab.json", merges_txt, "merges.txt", model_vocab_size));
}

Bpe Bpe::load(const std::string& vocab_path, const std::string& merges_path,
              std::int64_t model_vocab_size) {
  const std::string vocab_json = read_whole(vocab_path);
  return Bpe(
      parse_bpe(vocab_json, vocab_path, read_whole(merges_path), merges_path, model_vocab_size));
}

Bpe Bpe::load(const std::string& folder, std::int64_t model_vocab_size) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"vocab.json", "merges.txt"},
                                                            {"encoder.json", "vocab.bpe"}};
  for (const auto& [vocab, merges] : kNames) {
    const std::string vocab_path = format_text("{}/{}", folder, vocab);
    std::error_code ignored;
    if (!std::filesystem::exists(vocab_path, ignored)) continue;
    return load(vocab_path, format_text("{}/{}", folder, merges), model_vocab_size);
  }
  fail(Error::Kind::io,
       "{}: has no vocab.json with merges.txt, nor encoder.json with vocab.bpe: no vocabulary",
       folder);
}

std::string Bpe::vocab_json() const {
  std::vector<bool> special(tables_->tokens.size());
  for (const BpeTables::Special& token : tables_->special) {
    special[static_cast<std::size_t>(token.id)] = true;
  }
  std::string json = "{";
  for (std::size_t id = 0; id < tables_->tokens.size(); ++id) {
    const Json characters = characters_of(tables_->tokens[id], special[id]);
    json += format_text("{}{}:{}", id == 0 ? "" : ",", characters.dump(), id);
  }
  return json + "}\n";
}

std::string Bpe::merges_txt() const {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : tables_->merges) {
    text +=
        format_text("{} {}\n", to_byte_characters(token(left)), to_byte_characters(token(right)));
  }
  return text;
}

Bpe::Fingerprint Bpe::fingerprint() const {
  Checksum checksum;
  for (const std::string& content : {vocab_json(), merges_txt()}) {
    checksum.add(content.data(), content.size());
  }
  return checksum.value();
}

void Bpe::save(const std::string& folder, bool replace) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(Error::Kind::io, "{}: {}", folder, error.message());
  AtomicFile vocab(folder + "/vocab.json", replace);
  AtomicFile merges(folder + "/merges.txt", replace);
  write_whole(vocab, vocab_json());
  write_whole(merges, merges_txt());
}

}  // namespace cephalo
