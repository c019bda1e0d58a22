#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

class TorchGenerator;

// How the next token is chosen.
struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: always the largest
  dim_t top_k = 0;           // only the k largest; 0: all
  double top_p = 1.0;        // only the most probable that together reach p
  // Of ids among the last `repetition_window` of the text (0: in all of it), positive logits are
  // divided by this and negative ones multiplied, as transformers does; 1: as they are.
  double repetition_penalty = 1.0;
  dim_t repetition_window = 64;
};

// logits: [vocab_size], float32 or float64; text: the ids so far -> an id. The repetition penalty,
// temperature, then top_k, then top_p, then one draw; equal logits are taken in the order of their
// ids. A NaN among them is an error.
std::int64_t sample_token(const TensorView& logits, const SamplingOptions& options,
                          TorchGenerator& generator, std::span<const std::int64_t> text = {});

// How to continue a text, and when to end it.
struct GenerateOptions {
  dim_t new_tokens = 100;  // at most
  SamplingOptions sampling = {};
  std::uint64_t seed = 123;
  std::vector<std::int64_t> stop_tokens = {};  // the first of these to come ends the text
  bool cached = true;  // false: recompute the whole window for every token, for comparison
  int threads = 0;
  // Called for every new token; returning false ends the text.
  std::function<bool(std::int64_t id)> on_token = {};
};

// The new tokens, and how long they took.
struct Generated {
  std::vector<std::int64_t> ids;  // the new ones, a stop token included
  bool stopped = false;           // by a stop token or by on_token
  double prompt_seconds = 0.0;    // until the prompt had been read
  double seconds = 0.0;           // for the new tokens
  double tokens_per_second() const;
};

// How many of the last tokens of a text of that length a model sees: all of them, or half a
// context.
dim_t tokens_seen(const GptOptions& model, dim_t tokens);

// Continues a prompt of at least one id. The model sees a window of at most context_length tokens;
// where the text outgrows it, the window continues from the last half of the old one; of a prompt
// that is longer it sees tokens_seen(). Call model.prepare() first: otherwise every token lays the
// parameters out again.
Generated generate(const Gpt& model, const std::vector<std::int64_t>& prompt,
                   const GenerateOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
