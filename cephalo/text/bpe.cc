#include "cephalo/text/bpe.h"

#include <algorithm>

#include "cephalo/core/fail.h"
#include "cephalo/text/blocks.h"
#include "cephalo/text/bpe_tables.h"
#include "cephalo/text/pre_split.h"

namespace cephalo {
namespace {

// A token's bytes in a message, whatever they are.
std::string escaped(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 40)) {
    const bool plain = c > 0x1F && c < 0x7F;
    text += plain ? std::string(1, c) : format_text("\\x{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

// One pass over a text: special tokens, pieces, ids.
class Encoder {
 public:
  Encoder(const BpeTables& tables, std::span<const std::string> allowed)
      : tables_(tables), scratch_(tables.borrow()) {
    for (const std::string& text : allowed) {
      const auto found = std::find_if(tables.special.begin(), tables.special.end(),
                                      [&](const auto& special) { return special.text == text; });
      require(found != tables.special.end(),
              "encode: \"{}\" is allowed but is not a special token of the vocabulary",
              escaped(text));
      allowed_.push_back(&*found);
      margin_ = std::max(margin_, kPieceLookAhead + text.size());
    }
    std::stable_sort(allowed_.begin(), allowed_.end(),
                     [](const auto* a, const auto* b) { return a->text.size() > b->text.size(); });
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() { tables_.give_back(std::move(scratch_)); }

  // Appends the ids of text from its beginning and says how far they reach: where more text will
  // follow, what that text could change is left.
  std::size_t encode(std::string_view text, bool last, std::vector<TokenId>& ids) {
    const std::size_t safe = last ? text.size() : text.size() - std::min(margin_, text.size());
    hits_.assign(allowed_.size(), 0);
    for (std::size_t at = 0; at < text.size();) {
      const Hit hit = next_special(text, at);
      while (at < hit.begin) {
        const std::size_t bytes = piece_bytes(text.substr(at, hit.begin - at));
        if (at + bytes > safe) return at;
        tables_.merger.encode(text.substr(at, bytes), *scratch_, ids);
        at += bytes;
      }
      if (hit.special == nullptr) return at;
      if (hit.begin > safe) return at;
      ids.push_back(hit.special->id);
      at += hit.special->text.size();
      hits_.assign(allowed_.size(), at);
    }
    return text.size();
  }

 private:
  struct Hit {
    std::size_t begin;  // the end of the text where there is none
    const BpeTables::Special* special;
  };

  // The leftmost allowed special token from `at` on, of those the longest.
  Hit next_special(std::string_view text, std::size_t at) {
    Hit best{text.size(), nullptr};
    for (std::size_t k = 0; k < allowed_.size(); ++k) {
      if (hits_[k] <= at) hits_[k] = std::min(text.find(allowed_[k]->text, at), text.size());
      if (hits_[k] < best.begin) best = {hits_[k], allowed_[k]};
    }
    return best;
  }

  const BpeTables& tables_;
  std::unique_ptr<BpeScratch> scratch_;
  std::vector<const BpeTables::Special*> allowed_;  // longest first
  std::vector<std::size_t> hits_;                   // where each was found last
  std::size_t margin_ = kPieceLookAhead;
};

}  // namespace

Bpe::Bpe(std::vector<std::string> tokens, std::vector<Merge> merges) {
  StringList list;
  StringIndex index(tokens.size());
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    list.push_back(tokens[id]);
    if (index.insert(list, id) != StringIndex::kNone) {
      fail(Error::Kind::value, "Bpe: token \"{}\" appears twice", escaped(tokens[id]));
    }
  }
  std::vector<TokenId> results;
  for (std::size_t k = 0; k < merges.size(); ++k) {
    for (const TokenId id : {merges[k].first, merges[k].second}) {
      require(id >= 0 && static_cast<std::size_t>(id) < tokens.size(),
              "Bpe: merge {} names the token {}, the vocabulary has {}", k, id, tokens.size());
    }
    const std::string made = tokens[static_cast<std::size_t>(merges[k].first)] +
                             tokens[static_cast<std::size_t>(merges[k].second)];
    const std::uint32_t place = index.find(list, made);
    if (place == StringIndex::kNone) {
      fail(Error::Kind::value, "Bpe: merge {} makes \"{}\", which is not a token", k,
           escaped(made));
    }
    results.push_back(static_cast<TokenId>(place));
  }
  tables_ =
      std::make_shared<BpeTables>(std::move(list), std::move(index), std::move(merges), results);
}

std::int64_t Bpe::vocab_size() const {
  return static_cast<std::int64_t>(tables_->tokens.size());
}

std::span<const Bpe::Merge> Bpe::merges() const {
  return tables_->merges;
}

std::string_view Bpe::token(TokenId id) const {
  require(id >= 0 && id < vocab_size(), "token: id {} is outside the vocabulary of {}", id,
          vocab_size());
  return tables_->tokens[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Bpe::find(std::string_view bytes) const {
  const std::uint32_t id = tables_->index.find(tables_->tokens, bytes);
  if (id == StringIndex::kNone) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::vector<std::string> Bpe::special_tokens() const {
  auto special = tables_->special;
  std::sort(special.begin(), special.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  std::vector<std::string> texts;
  for (auto& token : special) texts.push_back(std::move(token.text));
  return texts;
}

std::vector<TokenId> Bpe::encode(std::string_view text,
                                 std::span<const std::string> allowed) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 1);
  Encoder(*tables_, allowed).encode(text, true, ids);
  return ids;
}

void Bpe::encode_file(const InputFile& file, std::span<const std::string> allowed,
                      const TakeIds& take) const {
  Encoder encoder(*tables_, allowed);
  std::vector<TokenId> ids;
  std::int64_t done = 0;
  read_in_blocks(file, [&](std::string_view text, bool last) {
    ids.clear();
    const std::size_t used = encoder.encode(text, last, ids);
    done += static_cast<std::int64_t>(used);
    take(ids, done);
    return used;
  });
}

std::string Bpe::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (std::size_t k = 0; k < ids.size(); ++k) {
    require(ids[k] >= 0 && ids[k] < vocab_size(),
            "decode: id {} at position {} is outside the vocabulary of {}", ids[k], k,
            vocab_size());
    bytes += tables_->tokens[static_cast<std::size_t>(ids[k])];
  }
  return bytes;
}

}  // namespace cephalo
