#include "cephalo/train/loss.h"

#include "cephalo/core/fail.h"
#include "cephalo/linear/ops.h"

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

// targets: int64. The rows' losses are added in their order.
double run(const TensorView& logits, const TensorView& targets, double factor,
           const MutableTensorView& dlogits, std::int64_t ignore_index) {
  Tensor losses = Tensor::empty({logits.dim(0)}, DType::f64, logits.device());
  ops::cross_entropy({.logits = logits,
                      .targets = targets,
                      .ignore_index = ignore_index,
                      .factor = factor,
                      .losses = losses,
                      .dlogits = dlogits});
  double sum = 0.0;
  const auto* loss = losses.data_as<double>();
  for (dim_t row = 0; row < losses.dim(0); ++row) sum += loss[row];
  return sum * factor;
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
  return run(logits, ids, 1.0 / static_cast<double>(counted), dlogits, ignore_index);
}

double cross_entropy_share(const TensorView& logits, const TensorView& targets, dim_t count,
                           const MutableTensorView& dlogits, std::int64_t ignore_index) {
  constexpr const char* kName = "cross_entropy_share";
  check_logits(kName, logits, targets, dlogits);
  require(count > 0, "{}: count ({}) must be > 0", kName, count);
  const Tensor ids = Tensor::copy(targets, DType::i64);
  const auto* id = ids.data_as<std::int64_t>();
  check_targets(kName, id, logits.dim(0), logits.dim(1), ignore_index);
  return run(logits, ids, 1.0 / static_cast<double>(count), dlogits, ignore_index);
}

}  // namespace cephalo
