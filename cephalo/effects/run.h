#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cephalo/effects/site.h"
#include "cephalo/model/gpt.h"

#pragma GCC visibility push(default)
namespace cephalo {

class ModelSteps;

// What changes an activation in place, on its way. `value` has the axes of SiteAxes, or those of
// TransformerLens under its name, any strides; whatever comes after works with what is left there.
struct Replacement {
  std::string name;
  std::function<void(const MutableTensorView& value)> change;
};

// What a run keeps and what it replaces.
struct ModelRunOptions {
  std::vector<std::string> keep = {};
  std::vector<Replacement> replace = {};  // in the order given; before anything is kept
  int threads = 0;
};

// An activation as it was when it passed.
struct KeptActivation {
  std::string name;  // as asked for
  LayerSite site;
  Tensor value;  // dense in the order of SiteAxes

  // As asked for: in TransformerLens's order under its name.
  TensorView view() const;
};

// What a run gives.
struct RunResult {
  Tensor logits;                     // [batch, tokens, vocab_size]
  std::vector<KeptActivation> kept;  // in the order of `keep`, each name once

  TensorView at(const std::string& name) const;  // an error: not kept
};

// A pass of ids: [batch, tokens] or [tokens] (a batch of one), int32 or int64, that keeps and
// replaces by name. Nothing is kept that was not asked for, and memory is linear in tokens unless
// scores or weights are: then those of one layer are there at a time. Without replacements the bits
// of the model's own call, float32 or float64.
//
// Replaced scores go through softmax and replaced weights are multiplied by the values as they are,
// also where the mask hid a key. A replaced scale of a norm divides what the norm has centred.
// Replaced head_out is added up, and the bias with it.
RunResult run_model(const Gpt& model, const TensorView& ids, const ModelRunOptions& options = {});
// Of a model that is laid out already: many runs, one layout.
RunResult run_model(const ModelSteps& steps, const TensorView& ids,
                    const ModelRunOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
