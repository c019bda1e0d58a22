#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What is read off a run. What is not asked for is not computed.
struct Measures {
  dim_t position = -1;                    // whose next token it is about; −1: the last
  std::vector<std::int64_t> logits = {};  // of these tokens, at `position`
  std::optional<std::int64_t> rank = {};  // of this token at `position`, 0 the likeliest
  bool divergence = false;                // KL(unchanged ‖ changed) at `position`, in nats
  bool losses = false;                    // of every token after the first, in nats
  dim_t top = 0;                          // how many of the likeliest next tokens at `position`
};

// A token that may come next.
struct TokenProbability {
  std::int64_t id;
  double probability;
};

// What Measures asked for.
struct Measured {
  std::vector<double> logits;                                    // in the order of Measures::logits
  dim_t rank = -1;                                               // −1: not asked for
  double divergence = std::numeric_limits<double>::quiet_NaN();  // not asked for
  std::vector<double> losses;  // [tokens − 1]: of token i + 1, as row i foretold it
  std::vector<TokenProbability> top;
};

}  // namespace cephalo
#pragma GCC visibility pop
