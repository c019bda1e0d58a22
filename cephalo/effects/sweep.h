#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cephalo/effects/change.h"
#include "cephalo/effects/kept_pass.h"
#include "cephalo/effects/measure.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What experiments take from elsewhere, how much memory they may use, and who hears of them.
struct SweepOptions {
  const KeptPass* patch_from = nullptr;  // what `patch` takes; as many tokens
  const Tensor* reference = nullptr;     // what `reference_mean` takes: see reference_mean()
  std::size_t memory = 256u << 20;       // bytes that experiments may hold at a time
  // Called as experiments end, with how many of them are done from the first on; false stops, and
  // these are returned.
  std::function<bool(std::size_t done, std::size_t all)> progress = {};
  int threads = 0;
};

// Each experiment by itself, on the same text: what the measures give under its changes, in the
// order of `experiments` (fewer when progress stopped it). Shared are the layers below a change
// and, the model being causal, the positions before it; experiments that begin at one place go as
// one batch, as many as `memory` takes. An experiment's bits are those it has alone, for any number
// of threads.
std::vector<Measured> measure_changes(const KeptPass& text, std::span<const Changes> experiments,
                                      const Measures& measures, const SweepOptions& options = {});
// One experiment; no changes: the text as it is.
Measured measure(const KeptPass& text, const Changes& changes, const Measures& measures,
                 const SweepOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
