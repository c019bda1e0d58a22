#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cephalo/effects/kept_pass.h"
#include "cephalo/effects/measure.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How a residual stream that is not the last one becomes logits.
enum class LensNorm {
  fresh,   // the last norm, of this residual
  frozen,  // the last norm with the scale that the last residual has: rows are then sums of what
           // attribute_logit gives each part up to there
  none     // the residual as it is
};

// Which rows of the lens, and how each is made.
struct LensOptions {
  LensNorm norm = LensNorm::fresh;
  dim_t top = 5;
  std::vector<dim_t> positions = {};       // empty: all
  std::optional<std::int64_t> token = {};  // whose probability and rank are wanted too
};

// What the model would say after each layer: row 0 is what comes into layer 0, the last row what it
// says, whichever norm was asked for.
struct LensCell {
  std::vector<TokenProbability> top;
  double probability = 0.0;  // of `token`, or of the model's own prediction at that position
  dim_t rank = 0;            // 0 the likeliest
  double entropy = 0.0;      // in nats
};
struct Lens {
  std::vector<dim_t> positions;
  std::vector<std::int64_t> tokens;          // whose probability it is, by position
  std::vector<std::vector<LensCell>> cells;  // [num_layers + 1][position]
};
// Logits are there for some rows at a time, never for a whole long text.
Lens logit_lens(const KeptPass& text, const LensOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
