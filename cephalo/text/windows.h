#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/core/turn.h"
#include "cephalo/text/token_file.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Part of a corpus, from one token up to another.
struct TokenRange {
  dim_t begin = 0;
  dim_t end = -1;  // -1: to the last token
};

// The tokens for training, and the last `fraction` of them, kept out of it for validation.
std::pair<TokenRange, TokenRange> split_tokens(dim_t tokens, double fraction);

// How the rows of an epoch are shuffled.
enum class ShuffleOrder {
  counter,  // computed for each row from seed, epoch and its number: no memory
  torch     // what DataLoader(shuffle=True) gives after torch.manual_seed(seed); 8 bytes a window
};

// How a corpus is cut into rows and batches.
struct WindowOptions {
  dim_t context_length = 256;
  dim_t stride = 0;  // from one window to the next; 0: context_length
  dim_t batch = 1;   // rows of a batch
  bool shuffle = false;
  bool drop_last = true;  // a last batch of fewer rows is left out
  std::uint64_t seed = 123;
  ShuffleOrder order = ShuffleOrder::counter;
  TokenRange range = {};
  // This share of the rows is made by repeating a segment of the row's own window, of a length
  // drawn from [repeat_least, repeat_most] (at most half a row): what induction heads learn from.
  double repeated_rows = 0.0;
  dim_t repeat_least = 20;
  dim_t repeat_most = 100;
  // Tokens that end a sentence. Where there are any, every other repeated row is another exercise:
  // its text continues, but now and then an earlier sentence, begun at most repeat_most tokens
  // before, is repeated word for word. From segments alone a model learns to copy rows that do
  // nothing else, and fails to notice a sentence that returns in the middle of a story.
  std::vector<TokenId> sentence_ends = {};
};

// Those of a vocabulary: tokens in which no letter or digit follows a '.', '!' or '?'.
std::vector<TokenId> sentence_ends(const Bpe& bpe);

// Where a run is in the data: all there is to save.
struct WindowPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // of the epoch
  bool operator==(const WindowPosition&) const = default;
};

// What a model reads, and what it should predict.
struct WindowBatch {
  Tensor inputs;   // int64 [batch, tokens]
  Tensor targets;  // the same, one token further on
};

// Windows of context_length + 1 tokens that begin at 0, stride, 2 · stride … of a corpus, as rows
// and batches for training. A row or batch is a function of its number: nothing but that number has
// to be kept to go on later. Any number of threads may ask.
class Windows {
 public:
  Windows(std::shared_ptr<const TokenSource> source, const WindowOptions& options);

  const WindowOptions& options() const { return options_; }
  dim_t count() const { return count_; }  // windows in the corpus
  dim_t rows_per_epoch() const;           // fewer where drop_last leaves some out
  dim_t batches_per_epoch() const;

  // Row `number`, counted over all epochs. ids: [context_length + 1]
  void row(std::int64_t number, std::span<std::int64_t> ids) const;

  WindowBatch batch(const WindowPosition& position) const;
  WindowPosition after(const WindowPosition& position) const;  // the next one

 private:
  dim_t window_of(std::int64_t epoch, dim_t row) const;
  dim_t torch_window(std::int64_t epoch, dim_t row) const;
  void return_to_sentences(std::int64_t number, std::span<std::int64_t> ids) const;

  std::shared_ptr<const TokenSource> source_;
  WindowOptions options_;
  dim_t count_ = 0;
  std::vector<bool> ends_sentence_;  // by token; empty where sentence_ends is
  // The order of the epoch that was asked for last.
  mutable Turn turn_{"Windows"};
  mutable std::int64_t torch_epoch_ = -1;
  mutable std::vector<std::int64_t> torch_order_;
};

}  // namespace cephalo
#pragma GCC visibility pop
