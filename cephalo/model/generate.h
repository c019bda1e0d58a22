#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/model/gpt.h"

namespace cephalo {

// How the next token is chosen.
struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: always the largest
  dim_t top_k = 0;           // only the k largest; 0: all
  double top_p = 1.0;        // only the most probable that together reach p
};

// logits: [vocab_size], float32 or float64 -> an id. Temperature, then top_k, then top_p, then one
// draw; equal logits are taken in the order of their ids. A NaN among them is an error.
std::int64_t sample_token(const TensorView& logits, const SamplingOptions& options,
                          TorchGenerator& generator);

struct GenerateOptions {
  dim_t new_tokens = 100;  // at most
  SamplingOptions sampling = {};
  std::uint64_t seed = 123;
  std::vector<std::int64_t> stop_tokens = {};  // the first of these to come ends the text
  bool cached = true;  // false: every token anew through the whole window, to compare with
  int threads = 0;
  // Told of every new token as it comes; false ends the text.
  std::function<bool(std::int64_t id)> on_token = {};
};

struct Generated {
  std::vector<std::int64_t> ids;  // the new ones, a stop token included
  bool stopped = false;           // by a stop token or by on_token
  double prompt_seconds = 0.0;    // until the prompt had been read
  double seconds = 0.0;           // for the new tokens
  double tokens_per_second() const;
};

// Continues a prompt of at least one id. The model sees a window of at most context_length tokens;
// where the text outgrows it, the window goes on from the last half of the old one. Call
// model.prepare() first: otherwise every token lays the parameters out anew.
Generated generate(const Gpt& model, const std::vector<std::int64_t>& prompt,
                   const GenerateOptions& options = {});

}  // namespace cephalo
