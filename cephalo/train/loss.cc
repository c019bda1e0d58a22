#include "cephalo/train/loss.h"

#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

constexpr const char* kName = "cross_entropy";

void check_logits(const TensorView& logits, const TensorView& targets,
                  const MutableTensorView& dlogits) {
  require_type(logits.dtype() == DType::f32 || logits.dtype() == DType::f64,
               "{}: logits are {}, float32 or float64 is needed", kName, name(logits.dtype()));
  require_type(targets.dtype() == DType::i64 || targets.dtype() == DType::i32,
               "{}: targets are {}, int32 or int64 is needed", kName, name(targets.dtype()));
  require(logits.rank() == 2, "{}: logits {} must be [rows, vocab_size]", kName, logits.shape());
  require(targets.shape() == Shape{logits.dim(0)}, "{}: targets {} must be [{}], one for each row",
          kName, targets.shape(), logits.dim(0));
  if (dlogits.numel() == 0) return;
  require(dlogits.shape() == logits.shape(), "{}: dlogits is {}, logits {}", kName, dlogits.shape(),
          logits.shape());
  require_type(dlogits.dtype() == logits.dtype(), "{}: dlogits is {}, logits {}", kName,
               name(dlogits.dtype()), name(logits.dtype()));
}

// How many targets count.
dim_t check_targets(const std::int64_t* targets, dim_t rows, dim_t vocab_size,
                    std::int64_t ignore_index) {
  dim_t counted = 0;
  for (dim_t i = 0; i < rows; ++i) {
    if (targets[i] == ignore_index) continue;
    require(targets[i] >= 0 && targets[i] < vocab_size,
            "{}: target {} at position {} is outside the vocabulary of {}; {} is ignored", kName,
            targets[i], i, vocab_size, ignore_index);
    ++counted;
  }
  return counted;
}

template <typename T>
double mean_over_rows(const TensorView& logits, const std::int64_t* targets, dim_t counted,
                      const MutableTensorView& dlogits, std::int64_t ignore_index) {
  const dim_t vocab_size = logits.dim(1);
  const bool with_gradient = dlogits.numel() > 0;
  std::vector<double> losses(static_cast<std::size_t>(logits.dim(0)), 0.0);
  constexpr double kFlopsPerLogit = 20.0;  // mostly exp
  const Region region{logits.dim(0), kFlopsPerLogit * static_cast<double>(logits.numel()),
                      2 * static_cast<std::size_t>(vocab_size) * sizeof(double)};
  parallel_for(region, [&](dim_t row, std::byte* scratch) {
    const std::int64_t target = targets[row];
    if (target == ignore_index) {
      if (with_gradient) dlogits[row].fill(0.0);
      return;
    }
    auto* scores = reinterpret_cast<double*>(scratch);
    double* weights = scores + vocab_size;
    const T* from = logits.data_as<T>() + row * logits.strides()[0];
    for (dim_t id = 0; id < vocab_size; ++id) scores[id] = from[id * logits.strides()[1]];
    const double lse = softmax_row(scores, vocab_size, weights);
    losses[static_cast<std::size_t>(row)] = lse - scores[target];
    if (!with_gradient) return;
    // The row has been read as a whole: dlogits may lie where the logits do.
    weights[target] -= 1.0;
    T* to = dlogits.mutable_data_as<T>() + row * dlogits.strides()[0];
    for (dim_t id = 0; id < vocab_size; ++id) {
      to[id * dlogits.strides()[1]] = static_cast<T>(weights[id] / static_cast<double>(counted));
    }
  });
  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(counted);
}

}  // namespace

double cross_entropy(const TensorView& logits, const TensorView& targets,
                     const MutableTensorView& dlogits, std::int64_t ignore_index) {
  check_logits(logits, targets, dlogits);
  const Tensor ids = Tensor::copy(targets, DType::i64);
  const auto* id = ids.data_as<std::int64_t>();
  const dim_t counted = check_targets(id, logits.dim(0), logits.dim(1), ignore_index);
  if (counted == 0) {
    if (dlogits.numel() > 0) dlogits.fill(0.0);
    return 0.0;
  }
  return logits.dtype() == DType::f64
             ? mean_over_rows<double>(logits, id, counted, dlogits, ignore_index)
             : mean_over_rows<float>(logits, id, counted, dlogits, ignore_index);
}

}  // namespace cephalo
