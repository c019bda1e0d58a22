#include "cephalo/train/loss.h"

#include <cmath>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

void check_logits(const char* function, const TensorView& logits, const TensorView& targets,
                  const MutableTensorView& dlogits) {
  require_type(logits.dtype() == DType::f32 || logits.dtype() == DType::f64,
               "{}: logits are {}, float32 or float64 is needed", function, name(logits.dtype()));
  require_type(targets.dtype() == DType::i64 || targets.dtype() == DType::i32,
               "{}: targets are {}, int32 or int64 is needed", function, name(targets.dtype()));
  require(logits.rank() == 2, "{}: logits {} must be [rows, vocab_size]", function, logits.shape());
  require(targets.shape() == Shape{logits.dim(0)}, "{}: targets {} must be [{}], one for each row",
          function, targets.shape(), logits.dim(0));
  if (dlogits.numel() == 0) return;
  require(dlogits.shape() == logits.shape(), "{}: dlogits is {}, logits {}", function,
          dlogits.shape(), logits.shape());
  require_type(dlogits.dtype() == logits.dtype(), "{}: dlogits is {}, logits {}", function,
               name(dlogits.dtype()), name(logits.dtype()));
}

// How many targets count.
dim_t check_targets(const char* function, const std::int64_t* targets, dim_t rows, dim_t vocab_size,
                    std::int64_t ignore_index) {
  dim_t counted = 0;
  for (dim_t i = 0; i < rows; ++i) {
    if (targets[i] == ignore_index) continue;
    require(targets[i] >= 0 && targets[i] < vocab_size,
            "{}: target {} at position {} is outside the vocabulary of {}; {} is ignored", function,
            targets[i], i, vocab_size, ignore_index);
    ++counted;
  }
  return counted;
}

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
double sum_over_rows(const TensorView& logits, const std::int64_t* targets, double factor,
                     const MutableTensorView& dlogits, std::int64_t ignore_index) {
  const dim_t vocab_size = logits.dim(1);
  const bool with_gradient = dlogits.numel() > 0;
  const auto& kernels = kernels::train_kernels<T>(current_isa());
  std::vector<double> losses(static_cast<std::size_t>(logits.dim(0)), 0.0);
  constexpr double kFlopsPerLogit = 4.0;  // mostly exp
  const Region region{logits.dim(0), kFlopsPerLogit * static_cast<double>(logits.numel()),
                      4 * static_cast<std::size_t>(vocab_size) * sizeof(double)};
  parallel_for(region, [&](dim_t row, std::byte* scratch) {
    const std::int64_t target = targets[row];
    const TensorView given = logits[row];
    const MutableTensorView from(const_cast<void*>(given.data()), given.dtype(), given.shape(),
                                 given.strides());  // only read
    const MutableTensorView to = with_gradient ? dlogits[row] : from;
    if (target == ignore_index) {
      if (with_gradient) to.fill(0.0);
      return;
    }
    auto* room = reinterpret_cast<double*>(scratch);
    const DenseRow<T> in(from, reinterpret_cast<T*>(room + 2 * vocab_size));
    const DenseRow<T> out(to, reinterpret_cast<T*>(room + 3 * vocab_size));
    in.read();
    T* gradient = with_gradient ? out.data() : nullptr;
    double& loss = losses[static_cast<std::size_t>(row)];
    loss = kernels.cross_entropy(in.data(), vocab_size, target, static_cast<T>(factor), gradient);
    if (std::isnan(loss)) {
      loss = plain_row<T>(in.data(), vocab_size, target, factor, gradient, room);
    }
    if (with_gradient) out.write();
  });
  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  return sum * factor;
}

double run(const TensorView& logits, const std::int64_t* targets, double factor,
           const MutableTensorView& dlogits, std::int64_t ignore_index) {
  return logits.dtype() == DType::f64
             ? sum_over_rows<double>(logits, targets, factor, dlogits, ignore_index)
             : sum_over_rows<float>(logits, targets, factor, dlogits, ignore_index);
}

}  // namespace

double cross_entropy(const TensorView& logits, const TensorView& targets,
                     const MutableTensorView& dlogits, std::int64_t ignore_index) {
  constexpr const char* kName = "cross_entropy";
  check_logits(kName, logits, targets, dlogits);
  const Tensor ids = Tensor::copy(targets, DType::i64);
  const auto* id = ids.data_as<std::int64_t>();
  const dim_t counted = check_targets(kName, id, logits.dim(0), logits.dim(1), ignore_index);
  if (counted == 0) {
    if (dlogits.numel() > 0) dlogits.fill(0.0);
    return 0.0;
  }
  return run(logits, id, 1.0 / static_cast<double>(counted), dlogits, ignore_index);
}

double cross_entropy_share(const TensorView& logits, const TensorView& targets, dim_t count,
                           const MutableTensorView& dlogits, std::int64_t ignore_index) {
  constexpr const char* kName = "cross_entropy_share";
  check_logits(kName, logits, targets, dlogits);
  require(count > 0, "{}: count ({}) must be > 0", kName, count);
  const Tensor ids = Tensor::copy(targets, DType::i64);
  const auto* id = ids.data_as<std::int64_t>();
  check_targets(kName, id, logits.dim(0), logits.dim(1), ignore_index);
  return run(logits, id, 1.0 / static_cast<double>(count), dlogits, ignore_index);
}

}  // namespace cephalo
