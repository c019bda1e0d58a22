#include <algorithm>
#include <cmath>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/kernels/tables.h"
#include "cephalo/linear/for_runs.h"
#include "cephalo/linear/ops_host.h"

namespace cephalo::ops::host {
namespace {

// One row that the kernel leaves alone, in float64: NaN and infinities where they belong.
template <typename T>
double plain_row(const T* logits, dim_t vocab_size, std::int64_t target, double factor, T* dlogits,
                 double* scores) {
  double* weights = scores + vocab_size;
  for (dim_t id = 0; id < vocab_size; ++id) scores[id] = logits[id];
  const double lse = softmax_row(scores, vocab_size, weights);
  const double loss = lse - scores[target];
  if (dlogits == nullptr) return loss;
  weights[target] -= 1.0;
  for (dim_t id = 0; id < vocab_size; ++id) dlogits[id] = static_cast<T>(weights[id] * factor);
  return loss;
}

// A row of any strides as dense memory: its own, or a buffer.
template <typename T>
class DenseRow {
 public:
  DenseRow(const MutableTensorView& row, T* buffer)
      : row_(row), dense_(row.strides()[0] == 1 ? row.mutable_data_as<T>() : buffer) {}
  T* data() const { return dense_; }
  void read() const {
    each([](T& there, T& here) { here = there; });
  }
  void write() const {
    each([](T& there, T& here) { there = here; });
  }

 private:
  template <typename Move>
  void each(Move move) const {
    if (row_.strides()[0] == 1) return;
    T* there = row_.mutable_data_as<T>();
    for (dim_t k = 0; k < row_.dim(0); ++k) move(there[k * row_.strides()[0]], dense_[k]);
  }
  const MutableTensorView& row_;
  T* dense_;
};

template <typename T>
void cross_entropy_rows(const CrossEntropy& rows) {
  const dim_t vocab_size = rows.logits.dim(1);
  const bool with_gradient = rows.dlogits.numel() > 0;
  const auto& kernels = kernels::train_kernels<T>(current_isa());
  const auto* targets = rows.targets.data_as<std::int64_t>();
  auto* losses = rows.losses.mutable_data_as<double>();
  constexpr double kFlopsPerLogit = 4.0;  // mostly exp
  const Region region{rows.logits.dim(0), kFlopsPerLogit * static_cast<double>(rows.logits.numel()),
                      4 * static_cast<std::size_t>(vocab_size) * sizeof(double)};
  parallel_for(region, [&](dim_t row, std::byte* scratch) {
    const std::int64_t target = targets[row];
    const TensorView given = rows.logits[row];
    const MutableTensorView from(const_cast<void*>(given.data()), given.dtype(), given.shape(),
                                 given.strides());  // only read
    const MutableTensorView to = with_gradient ? rows.dlogits[row] : from;
    double& loss = losses[row];
    if (target == rows.ignore_index) {
      loss = 0.0;
      if (with_gradient) to.fill(0.0);
      return;
    }
    auto* room = reinterpret_cast<double*>(scratch);
    const DenseRow<T> in(from, reinterpret_cast<T*>(room + 2 * vocab_size));
    const DenseRow<T> out(to, reinterpret_cast<T*>(room + 3 * vocab_size));
    in.read();
    T* gradient = with_gradient ? out.data() : nullptr;
    loss =
        kernels.cross_entropy(in.data(), vocab_size, target, static_cast<T>(rows.factor), gradient);
    if (std::isnan(loss)) {
      loss = plain_row<T>(in.data(), vocab_size, target, rows.factor, gradient, room);
    }
    if (with_gradient) out.write();
  });
}

// Elements that do not lie side by side take turns in a buffer.
constexpr dim_t kBuffer = 512;

template <typename T>
void adamw_elements(const AdamW& step) {
  const auto& kernels = kernels::train_kernels<T>(current_isa());
  const kernels::AdamWFactors<T> f{
      static_cast<T>(step.kept),         static_cast<T>(step.mean_kept),
      static_cast<T>(step.mean_share),   static_cast<T>(step.square_kept),
      static_cast<T>(step.square_share), static_cast<T>(step.root_correction),
      static_cast<T>(step.epsilon),      static_cast<T>(step.step_size)};
  T* parameters = step.parameter.mutable_data_as<T>();
  const T* gradients = step.gradient.data_as<T>();
  T* means = step.mean.mutable_data_as<T>();
  T* squares = step.mean_square.mutable_data_as<T>();
  constexpr double kFlops = 4.0;  // in plain code's time
  for_runs<2>({step.parameter, step.gradient}, kFlops, [&](dim_t, const Run<2>& run) {
    T* p = parameters + run.offset[0];
    const T* g = gradients + run.offset[1];
    if (run.stride[0] == 1 && run.stride[1] == 1) {
      kernels.adamw(f, g, run.count, p, means + run.first, squares + run.first);
      return;
    }
    T buffer[2][kBuffer];
    for (dim_t begin = 0; begin < run.count; begin += kBuffer) {
      const dim_t count = std::min(kBuffer, run.count - begin);
      for (dim_t k = 0; k < count; ++k) {
        buffer[0][k] = p[(begin + k) * run.stride[0]];
        buffer[1][k] = g[(begin + k) * run.stride[1]];
      }
      kernels.adamw(f, buffer[1], count, buffer[0], means + run.first + begin,
                    squares + run.first + begin);
      for (dim_t k = 0; k < count; ++k) p[(begin + k) * run.stride[0]] = buffer[0][k];
    }
  });
}

template <typename T>
void sgd_elements(const Sgd& step) {
  T* parameters = step.parameter.mutable_data_as<T>();
  const T* gradients = step.gradient.data_as<T>();
  T* directions = step.direction.numel() > 0 ? step.direction.mutable_data_as<T>() : nullptr;
  const auto learning_rate = static_cast<T>(step.learning_rate);
  const auto momentum = static_cast<T>(step.momentum);
  const auto weight_decay = static_cast<T>(step.weight_decay);
  constexpr double kFlops = 10.0;
  for_runs<2>({step.parameter, step.gradient}, kFlops, [&](dim_t, const Run<2>& run) {
    for (dim_t k = 0; k < run.count; ++k) {
      T& p = parameters[run.offset[0] + k * run.stride[0]];
      T change = gradients[run.offset[1] + k * run.stride[1]] + weight_decay * p;
      if (directions != nullptr) {
        T& direction = directions[run.first + k];
        direction = step.first ? change : momentum * direction + change;
        change = step.nesterov ? change + momentum * direction : direction;
      }
      p -= learning_rate * change;
    }
  });
}

static_assert(kSquaresPiece == kPieceElements);

template <typename T>
void squares_of_pieces(const TensorView& x, double* sums) {
  const MaybeCopied dense = contiguous(x);  // the same sums for any strides
  const auto& kernels = kernels::train_kernels<T>(current_isa());
  const T* values = dense.view().data_as<T>();
  for_runs<1>({dense.view()}, 0.5, [&](dim_t piece, const Run<1>& run) {
    sums[piece] = kernels.sum_of_squares(values + run.first, run.count);
  });
}

template <typename T>
void add_elements(const TensorView& from, const MutableTensorView& to) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const T* source = from.data_as<T>();
  T* sum = to.mutable_data_as<T>();
  for_runs<2>({from, to}, 1.0, [&](dim_t, const Run<2>& run) {
    kernels.add(source + run.first, run.count, sum + run.first);
  });
}

template <typename T>
void lengths_of_rows(const TensorView& x, double* norms) {
  const T* first = x.data_as<T>();
  const dim_t width = x.dim(1);
  const Region region{.pieces = x.dim(0), .flops = 2.0 * static_cast<double>(x.numel())};
  parallel_for(region, [&](dim_t row, std::byte*) {
    double square = 0.0;
    for (dim_t d = 0; d < width; ++d) {
      const auto number = static_cast<double>(first[row * width + d]);
      square += number * number;
    }
    norms[row] = std::sqrt(square);
  });
}

template <typename T>
void scale_elements(const MutableTensorView& x, double factor) {
  T* values = x.mutable_data_as<T>();
  for_runs<1>({x}, 1.0, [&](dim_t, const Run<1>& run) {
    for (dim_t k = 0; k < run.count; ++k) {
      values[run.offset[0] + k * run.stride[0]] *= static_cast<T>(factor);
    }
  });
}

}  // namespace

void cross_entropy(const CrossEntropy& rows) {
  rows.logits.dtype() == DType::f64 ? cross_entropy_rows<double>(rows)
                                    : cross_entropy_rows<float>(rows);
}

void adamw(const AdamW& step) {
  step.parameter.dtype() == DType::f64 ? adamw_elements<double>(step) : adamw_elements<float>(step);
}

void sgd(const Sgd& step) {
  step.parameter.dtype() == DType::f64 ? sgd_elements<double>(step) : sgd_elements<float>(step);
}

void sum_of_squares(const TensorView& x, const MutableTensorView& total) {
  Tensor sums = Tensor::zeros({pieces_of(x)}, DType::f64);
  sums_of_squares(x, sums);
  double sum = 0.0;
  for (dim_t piece = 0; piece < sums.numel(); ++piece) sum += sums.data_as<double>()[piece];
  total.set({}, sum);
}

void sums_of_squares(const TensorView& x, const MutableTensorView& sums) {
  auto* to = sums.mutable_data_as<double>();
  x.dtype() == DType::f64 ? squares_of_pieces<double>(x, to) : squares_of_pieces<float>(x, to);
}

void add(const TensorView& from, const MutableTensorView& to) {
  to.dtype() == DType::f64 ? add_elements<double>(from, to) : add_elements<float>(from, to);
}

void row_norms(const TensorView& x, const MutableTensorView& norms) {
  auto* to = norms.mutable_data_as<double>();
  x.dtype() == DType::f64 ? lengths_of_rows<double>(x, to) : lengths_of_rows<float>(x, to);
}

void scale(const MutableTensorView& x, double factor) {
  x.dtype() == DType::f64 ? scale_elements<double>(x, factor) : scale_elements<float>(x, factor);
}

}  // namespace cephalo::ops::host
