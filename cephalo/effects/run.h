#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/effects/site.h"
#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What changes an activation in place, on its way. `value` has the axes of SiteAxes, or those of
// TransformerLens under its name; whatever comes after works with what is left there.
struct Replacement {
  std::string name;
  std::function<void(const MutableTensorView& value)> change;
};

struct RunOptions {
  std::vector<std::string> keep = {};
  std::vector<Replacement> replace = {};  // in the order given; before anything is kept
  int threads = 0;
};

struct RunResult {
  Tensor logits;                                     // [batch, tokens, vocab_size]
  std::vector<std::pair<std::string, Tensor>> kept;  // in the order of `keep`, dense in our axes

  // As asked for: in TransformerLens's axis order under its name, a view. An error: not kept.
  TensorView at(const std::string& name) const;
};

// A pass of ids: [batch, tokens] or [tokens], int32 or int64, that keeps and replaces by name.
// Nothing is kept that was not asked for, and memory is linear in tokens unless scores or weights
// are. Without replacements the bits of the model's own call.
RunResult run_model(const Gpt& model, const TensorView& ids, const RunOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
