#include "cephalo/text/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "cephalo/core/fail.h"
#include "cephalo/text/blocks.h"
#include "cephalo/text/bpe_tables.h"
#include "cephalo/text/byte_alphabet.h"
#include "cephalo/text/pre_split.h"

namespace cephalo {

// The distinct pieces of the corpus and how often each was met.
struct BpeTrainer::Counts {
  StringList pieces;
  std::vector<std::int64_t> counts;
  StringIndex index{1 << 16};

  void add(std::string_view piece) {
    std::uint32_t place = index.find(pieces, piece);
    if (place == StringIndex::kNone) {
      place = static_cast<std::uint32_t>(pieces.size());
      pieces.push_back(piece);
      counts.push_back(0);
      if (pieces.size() > index.room()) {
        index = StringIndex(pieces, 2 * pieces.size());
      } else {
        index.insert(pieces, place);
      }
    }
    ++counts[place];
  }

  // Counts what is known to be whole and says how far that is.
  std::size_t add_pieces(std::string_view text, bool last) {
    const std::size_t safe =
        last ? text.size() : text.size() - std::min(text.size(), kPieceLookAhead);
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = at + piece_bytes(text.substr(at));
      if (end > safe) return at;
      for (; at < end; at += std::min(kMaxPieceBytes, end - at)) {
        add(text.substr(at, std::min(kMaxPieceBytes, end - at)));
      }
    }
    return at;
  }
};

namespace {

using Pair = Bpe::Merge;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key =
        static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
    return (key ^ key >> 29) * 0x9E3779B97F4A7C15U >> 7;
  }
};

// What is known of a pair of neighbours: how often it is met, and in which pieces (some of which it
// may have left since).
struct PairState {
  std::int64_t count = 0;
  std::vector<std::uint32_t> pieces;

  void note(std::uint32_t piece) {
    if (pieces.empty() || pieces.back() != piece) pieces.push_back(piece);
  }
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  // The most often met last, as a heap wants it; of equals the smaller ids.
  bool operator<(const Candidate& other) const {
    return std::tie(count, other.pair) < std::tie(other.count, pair);
  }
};

// The pieces as tokens, joined pair by pair. Counts of pairs are kept by the changes alone.
class Learner {
 public:
  Learner(const StringList& pieces, const std::vector<std::int64_t>& counts) : counts_(counts) {
    std::array<TokenId, 256> id_of{};
    for (std::size_t id = 0; id < 256; ++id) {
      const unsigned char byte = bytes_by_character()[id];
      id_of[byte] = static_cast<TokenId>(id);
      tokens.emplace_back(1, static_cast<char>(byte));
      known_.emplace(tokens.back(), static_cast<TokenId>(id));
    }
    for (std::uint32_t piece = 0; piece < pieces.size(); ++piece) {
      begins_.push_back(ids_.size());
      for (const char c : pieces[piece]) ids_.push_back(id_of[static_cast<unsigned char>(c)]);
      lengths_.push_back(static_cast<std::uint32_t>(pieces[piece].size()));
      for (std::size_t k = begins_.back(); k + 1 < ids_.size(); ++k) {
        PairState& state = pairs_[{ids_[k], ids_[k + 1]}];
        state.count += counts_[piece];
        state.note(piece);
      }
    }
    for (const auto& [pair, state] : pairs_) heap_.push({state.count, pair});
  }

  std::vector<std::string> tokens;
  std::vector<Pair> merges;

  void forbid(const std::string& token) { forbidden_.push_back(token); }

  // Joins the pair that is met most often; false when none is met min_count times.
  bool join_most_frequent(std::int64_t min_count) {
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const auto found = pairs_.find(best.pair);
      if (found->second.count != best.count) {  // it has become rarer since
        if (found->second.count > 0) heap_.push({found->second.count, best.pair});
        continue;
      }
      if (best.count < min_count) return false;
      const std::string made = bytes_of(best.pair.first) + bytes_of(best.pair.second);
      if (std::find(forbidden_.begin(), forbidden_.end(), made) != forbidden_.end()) continue;
      const auto pieces = std::move(found->second.pieces);
      pairs_.erase(found);
      join(best.pair, id_of(made), pieces);
      return true;
    }
    return false;
  }

 private:
  const std::string& bytes_of(TokenId id) const { return tokens[static_cast<std::size_t>(id)]; }

  // Two merges may make one token: "ab" + "c" and "a" + "bc".
  TokenId id_of(const std::string& made) {
    const auto [place, is_new] = known_.emplace(made, static_cast<TokenId>(tokens.size()));
    if (is_new) tokens.push_back(made);
    return place->second;
  }

  void join(const Pair& pair, TokenId made, const std::vector<std::uint32_t>& pieces) {
    merges.push_back(pair);
    grown_.clear();
    for (const std::uint32_t piece : pieces) join_in(piece, pair, made);
    // In a fixed order: the heap must not depend on a hash.
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair& new_pair : grown_) {
      const std::int64_t count = pairs_[new_pair].count;
      if (count > 0) heap_.push({count, new_pair});
    }
  }

  void join_in(std::uint32_t piece, const Pair& pair, TokenId made) {
    TokenId* ids = ids_.data() + begins_[piece];
    const std::uint32_t length = lengths_[piece];
    std::uint32_t kept = 0;
    for (std::uint32_t k = 0; k < length; ++k) {
      if (k + 1 == length || ids[k] != pair.first || ids[k + 1] != pair.second) {
        ids[kept++] = ids[k];
        continue;
      }
      if (kept > 0) replace({ids[kept - 1], pair.first}, {ids[kept - 1], made}, piece);
      if (k + 2 < length) replace({pair.second, ids[k + 2]}, {made, ids[k + 2]}, piece);
      ids[kept++] = made;
      ++k;
    }
    lengths_[piece] = kept;
  }

  void replace(const Pair& old_pair, const Pair& new_pair, std::uint32_t piece) {
    const auto found = pairs_.find(old_pair);
    if (found != pairs_.end()) found->second.count -= counts_[piece];
    PairState& state = pairs_[new_pair];
    state.count += counts_[piece];
    state.note(piece);
    grown_.push_back(new_pair);
  }

  const std::vector<std::int64_t>& counts_;  // of each piece
  std::vector<TokenId> ids_;                 // of all pieces, one after the other
  std::vector<std::size_t> begins_;
  std::vector<std::uint32_t> lengths_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> grown_;  // pairs of the newest token
  std::unordered_map<std::string, TokenId> known_;
  std::vector<std::string> forbidden_;
};

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainOptions options)
    : options_(std::move(options)), counts_(std::make_unique<Counts>()) {
  const auto least = 256 + static_cast<std::int64_t>(options_.special_tokens.size());
  require(options_.vocab_size >= least && options_.vocab_size <= INT32_MAX,
          "BpeTrainer: vocab_size ({}) must be in [{}, {}]: 256 bytes and {} special tokens",
          options_.vocab_size, least, INT32_MAX, options_.special_tokens.size());
  require(options_.min_count >= 1, "BpeTrainer: min_count ({}) must be at least 1",
          options_.min_count);
  for (const std::string& token : options_.special_tokens) {
    require(token.size() > 1, "BpeTrainer: the special token \"{}\" is too short", token);
  }
}

BpeTrainer::BpeTrainer(BpeTrainer&&) noexcept = default;
BpeTrainer& BpeTrainer::operator=(BpeTrainer&&) noexcept = default;
BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add_text(std::string_view text) {
  counts_->add_pieces(text, true);
}

void BpeTrainer::add_file(const std::string& path, const Progress& progress) {
  const InputFile file(path);
  std::int64_t done = 0;
  read_in_blocks(file, [&](std::string_view text, bool last) {
    const std::size_t used = counts_->add_pieces(text, last);
    done += static_cast<std::int64_t>(used);
    if (progress) progress(done, file.size());
    return used;
  });
}

Bpe BpeTrainer::train(const Progress& progress) const {
  Learner learner(counts_->pieces, counts_->counts);
  for (const std::string& token : options_.special_tokens) learner.forbid(token);
  const std::size_t wanted =
      static_cast<std::size_t>(options_.vocab_size) - options_.special_tokens.size();
  while (learner.tokens.size() < wanted && learner.join_most_frequent(options_.min_count)) {
    if (progress) progress(static_cast<std::int64_t>(learner.tokens.size()), options_.vocab_size);
  }
  learner.tokens.insert(learner.tokens.end(), options_.special_tokens.begin(),
                        options_.special_tokens.end());
  if (progress) progress(options_.vocab_size, options_.vocab_size);
  return {std::move(learner.tokens), std::move(learner.merges)};
}

}  // namespace cephalo
