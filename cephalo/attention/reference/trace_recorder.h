#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cephalo/attention/layer/parameters.h"
#include "cephalo/attention/reference/reference.h"
#include "cephalo/attention/reference/trace.h"

namespace cephalo {

// Turns the steps that a computation shows into a Trace: names them, writes their formulas, copies
// their values.
class TraceRecorder : public StepSink {
 public:
  struct Setup {
    std::string title;
    std::optional<Form> form;  // none: no projections (rung 1)
    bool qkv_bias = false;
    bool cross = false;          // keys and values come from another input
    bool has_batch = true;       // false: x came without a batch axis, so no step shows one
    bool one_head = false;       // no head axis, no split, transpose and concat
    bool list_of_heads = false;  // each head has its own matrices: no split and transpose
    dim_t head_dim = 0;
    dim_t context_length = 0;
    std::string mask;  // as it prints itself
    bool merely_causal = false;
    double dropout = 0.0;
    bool training = false;
  };

  explicit TraceRecorder(Setup setup) : setup_(std::move(setup)) {}

  void step(const char* key, const TensorView& value) override;
  Trace take();

 private:
  bool leaves_out(std::string_view key) const;
  bool projects_each_head(std::string_view key) const;
  TensorView without_extra_axes(const TensorView& value) const;
  std::string formula(const std::string& key, const TensorView& value) const;
  std::string project_formula(const std::string& key) const;
  std::string note(const Step& step) const;
  std::string mask_note(const Step& step) const;
  std::string topic(const Step& step) const;

  Setup setup_;
  Trace trace_{};
  std::map<std::string, const void*> memory_;  // where each step's values were
};

}  // namespace cephalo
