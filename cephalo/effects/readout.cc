#include "cephalo/effects/readout.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"

namespace cephalo {
namespace {

constexpr dim_t kLogitRows = 384;  // whose logits are there at a time
constexpr std::int64_t kNoTarget = -1;

std::vector<double> numbers_of(const TensorView& row) {
  const Tensor wide = Tensor::copy(row, DType::f64);
  const auto* first = wide.data_as<double>();
  return {first, first + wide.numel()};
}

// The rows of the head that belong to some tokens: [tokens, d_model].
Tensor head_rows(const TensorView& head, const std::vector<std::int64_t>& tokens) {
  Tensor rows = Tensor::empty({std::ssize(tokens), head.dim(1)}, head.dtype());
  for (dim_t n = 0; n < rows.dim(0); ++n) {
    ops::copy(head[tokens[static_cast<std::size_t>(n)]], rows.mutable_view()[n]);
  }
  return rows;
}

}  // namespace

Readout::Readout(const KeptPass& text, const Measures& measures)
    : text_(text), steps_(*text.steps()), measures_(measures), position_(measures.position) {
  const GptOptions& o = text.options();
  require(-1 <= position_ && position_ < text.tokens(),
          "measures: position {} is not among tokens 0 to {}; -1 means the last", position_,
          text.tokens() - 1);
  if (position_ < 0) position_ = text.tokens() - 1;
  std::vector<std::int64_t> tokens = measures.logits;
  if (measures.rank) tokens.push_back(*measures.rank);
  for (const std::int64_t token : tokens) {
    require(0 <= token && token < o.vocab_size,
            "measures: token {} is outside the vocabulary of {}", token, o.vocab_size);
  }
  require(measures.top >= 0, "measures: top ({}) must be >= 0", measures.top);
  if (!measures.logits.empty()) {
    const Tensor rows = head_rows(steps_.head_weight(), measures.logits);
    chosen_.emplace(rows, TensorView(), o.dtype);
  }
  if (measures.divergence) {
    const Tensor normed = normed_text(position_, position_ + 1);
    Tensor logits = Tensor::empty({1, o.vocab_size}, o.dtype);
    steps_.logits(normed, logits);
    next_unchanged_.emplace(logits[0]);
  }
}

bool Readout::wants_position() const {
  return !measures_.logits.empty() || measures_.rank || measures_.divergence || measures_.top > 0;
}

const Measured& Readout::unchanged() {
  if (!unchanged_) {
    Measured measured;
    const dim_t first = measures_.losses ? 0 : position_;
    const dim_t end = measures_.losses ? text_.tokens() : position_ + 1;
    const Tensor normed = normed_text(first, end);
    read(normed, {1, end - first, first}, std::span(&measured, 1));
    unchanged_ = std::move(measured);
  }
  return *unchanged_;
}

// Rows [begin, end) of the text as it is, after the last norm.
Tensor Readout::normed_text(dim_t begin, dim_t end) const {
  Tensor x = Tensor::copy(text_.resid_post().slice(0, begin, end));
  Tensor normed = Tensor::empty(x.shape(), x.dtype());
  steps_.last_norm({x, {}, normed});
  return normed;
}

void Readout::read(const TensorView& normed, const StepRows& rows, std::span<Measured> to) {
  const dim_t at = position_ - rows.first;
  if (wants_position() && (at < 0 || at >= rows.tokens)) {
    std::fill(to.begin(), to.end(), unchanged());
  } else if (wants_position()) {
    Tensor chosen = Tensor::empty({rows.batch, normed.dim(1)}, normed.dtype());
    for (dim_t b = 0; b < rows.batch; ++b) {
      ops::copy(normed[b * rows.tokens + at], chosen.mutable_view()[b]);
    }
    read_position(chosen, to);
  }
  if (measures_.losses) read_losses(normed, rows, to);
}

// normed: [batch, d_model]
void Readout::read_position(const TensorView& normed, std::span<Measured> to) {
  if (chosen_) {
    Tensor logits = Tensor::empty({normed.dim(0), chosen_->width()}, normed.dtype());
    ops::linear(*chosen_, normed, logits);
    for (std::size_t b = 0; b < to.size(); ++b) {
      to[b].logits = numbers_of(logits[static_cast<dim_t>(b)]);
    }
  }
  if (!measures_.rank && !measures_.divergence && measures_.top == 0) return;
  for (dim_t begin = 0; begin < normed.dim(0); begin += kLogitRows) {
    const dim_t end = std::min(begin + kLogitRows, normed.dim(0));
    Tensor logits = Tensor::empty({end - begin, text_.options().vocab_size}, normed.dtype());
    steps_.logits(normed.slice(0, begin, end), logits);
    for (dim_t b = begin; b < end; ++b) {
      read_logits(logits[b - begin], to[static_cast<std::size_t>(b)]);
    }
  }
}

// logits: [vocab_size]
void Readout::read_logits(const TensorView& logits, Measured& to) const {
  const NextToken next(logits);
  if (measures_.rank) to.rank = next.rank(*measures_.rank);
  if (measures_.divergence) to.divergence = next_unchanged_->divergence_to(next);
  to.top = next.top(measures_.top);
}

// Rows that are not there foretell what they foretold.
void Readout::read_losses(const TensorView& normed, const StepRows& rows, std::span<Measured> to) {
  const std::vector<std::int64_t>& ids = text_.ids();
  std::vector<std::int64_t> targets(static_cast<std::size_t>(rows.rows()), kNoTarget);
  for (dim_t n = 0; n < rows.rows(); ++n) {
    const auto next = static_cast<std::size_t>(rows.first + n % rows.tokens + 1);
    if (next < ids.size()) targets[static_cast<std::size_t>(n)] = ids[next];
  }
  Tensor losses = Tensor::empty({rows.rows()}, DType::f64);
  if (logits_.numel() == 0) {
    logits_ = Tensor::empty({kLogitRows, text_.options().vocab_size}, normed.dtype());
  }
  for (dim_t begin = 0; begin < rows.rows(); begin += kLogitRows) {
    const dim_t end = std::min(begin + kLogitRows, rows.rows());
    const MutableTensorView logits = logits_.mutable_view().slice(0, 0, end - begin);
    steps_.logits(normed.slice(0, begin, end), logits);
    ops::cross_entropy({.logits = logits,
                        .targets = TensorView(targets.data() + begin, {end - begin}),
                        .ignore_index = kNoTarget,
                        .factor = 1.0,
                        .losses = losses.mutable_view().slice(0, begin, end),
                        .dlogits = {}});
  }
  const dim_t last = std::min(rows.first + rows.tokens, std::ssize(ids) - 1);
  const bool is_whole = rows.first == 0 && last == std::ssize(ids) - 1;
  for (dim_t b = 0; b < rows.batch; ++b) {
    std::vector<double>& all = to[static_cast<std::size_t>(b)].losses;
    if (is_whole) {
      all.resize(ids.size() - 1);
    } else {
      all = unchanged().losses;
    }
    std::copy_n(losses.data_as<double>() + b * rows.tokens, std::max<dim_t>(last - rows.first, 0),
                all.begin() + rows.first);
  }
}

}  // namespace cephalo
