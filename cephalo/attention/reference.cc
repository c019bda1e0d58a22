#include "cephalo/attention/reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

struct Row {
  dim_t b, h, i;
};

// The textbook, one method a step, on one tensor that is scores first and weights later.
// T is the type that steps are stored in: float, or double for float64 inputs.
template <typename T>
class ReferenceAttention {
 public:
  ReferenceAttention(const AttendProblem& problem, StepSink* sink)
      : p_(problem),
        sink_(sink),
        num_heads_(problem.q.dim(1)),
        q_tokens_(problem.q.dim(2)),
        kv_tokens_(problem.k.dim(2)),
        scores_(allocate_scores()) {}

  AttendResult run() {
    multiply_queries_and_keys();
    show("scores");
    const ScoresTap tap = p_.options.return_scores;
    // A mask that merely hides commutes with a positive scale; then the order is the book's.
    const bool book_order = !p_.mask.adds() && !p_.options.softcap && p_.scale > 0.0 &&
                            (tap == ScoresTap::none || tap == ScoresTap::masked);
    if (book_order) {
      hide();
      show("scores_masked");
      scale();
      show("scores_scaled");
    } else {
      scale();
      show("scores_scaled");
      keep_scores_at(ScoresTap::scaled);
      softcap();
      keep_scores_at(ScoresTap::softcapped);
      add_bias();
      hide();
      show("scores_masked");
    }
    keep_scores_at(ScoresTap::masked);
    softmax();
    show("weights");
    if (p_.options.dropout > 0.0) {
      if (p_.options.return_weights) result_.weights = Tensor::copy(scores_);
      drop();
    }
    show("weights_dropped");
    multiply_weights_and_values();
    if (sink_ != nullptr) sink_->step("context_heads", result_.context);
    if (p_.options.return_weights && p_.options.dropout == 0.0)
      result_.weights = std::move(scores_);
    return std::move(result_);
  }

 private:
  Tensor allocate_scores() const {
    const Shape shape{p_.q.dim(0), num_heads_, q_tokens_, kv_tokens_};
    try {
      return Tensor::empty(shape, DTypeOf<T>::value);
    } catch (const Error& error) {
      fail(error.kind(), "attend: the reference engine stores the score of every pair; {}",
           error.what());
    }
  }

  void show(const char* key) {
    if (sink_ != nullptr) sink_->step(key, scores_);
  }

  void keep_scores_at(ScoresTap point) {
    if (p_.options.return_scores == point) result_.scores = Tensor::copy(scores_);
  }

  // Calls body(row, its kv_tokens numbers, scratch doubles) for every query of every head.
  template <typename Body>
  void for_rows(double flops_per_pair, std::size_t scratch_doubles, Body&& body) {
    if (scores_.numel() == 0) return;
    T* data = scores_.mutable_data_as<T>();
    const Region region{.pieces = scores_.numel() / kv_tokens_,
                        .flops = flops_per_pair * static_cast<double>(scores_.numel()),
                        .scratch_bytes = scratch_doubles * sizeof(double)};
    parallel_for(region, [&](dim_t r, std::byte* scratch) {
      const Row row{r / q_tokens_ / num_heads_, r / q_tokens_ % num_heads_, r % q_tokens_};
      body(row, data + r * kv_tokens_, reinterpret_cast<double*>(scratch));
    });
  }

  // k or v: [batch, num_kv_heads, kv_tokens, dim] as its query heads see it:
  // [batch, num_kv_heads, group, kv_tokens, dim], the group sharing memory.
  TensorView shared_by_group(const TensorView& t) const {
    const Strides& s = t.strides();
    return {t.data(),
            t.dtype(),
            {t.dim(0), t.dim(1), num_heads_ / t.dim(1), t.dim(2), t.dim(3)},
            {s[0], s[1], 0, s[2], s[3]}};
  }

  // t: [batch, num_heads, rows, columns] -> [batch, num_kv_heads, group, rows, columns]
  template <typename View>
  View grouped(const View& t) const {
    const dim_t kv_heads = p_.k.dim(1);
    const dim_t group = num_heads_ / kv_heads;
    const Strides& s = t.strides();
    const Shape shape{t.dim(0), kv_heads, group, t.dim(2), t.dim(3)};
    const Strides strides{s[0], s[1] * group, s[1], s[2], s[3]};
    if constexpr (std::is_same_v<View, MutableTensorView>) {
      return {t.mutable_data(), t.dtype(), shape, strides};
    } else {
      return {t.data(), t.dtype(), shape, strides};
    }
  }

  // 4a  scores = q kᵀ
  void multiply_queries_and_keys() {
    const TensorView keys = shared_by_group(p_.k);
    matmul_into(grouped(p_.q), transpose(keys, 3, 4), grouped(scores_.mutable_view()));
  }

  // 4b  scores = −inf where the query may not look
  void hide() {
    if (p_.mask.hides_nothing()) return;
    const std::size_t doubles = (static_cast<std::size_t>(kv_tokens_) + 7) / 8;
    for_rows(4.0, doubles, [&](const Row& row, T* scores, double* scratch) {
      auto* keep = reinterpret_cast<std::uint8_t*>(scratch);
      p_.mask.row(row.b, row.h, row.i, keep);
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        if (keep[j] == 0) scores[j] = static_cast<T>(kHidden);
      }
    });
  }

  void scale() {
    for_rows(1.0, 0, [&](const Row&, T* scores, double*) {
      for (dim_t j = 0; j < kv_tokens_; ++j) scores[j] = static_cast<T>(scores[j] * p_.scale);
    });
  }

  void softcap() {
    if (!p_.options.softcap) return;
    const double cap = *p_.options.softcap;
    for_rows(20.0, 0, [&](const Row&, T* scores, double*) {
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        scores[j] = static_cast<T>(cap * std::tanh(static_cast<double>(scores[j]) / cap));
      }
    });
  }

  void add_bias() {
    if (!p_.mask.adds()) return;
    for_rows(4.0, 0, [&](const Row& row, T* scores, double*) {
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        const double added = p_.mask.added(row.b, row.h, row.i, j);
        scores[j] = static_cast<T>(static_cast<double>(scores[j]) + added);
      }
    });
  }

  // 4c  weights = softmax(scores); lse = log Σ exp(scores)
  void softmax() {
    const bool wants_lse = p_.options.return_lse;
    if (wants_lse) {
      result_.lse = Tensor::full({p_.q.dim(0), num_heads_, q_tokens_}, kHidden, DTypeOf<T>::value);
    }
    T* lse = wants_lse ? result_.lse.template mutable_data_as<T>() : nullptr;
    const std::size_t doubles = 2 * static_cast<std::size_t>(kv_tokens_);
    for_rows(20.0, doubles, [&](const Row& row, T* scores, double* scratch) {
      double* weights = scratch + kv_tokens_;
      for (dim_t j = 0; j < kv_tokens_; ++j) scratch[j] = static_cast<double>(scores[j]);
      const double sum = softmax_row(scratch, kv_tokens_, weights);
      for (dim_t j = 0; j < kv_tokens_; ++j) scores[j] = static_cast<T>(weights[j]);
      if (wants_lse) lse[(row.b * num_heads_ + row.h) * q_tokens_ + row.i] = static_cast<T>(sum);
    });
  }

  // Inverted dropout: a dropped weight becomes 0, a kept one grows by 1 / (1 − p).
  void drop() {
    const T grown = static_cast<T>(dropout_scale(p_.options.dropout, DTypeOf<T>::value));
    if (p_.options.dropout_stream == DropoutStream::counter) {
      drop_by_counter(grown);
      return;
    }
    const std::vector<std::uint8_t> keep = draw_in_torch_order();
    for_rows(1.0, 0, [&](const Row& row, T* weights, double*) {
      const std::uint8_t* kept =
          keep.data() + ((row.b * num_heads_ + row.h) * q_tokens_ + row.i) * kv_tokens_;
      for (dim_t j = 0; j < kv_tokens_; ++j) weights[j] *= kept[j] != 0 ? grown : T{0};
    });
  }

  void drop_by_counter(T grown) {
    const auto threshold = static_cast<std::uint64_t>(std::ceil(p_.options.dropout * 0x1p32));
    for_rows(20.0, 0, [&](const Row& row, T* weights, double*) {
      const auto position = static_cast<std::uint32_t>(p_.mask.position(row.b, row.i));
      PhiloxCounter words{};
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        if (j % 4 == 0) {
          words = philox(p_.options.seed,
                         {static_cast<std::uint32_t>(j / 4), position,
                          static_cast<std::uint32_t>(row.h), static_cast<std::uint32_t>(row.b)});
        }
        weights[j] *= words[static_cast<std::size_t>(j % 4)] >= threshold ? grown : T{0};
      }
    });
  }

  // One draw for every pair, hidden ones too, in the memory order of PyTorch's weights.
  std::vector<std::uint8_t> draw_in_torch_order() const {
    const double probability = 1.0 - p_.options.dropout;
    TorchGenerator& generator = *p_.options.generator;
    const bool mkl = p_.options.dropout_stream == DropoutStream::torch_mkl;
    const dim_t batch = p_.q.dim(0);
    const dim_t pairs = q_tokens_ * kv_tokens_;
    const dim_t matrices = batch * num_heads_;
    std::vector<std::uint8_t> keep(static_cast<std::size_t>(matrices * pairs));
    // One module call per head draws one mkl seed each; otherwise one call draws for all heads.
    std::optional<Mcg31> stream;
    for (dim_t m = 0; m < matrices; ++m) {
      const bool in_turn = p_.options.heads_draw_in_turn;
      const dim_t matrix = in_turn ? m % batch * num_heads_ + m / batch : m;
      if (mkl && (m == 0 || (in_turn && m % batch == 0))) stream.emplace(generator.random());
      std::uint8_t* out = keep.data() + matrix * pairs;
      for (dim_t k = 0; k < pairs; ++k) {
        out[k] = (mkl ? stream->keeps(probability) : generator.keeps(probability)) ? 1 : 0;
      }
    }
    return keep;
  }

  // 4d  context = weights v, over the visible keys alone: 0 · NaN would be NaN
  void multiply_weights_and_values() {
    result_.context =
        Tensor::empty({p_.q.dim(0), num_heads_, q_tokens_, p_.v.dim(3)}, p_.q.dtype());
    RowFilter visible;
    if (!p_.mask.hides_nothing()) {
      visible.context = this;
      visible.fill = [](const void* self, dim_t matrix, dim_t row, std::uint8_t* keep) {
        const auto& me = *static_cast<const ReferenceAttention*>(self);
        me.p_.mask.row(matrix / me.num_heads_, matrix % me.num_heads_, row, keep);
      };
    }
    matmul_into(grouped(static_cast<const TensorView&>(scores_)), shared_by_group(p_.v),
                grouped(result_.context.mutable_view()), visible);
  }

  const AttendProblem& p_;
  StepSink* sink_;
  dim_t num_heads_;
  dim_t q_tokens_;
  dim_t kv_tokens_;
  Tensor scores_;
  AttendResult result_;
};

}  // namespace

namespace {

// k or v of a cache, whole: what was evicted or is not there yet is 0, and hidden.
Tensor gather_rows(const AttendProblem& problem, const TensorView& like, bool keys) {
  Tensor all = Tensor::zeros(like.shape(), like.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(like.dim(3)) * item_size(like.dtype());
  std::vector<const void*> rows(static_cast<std::size_t>(like.dim(2)));
  for (dim_t b = 0; b < like.dim(0); ++b) {
    const dim_t first = problem.cache->first_kept(b);
    const dim_t count = problem.cache->lengths()[static_cast<std::size_t>(b)] - first;
    for (dim_t h = 0; h < like.dim(1) && count > 0; ++h) {
      const RowPlace place{b, h, first, count};
      keys ? problem.key_rows(place, rows.data()) : problem.value_rows(place, rows.data());
      auto* to = static_cast<std::byte*>(
          all.mutable_view()[b][h].slice(0, first, first + count).mutable_data());
      for (dim_t j = 0; j < count; ++j) {
        std::memcpy(to + static_cast<std::size_t>(j) * row_bytes, rows[static_cast<std::size_t>(j)],
                    row_bytes);
      }
    }
  }
  return all;
}

}  // namespace

AttendResult attend_reference(const AttendProblem& problem, StepSink* sink) {
  if (problem.cache != nullptr) {
    const Tensor k = gather_rows(problem, problem.k, true);
    const Tensor v = gather_rows(problem, problem.v, false);
    AttendProblem dense = problem;
    dense.k = k;
    dense.v = v;
    dense.cache = nullptr;
    return attend_reference(dense, sink);
  }
  if (problem.q.dtype() == DType::f64) return ReferenceAttention<double>(problem, sink).run();
  return ReferenceAttention<float>(problem, sink).run();
}

}  // namespace cephalo
