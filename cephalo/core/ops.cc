#include "cephalo/core/ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

void require_floating(const char* function, const TensorView& t) {
  require_type(is_floating(t.dtype()), "{}: {} is not a floating-point type", function,
               name(t.dtype()));
}

// Replaces every element of a dense tensor by f(value, flat index).
template <typename F>
void apply(Tensor& t, F&& f) {
  const dim_t count = t.numel();
  visit_dtype(t.dtype(), [&](auto zero) {
    auto* values = t.mutable_data_as<decltype(zero)>();
    for (dim_t i = 0; i < count; ++i) store(f(load(values[i]), i), values + i);
  });
}

// Puts `value` where chosen(flat index); the other elements are not touched.
template <typename F>
void fill_where(Tensor& t, double value, F&& chosen) {
  const dim_t count = t.numel();
  visit_dtype(t.dtype(), [&](auto zero) {
    auto* values = t.mutable_data_as<decltype(zero)>();
    for (dim_t i = 0; i < count; ++i) {
      if (chosen(i)) store(value, values + i);
    }
  });
}

// The axes of t from the widest stride to the narrowest: the order in which its memory lies.
Dims memory_order(const TensorView& t) {
  Dims axes;
  for (int axis = 0; axis < t.rank(); ++axis) axes.push_back(axis);
  std::stable_sort(axes.begin(), axes.end(), [&](dim_t a, dim_t b) {
    return std::abs(t.strides()[static_cast<int>(a)]) > std::abs(t.strides()[static_cast<int>(b)]);
  });
  return axes;
}

Tensor linear_checked(const TensorView& x, const TensorView& weight, const TensorView* bias) {
  require_floating("linear", x);
  require(x.rank() >= 1 && weight.rank() == 2 && x.dim(-1) == weight.dim(1),
          "linear: x {} does not fit weight {} ([d_out, d_in])", x.shape(), weight.shape());
  require(bias == nullptr || bias->shape() == Shape{weight.dim(0)},
          "linear: bias {} does not fit weight {}", bias != nullptr ? bias->shape() : Shape{},
          weight.shape());
  Shape shape = x.shape();
  shape[-1] = weight.dim(0);
  Tensor out = Tensor::empty(shape, x.dtype());
  linear_into(x, weight, bias, out);
  return out;
}

}  // namespace

Tensor matmul(const TensorView& a, const TensorView& b) {
  require_floating("matmul", a);
  bool fits = a.rank() >= 2 && a.rank() == b.rank() && a.dim(-1) == b.dim(-2);
  for (int axis = 0; fits && axis < a.rank() - 2; ++axis) fits = a.dim(axis) == b.dim(axis);
  require(fits, "matmul: {} does not multiply {}; shapes must be [..., M, K] and [..., K, N]",
          a.shape(), b.shape());
  Shape shape = a.shape();
  shape[-1] = b.dim(-1);
  Tensor out = Tensor::empty(shape, a.dtype());
  matmul_into(a, b, out);
  return out;
}

Tensor linear(const TensorView& x, const TensorView& weight) {
  return linear_checked(x, weight, nullptr);
}

Tensor linear(const TensorView& x, const TensorView& weight, const TensorView& bias) {
  return linear_checked(x, weight, &bias);
}

Tensor add(const TensorView& a, const TensorView& b) {
  require_floating("add", a);
  Tensor out = Tensor::copy(a);
  const Tensor other = Tensor::copy(broadcast_to(b, a.shape()), DType::f64);
  const double* terms = other.data_as<double>();
  apply(out, [&](double value, dim_t i) { return value + terms[i]; });
  return out;
}

Tensor multiply(const TensorView& t, double factor) {
  require_floating("multiply", t);
  Tensor out = Tensor::copy(t);
  apply(out, [&](double value, dim_t) { return value * factor; });
  return out;
}

Tensor triu(const TensorView& t, dim_t diagonal) {
  require(t.rank() >= 2, "triu: shape {} has no rows and columns", t.shape());
  Tensor out = Tensor::copy(t);
  const dim_t rows = t.dim(-2);
  const dim_t columns = t.dim(-1);
  const dim_t shift = std::clamp(diagonal, -rows, columns);
  fill_where(out, 0.0, [&](dim_t i) { return i % columns < i / columns % rows + shift; });
  return out;
}

Tensor masked_fill(const TensorView& t, const TensorView& mask, double value) {
  Tensor out = Tensor::copy(t);
  const Tensor chosen = Tensor::copy(broadcast_to(mask, t.shape()), DType::boolean);
  const bool* is_filled = chosen.data_as<bool>();
  fill_where(out, value, [&](dim_t i) { return is_filled[i]; });
  return out;
}

double softmax_row(const double* scores, dim_t count, double* weights) {
  double top = kHidden;
  for (dim_t j = 0; j < count; ++j) {
    if (scores[j] > top || std::isnan(scores[j])) top = scores[j];
    if (std::isnan(top)) break;
  }
  if (top == kHidden) {
    for (dim_t j = 0; j < count; ++j) weights[j] = 0.0;
    return top;
  }
  double sum = 0.0;
  for (dim_t j = 0; j < count; ++j) {
    weights[j] = std::exp(scores[j] - top);
    sum += weights[j];
  }
  for (dim_t j = 0; j < count; ++j) {
    weights[j] = scores[j] == kHidden ? 0.0 : weights[j] / sum;  // 0, even beside a NaN
  }
  return top + std::log(sum);
}

Tensor softmax(const TensorView& t) {
  require_floating("softmax", t);
  require(t.rank() >= 1, "softmax: a scalar has no axis");
  Tensor out = Tensor::copy(t);
  const dim_t columns = t.dim(-1);
  if (out.numel() == 0) return out;
  const Region region{.pieces = out.numel() / columns,
                      .flops = 20.0 * static_cast<double>(out.numel()),
                      .scratch_bytes = 2 * static_cast<std::size_t>(columns) * sizeof(double)};
  visit_dtype(out.dtype(), [&](auto zero) {
    auto* values = out.mutable_data_as<decltype(zero)>();
    parallel_for(region, [&](dim_t row, std::byte* scratch) {
      auto* scores = reinterpret_cast<double*>(scratch);
      double* weights = scores + columns;
      auto* elements = values + row * columns;
      for (dim_t j = 0; j < columns; ++j) scores[j] = load(elements[j]);
      softmax_row(scores, columns, weights);
      for (dim_t j = 0; j < columns; ++j) store(weights[j], elements + j);
    });
  });
  return out;
}

Tensor dropout(const TensorView& t, double p, TorchGenerator& generator) {
  require_floating("dropout", t);
  require(p >= 0.0 && p < 1.0, "dropout: p ({}) must be in [0, 1)", p);
  if (p == 0.0) return Tensor::copy(t);
  const Dims order = memory_order(t);
  Tensor dropped = Tensor::copy(permute(t, order));
  const double scale = dropout_scale(p, t.dtype());
  apply(dropped, [&](double value, dim_t) {
    return generator.keeps(1.0 - p) ? value * scale : value * 0.0;
  });
  Dims back = order;
  for (int axis = 0; axis < order.rank(); ++axis) back[static_cast<int>(order[axis])] = axis;
  return Tensor::copy(permute(dropped, back));
}

}  // namespace cephalo
