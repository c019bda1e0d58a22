#include "cephalo/effects/lens.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/effects/next_token.h"
#include "cephalo/model/model_steps.h"

namespace cephalo {
namespace {

constexpr dim_t kMostRows = 256;
constexpr dim_t kLogitNumbers = 2 << 20;  // that are there at once, unless one row has more

std::vector<dim_t> checked_positions(const LensOptions& options, dim_t tokens) {
  std::vector<dim_t> positions = options.positions;
  if (positions.empty()) {
    positions.resize(static_cast<std::size_t>(tokens));
    std::iota(positions.begin(), positions.end(), dim_t{0});
  }
  for (const dim_t position : positions) {
    require(0 <= position && position < tokens, "lens: position {} is not in [0, {})", position,
            tokens);
  }
  return positions;
}

// Some positions of a text, and memory for what they say after each layer.
class LensRows {
 public:
  LensRows(const KeptPass& text, const LensOptions& options, std::span<const dim_t> positions)
      : text_(text), options_(options), positions_(positions) {
    const GptOptions& o = text.options();
    const auto rows = std::ssize(positions);
    x_ = Tensor::empty({rows, o.d_model}, o.dtype);
    y_ = Tensor::empty({rows, o.d_model}, o.dtype);
    moments_ = Tensor::empty({rows, 2}, o.dtype);
    logits_ = Tensor::empty({rows, o.vocab_size}, o.dtype);
  }

  // -> logits: [rows, vocab_size], of what the model says; this sets the scale that `frozen` takes.
  const Tensor& last() {
    gather(text_.resid_post());
    text_.steps()->last_norm({.x = x_, .y = y_, .moments = moments_});
    return unembed(y_);
  }

  // -> logits: [rows, vocab_size], if nothing came after what enters `layer`; only after last().
  const Tensor& before(dim_t layer) {
    gather(text_.layer(layer).resid_pre);
    if (options_.norm == LensNorm::none) return unembed(x_);
    if (options_.norm == LensNorm::frozen) {
      apply_frozen();
    } else {
      text_.steps()->last_norm({.x = x_, .y = y_});
    }
    return unembed(y_);
  }

 private:
  // residual: [tokens, d_model]
  void gather(const TensorView& residual) {
    for (std::size_t row = 0; row < positions_.size(); ++row) {
      x_.mutable_view()[static_cast<dim_t>(row)].copy_from(residual[positions_[row]]);
    }
  }

  // y = (x − mean x) / σ ∘ γ + β, σ of the last residual
  void apply_frozen() {
    const Tensor weight = Tensor::copy(text_.steps()->last_norm_weight(), DType::f64);
    const Tensor bias = Tensor::copy(text_.steps()->last_norm_bias(), DType::f64);
    Tensor wide = Tensor::copy(x_, DType::f64);
    const auto width = static_cast<std::size_t>(wide.dim(1));
    for (dim_t r = 0; r < wide.dim(0); ++r) {
      const std::span row(wide.mutable_data_as<double>() + r * wide.dim(1), width);
      const double mean = std::reduce(row.begin(), row.end()) / static_cast<double>(width);
      const double factor = moments_.at({r, 1});
      for (std::size_t c = 0; c < width; ++c) {
        row[c] = (row[c] - mean) * factor * weight.data_as<double>()[c] + bias.data_as<double>()[c];
      }
    }
    y_.mutable_view().copy_from(wide);
  }

  // normed: [rows, d_model]
  const Tensor& unembed(const TensorView& normed) {
    text_.steps()->logits(normed, logits_);
    return logits_;
  }

  const KeptPass& text_;
  const LensOptions& options_;
  std::span<const dim_t> positions_;
  Tensor x_, y_;    // [rows, d_model]
  Tensor moments_;  // [rows, 2]
  Tensor logits_;   // [rows, vocab_size]
};

LensCell cell_of(const NextToken& row, std::int64_t token, dim_t top) {
  return {row.top(top), row.probability(token), row.rank(token), row.entropy()};
}

}  // namespace

Lens logit_lens(const KeptPass& text, const LensOptions& options) {
  const GptOptions& o = text.options();
  require(!options.token || (0 <= *options.token && *options.token < o.vocab_size),
          "lens: token {} is not in [0, {})", options.token.value_or(0), o.vocab_size);
  require(options.top >= 0, "lens: top must be at least 0, not {}", options.top);
  const UseThreads limit(text.threads());
  Lens lens;
  lens.positions = checked_positions(options, text.tokens());
  lens.cells.resize(static_cast<std::size_t>(o.num_layers) + 1);
  const auto most =
      static_cast<std::size_t>(std::clamp<dim_t>(kLogitNumbers / o.vocab_size, 1, kMostRows));
  for (std::size_t begin = 0; begin < lens.positions.size(); begin += most) {
    const auto count = std::min(most, lens.positions.size() - begin);
    LensRows rows(text, options, std::span(lens.positions).subspan(begin, count));
    const Tensor& last = rows.last();
    for (dim_t r = 0; r < last.dim(0); ++r) {
      const NextToken next(last[r]);
      lens.tokens.push_back(options.token.value_or(next.likeliest()));
      lens.cells.back().push_back(cell_of(next, lens.tokens.back(), options.top));
    }
    for (dim_t layer = 0; layer < o.num_layers; ++layer) {
      const Tensor& logits = rows.before(layer);
      for (dim_t r = 0; r < logits.dim(0); ++r) {
        const std::int64_t token = lens.tokens[begin + static_cast<std::size_t>(r)];
        lens.cells[static_cast<std::size_t>(layer)].push_back(
            cell_of(NextToken(logits[r]), token, options.top));
      }
    }
  }
  return lens;
}

}  // namespace cephalo
