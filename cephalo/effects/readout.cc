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
    read(normed, {{.at = 0, .tokens = end - first, .first = first}}, std::span(&measured, 1));
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

void Readout::read(const TensorView& normed, const RunLayout& runs, std::span<Measured> to) {
  std::vector<Measured*> reached;
  Tensor chosen = Tensor::empty({std::ssize(runs), normed.dim(1)}, normed.dtype());
  for (std::size_t r = 0; wants_position() && r < runs.size(); ++r) {
    const dim_t at = position_ - runs[r].first;
    if (at < 0 || at >= runs[r].tokens) {
      to[r] = unchanged();
    } else {
      ops::copy(normed[runs[r].at + at], chosen.mutable_view()[std::ssize(reached)]);
      reached.push_back(&to[r]);
    }
  }
  if (!reached.empty()) read_position(chosen.slice(0, 0, std::ssize(reached)), reached);
  if (measures_.losses) read_losses(normed, runs, to);
}

// normed: [runs, d_model]
void Readout::read_position(const TensorView& normed, const std::vector<Measured*>& to) {
  if (chosen_) {
    Tensor logits = Tensor::empty({normed.dim(0), chosen_->width()}, normed.dtype());
    ops::linear(*chosen_, normed, logits);
    for (std::size_t r = 0; r < to.size(); ++r) {
      to[r]->logits = numbers_of(logits[static_cast<dim_t>(r)]);
    }
  }
  if (!measures_.rank && !measures_.divergence && measures_.top == 0) return;
  for (dim_t begin = 0; begin < normed.dim(0); begin += kLogitRows) {
    const dim_t end = std::min(begin + kLogitRows, normed.dim(0));
    Tensor logits = Tensor::empty({end - begin, text_.options().vocab_size}, normed.dtype());
    steps_.logits(normed.slice(0, begin, end), logits);
    for (dim_t r = begin; r < end; ++r) {
      read_logits(logits[r - begin], *to[static_cast<std::size_t>(r)]);
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
void Readout::read_losses(const TensorView& normed, const RunLayout& runs, std::span<Measured> to) {
  const std::vector<std::int64_t>& ids = text_.ids();
  std::vector<std::int64_t> targets;
  for (const RunRows& run : runs) {
    for (dim_t next = run.first + 1; next <= run.first + run.tokens; ++next) {
      const bool foretells = next < std::ssize(ids);
      targets.push_back(foretells ? ids[static_cast<std::size_t>(next)] : kNoTarget);
    }
  }
  const dim_t rows = rows_of(runs);
  Tensor losses = Tensor::empty({rows}, DType::f64);
  if (logits_.numel() == 0) {
    logits_ = Tensor::empty({kLogitRows, text_.options().vocab_size}, normed.dtype());
  }
  for (dim_t begin = 0; begin < rows; begin += kLogitRows) {
    const dim_t end = std::min(begin + kLogitRows, rows);
    const MutableTensorView logits = logits_.mutable_view().slice(0, 0, end - begin);
    steps_.logits(normed.slice(0, begin, end), logits);
    ops::cross_entropy({.logits = logits,
                        .targets = TensorView(targets.data() + begin, {end - begin}),
                        .ignore_index = kNoTarget,
                        .factor = 1.0,
                        .losses = losses.mutable_view().slice(0, begin, end),
                        .dlogits = {}});
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunRows& run = runs[r];
    const dim_t last = std::min(run.first + run.tokens, std::ssize(ids) - 1);
    const bool is_whole = run.first == 0 && last == std::ssize(ids) - 1;
    if (is_whole) {
      to[r].losses.resize(ids.size() - 1);
    } else {
      to[r].losses = unchanged().losses;
    }
    std::copy_n(losses.data_as<double>() + run.at, std::max<dim_t>(last - run.first, 0),
                to[r].losses.begin() + run.first);
  }
}

}  // namespace cephalo
