#include "cephalo/model/layer_norm.h"

#include <algorithm>
#include <vector>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

constexpr dim_t kBlock = 64;    // rows of a piece: their sums of dweight and dbias are one
constexpr double kFlops = 2.0;  // for each element, in plain code's time

template <typename T>
T* begin_or_null(const MutableTensorView& t) {
  return t.numel() > 0 ? t.mutable_data_as<T>() : nullptr;
}

template <typename T>
void forward(const LayerNorm& norm, const LayerNorm::Rows& rows) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t width = norm.width();
  const dim_t count = rows.x.dim(0);
  T* x = rows.x.mutable_data_as<T>();
  const T* added = rows.added.numel() > 0 ? rows.added.data_as<T>() : nullptr;
  T* y = rows.y.mutable_data_as<T>();
  T* moments = begin_or_null<T>(rows.moments);
  const Region region{(count + kBlock - 1) / kBlock, kFlops * static_cast<double>(rows.x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t first = piece * kBlock;
    kernels.layer_norm({std::min(kBlock, count - first), width, x + first * width,
                        added != nullptr ? added + first * width : nullptr,
                        norm.weight.data_as<T>(), norm.bias.data_as<T>(),
                        static_cast<T>(norm.epsilon), y + first * width,
                        moments != nullptr ? moments + 2 * first : nullptr});
  });
}

template <typename T>
void backward(const LayerNorm& norm, const LayerNorm::BackwardRows& rows) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const dim_t width = norm.width();
  const dim_t count = rows.x.dim(0);
  const dim_t pieces = (count + kBlock - 1) / kBlock;
  std::vector<T> sums(static_cast<std::size_t>(2 * pieces * width), T{0});
  const Region region{pieces, kFlops * static_cast<double>(rows.x.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t first = piece * kBlock;
    T* sum = sums.data() + 2 * piece * width;
    kernels.layer_norm_backward({std::min(kBlock, count - first), width,
                                 rows.x.data_as<T>() + first * width,
                                 rows.moments.data_as<T>() + 2 * first, norm.weight.data_as<T>(),
                                 rows.dy.data_as<T>() + first * width,
                                 rows.dx.mutable_data_as<T>() + first * width, sum, sum + width});
  });
  for (dim_t piece = 0; piece < pieces; ++piece) {
    const T* sum = sums.data() + 2 * piece * width;
    kernels.add(sum, width, rows.dweight.mutable_data_as<T>());
    kernels.add(sum + width, width, rows.dbias.mutable_data_as<T>());
  }
}

}  // namespace

LayerNorm::LayerNorm(dim_t width, double epsilon_, DType dtype)
    : weight(Tensor::full({width}, 1.0, dtype)),
      bias(Tensor::zeros({width}, dtype)),
      epsilon(epsilon_) {}

Tensor LayerNorm::operator()(const TensorView& x) const {
  require(x.rank() > 0 && x.dim(-1) == width(), "LayerNorm: the last dimension of x {} must be {}",
          x.shape(), width());
  require_type(x.dtype() == weight.dtype(), "LayerNorm: x is {}, the parameters are {}",
               name(x.dtype()), name(weight.dtype()));
  Tensor y = Tensor::copy(x);
  const MutableTensorView rows(y.mutable_view().mutable_data(), y.dtype(),
                               {width() == 0 ? 0 : x.numel() / width(), width()});
  forward_into({rows, {}, rows, {}});
  return y;
}

void LayerNorm::forward_into(const Rows& rows) const {
  weight.dtype() == DType::f64 ? forward<double>(*this, rows) : forward<float>(*this, rows);
}

void LayerNorm::backward(const BackwardRows& rows) const {
  weight.dtype() == DType::f64 ? cephalo::backward<double>(*this, rows)
                               : cephalo::backward<float>(*this, rows);
}

}  // namespace cephalo
