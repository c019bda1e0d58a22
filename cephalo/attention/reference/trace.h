#pragma once

#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// One tensor on the way from x to the output. Steps with several tensors (q, k, v) have several
// entries under one number and name.
struct Step {
  std::string number;   // "4a"
  std::string name;     // "SCORES"
  std::string key;      // "scores": the same in Python and JSON
  std::string formula;  // "q @ k.transpose(2, 3)"
  Shape shape;
  Strides strides;  // as the layer saw it; `value` is a dense copy
  bool moved;       // false: the same memory as the step before, looked at in another way
  std::string note;
  Tensor value;
  std::string topic = {};  // what explain(step) goes by where that is not the name: "NO MASK"
};

// x; q k v; q_split k_split v_split; (q_rotated k_rotated;) q_heads k_heads v_heads; scores;
// scores_masked; scores_scaled weights weights_dropped; context_heads; context; output.
// One-head rungs have no split, transpose and concat; rung 1 has no projections either. Rung 4, a
// list of heads, projects to q_heads k_heads v_heads at once: it has nothing to split.
struct Trace {
  std::string title;  // "MultiHeadAttention: 12 heads x 64 = 768"
  bool mask_first;    // true: mask, then scale, as the book shows it; false: attend's order
  std::vector<Step> steps;

  const Step& at(const std::string& key) const;  // an error that lists the keys
  bool has(const std::string& key) const;
  auto begin() const { return steps.begin(); }
  auto end() const { return steps.end(); }
};

// What happens in a step, why, and what it does to the numbers.
struct Explanation {
  const char* what;
  const char* why;
  const char* effect;
};
Explanation explain(const std::string& step_name);  // by Step::name
// The same for a step as it happened here: one without a mask does not say that it hides something.
Explanation explain(const Step& step);

}  // namespace cephalo
#pragma GCC visibility pop
