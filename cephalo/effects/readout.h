#pragma once

// Inside the library only.
#include <optional>
#include <span>
#include <vector>

#include "cephalo/effects/kept_pass.h"
#include "cephalo/effects/measure.h"
#include "cephalo/effects/next_token.h"
#include "cephalo/effects/run_rows.h"
#include "cephalo/model/model_steps.h"

namespace cephalo {

// What measures ask for, read off rows after the last norm.
class Readout {
 public:
  // An error: no such token or position.
  Readout(const KeptPass& text, const Measures& measures);

  dim_t position() const { return position_; }
  const Measured& unchanged();  // of the text as it is

  // normed: [rows, d_model]; rows that a run does not have are as in the text
  void read(const TensorView& normed, const RunLayout& runs, std::span<Measured> to);

 private:
  bool wants_position() const;
  Tensor normed_text(dim_t begin, dim_t end) const;
  void read_position(const TensorView& normed, const std::vector<Measured*>& to);
  void read_logits(const TensorView& logits, Measured& to) const;
  void read_losses(const TensorView& normed, const RunLayout& runs, std::span<Measured> to);

  const KeptPass& text_;
  const ModelSteps& steps_;
  Measures measures_;
  dim_t position_;
  std::optional<PackedLinear> chosen_;  // rows of the head, of the tokens asked for
  Tensor logits_;                       // a block of rows at a time
  std::optional<NextToken> next_unchanged_;
  std::optional<Measured> unchanged_;
};

}  // namespace cephalo
