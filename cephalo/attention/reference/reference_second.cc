#include "cephalo/attention/reference/reference_second.h"

#include "cephalo/attention/reference/reference_backward.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/rows.h"

namespace cephalo {
namespace {

// The steps of the backward pass, and how each of their results moves when q, k, v and biases move
// along a direction: t + the name of what moves.
template <typename T>
class ReferenceSecond : private ReferenceBackward<T> {
  using Base = ReferenceBackward<T>;
  using Base::capped_;
  using Base::dcontext_;
  using Base::dscores_;
  using Base::gradients_;
  using Base::kv_tokens_;
  using Base::p_;
  using Base::row_number;
  using Base::row_of;
  using Base::visible_from;
  using Base::weights_;

 public:
  ReferenceSecond(const SecondProblem& problem, const char* function)
      : Base(problem.backward, function), along_(problem.along), tangents_(problem.tangents) {}

  void run_tangent() {
    this->find_visible();
    this->recompute_weights();
    this->draw_again();
    multiply_queries_and_keys_tangent();
    softcap_tangent();
    add_bias_tangent();
    softmax_tangent();
    multiply_weights_and_values_tangent();
  }

  void run() {
    run_tangent();
    multiply_weights_and_values_second();
    softmax_second();
    for (const MutableTensorView& hbias : gradients_.dbias) this->sum_into(hbias, tdscores_);
    softcap_second();
    this->scale(dscores_);
    this->scale(tdscores_);
    multiply_queries_and_keys_second();
  }

 private:
  // Calls body(row, visible, j) for every visible pair, j its number in the row.
  template <typename Body>
  void for_visible(Tensor& pairs, const Body& body) const {
    for_rows<T>(pairs, 8.0, 0, [&](const PairRow& row, T* numbers, double*) {
      const std::uint8_t* visible = visible_from(row);
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        if (visible[j] != 0) body(row, numbers[j], j);
      }
    });
  }

  // tscores = scale (tq kᵀ + q tkᵀ) ← scores = scale · q kᵀ
  void multiply_queries_and_keys_tangent() {
    tscores_ = this->allocate_pairs(DTypeOf<T>::value);
    Tensor of_keys = this->allocate_pairs(DTypeOf<T>::value);
    this->multiply_pairs(along_.q, p_.k, tscores_);
    this->multiply_pairs(p_.q, along_.k, of_keys);
    for_visible(tscores_, [&](const PairRow& row, T& tscore, dim_t j) {
      tscore = static_cast<T>(p_.scale * (static_cast<double>(tscore) + row_of(of_keys, row)[j]));
    });
  }

  // The slope of c tanh(s / c) is 1 − tanh², and that moves by −2 tanh / c · (1 − tanh²) · ts.
  double tanh_of(const PairRow& row, dim_t j) const {
    return static_cast<double>(row_of(capped_, row)[j]) / *p_.options.softcap;
  }

  // tscores = tscores (1 − tanh²) ← scores = c tanh(scores / c)
  void softcap_tangent() {
    if (!p_.options.softcap) return;
    for_visible(tscores_, [&](const PairRow& row, T& tscore, dim_t j) {
      const double tanh = tanh_of(row, j);
      tscore = static_cast<T>(static_cast<double>(tscore) * (1.0 - tanh * tanh));
    });
    tcapped_ = Tensor::copy(tscores_);
  }

  // tscores = tscores + tbias ← scores = scores + bias
  void add_bias_tangent() {
    for (const TensorView& tbias : along_.bias) {
      const auto stride = [&](int axis) {
        return tbias.dim(axis) == 1 ? 0 : tbias.strides()[axis];
      };
      const T* data = tbias.numel() == 0 ? nullptr : tbias.data_as<T>();
      for_visible(tscores_, [&](const PairRow& row, T& tscore, dim_t j) {
        tscore += data[row.b * stride(0) + row.h * stride(1) + row.i * stride(2) + j * stride(3)];
      });
    }
  }

  // 4c  tlse = Σ weights tscores, tweights = weights (tscores − tlse)
  void softmax_tangent() {
    T* tlse = tangents_.tlse.numel() == 0 ? nullptr : tangents_.tlse.template mutable_data_as<T>();
    if (kv_tokens_ == 0) tangents_.tlse.fill(0.0);
    for_rows<T>(tscores_, 8.0, 0, [&](const PairRow& row, T* tscores, double*) {
      const std::uint8_t* visible = visible_from(row);
      const T* weights = row_of(weights_, row);
      double sum = 0.0;
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        if (visible[j] != 0) sum += static_cast<double>(weights[j]) * tscores[j];
      }
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        const double tweight = static_cast<double>(weights[j]) * (tscores[j] - sum);
        tscores[j] = visible[j] != 0 ? static_cast<T>(tweight) : T{0};
      }
      tlse[row_offset(tangents_.tlse, row.b, row.h, row.i)] = static_cast<T>(sum);
    });
  }
  Tensor& tweights() { return tscores_; }  // since softmax_tangent

  // 4d  tcontext = tweights v + weights tv ← context = weights v, all weights after dropout
  void multiply_weights_and_values_tangent() {
    Tensor by_weights = Tensor::empty(tangents_.tcontext.shape(), DTypeOf<T>::value);
    Tensor by_values = Tensor::empty(tangents_.tcontext.shape(), DTypeOf<T>::value);
    this->multiply(this->dropped(tweights()), p_.v, by_weights.mutable_view());
    this->multiply(this->dropped(weights_), along_.v, by_values.mutable_view());
    tangents_.tcontext.copy_from(add(by_weights, by_values));
  }

  // 4d  hv = tweightsᵀ dcontext ← dv = weightsᵀ dcontext,
  //     tdweights = dcontext tvᵀ ← dweights = dcontext vᵀ; and dropout of both
  void multiply_weights_and_values_second() {
    this->multiply_transposed(this->dropped(tweights()), dcontext_.view(), gradients_.dv);
    dscores_ = this->allocate_pairs(DTypeOf<T>::value);
    tdscores_ = this->allocate_pairs(DTypeOf<T>::value);
    this->multiply_pairs(dcontext_.view(), p_.v, dscores_);
    this->multiply_pairs(dcontext_.view(), along_.v, tdscores_);
    this->drop(dscores_);
    this->drop(tdscores_);
  }

  // 4c  tdscores = tweights (dweights − delta) + weights (tdweights − tdelta)
  //       ← dscores = weights (dweights − delta), delta = Σ weights dweights − dlse
  void softmax_second() {
    T* all = tdscores_.numel() == 0 ? nullptr : tdscores_.template mutable_data_as<T>();
    for_rows<T>(dscores_, 16.0, 0, [&](const PairRow& row, T* dscores, double*) {
      const std::uint8_t* visible = visible_from(row);
      const T* weights = row_of(weights_, row);
      const T* tweights = row_of(tscores_, row);
      T* tdscores = all + row_number(row) * kv_tokens_;
      const double delta = this->delta_of(row, dscores);
      double tdelta = 0.0;
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        if (visible[j] == 0) continue;  // what is hidden may be no number
        tdelta += static_cast<double>(tweights[j]) * dscores[j] +
                  static_cast<double>(weights[j]) * tdscores[j];
      }
      for (dim_t j = 0; j < kv_tokens_; ++j) {
        const double weight = static_cast<double>(weights[j]);
        const double moved = dscores[j] - delta;
        const double tdscore = tweights[j] * moved + weight * (tdscores[j] - tdelta);
        tdscores[j] = visible[j] != 0 ? static_cast<T>(tdscore) : T{0};
        dscores[j] = visible[j] != 0 ? static_cast<T>(weight * moved) : T{0};
      }
    });
  }

  // tdscores = tdscores · slope + dscores · tslope ← dscores = dscores · slope
  void softcap_second() {
    if (!p_.options.softcap) return;
    T* all = tdscores_.numel() == 0 ? nullptr : tdscores_.template mutable_data_as<T>();
    for_visible(dscores_, [&](const PairRow& row, T& dscore, dim_t j) {
      const double tanh = tanh_of(row, j);
      const double slope = 1.0 - tanh * tanh;
      const double tslope = -2.0 * tanh / *p_.options.softcap * row_of(tcapped_, row)[j];
      T& tdscore = all[row_number(row) * kv_tokens_ + j];
      tdscore = static_cast<T>(tdscore * slope + dscore * tslope);
      dscore = static_cast<T>(dscore * slope);
    });
  }

  // 4a  hq = tdscores k + dscores tk ← dq = dscores k, hk = tdscoresᵀ q + dscoresᵀ tq ← dk
  void multiply_queries_and_keys_second() {
    const auto like = [](const TensorView& t) {
      return Tensor::empty(t.shape(), DTypeOf<T>::value);
    };
    Tensor first = like(p_.q), second = like(p_.q);
    this->multiply(tdscores_, p_.k, first.mutable_view());
    this->multiply(dscores_, along_.k, second.mutable_view());
    gradients_.dq.copy_from(add(first, second));
    first = like(p_.k), second = like(p_.k);
    this->multiply_transposed(tdscores_, p_.q, first.mutable_view());
    this->multiply_transposed(dscores_, along_.q, second.mutable_view());
    gradients_.dk.copy_from(add(first, second));
  }

  const AttendDirection& along_;
  const AttendTangentViews& tangents_;
  Tensor tscores_;   // tweights after the softmax
  Tensor tcapped_;   // with softcap: tscores after it
  Tensor tdscores_;  // tdweights first
};

}  // namespace

void attend_tangent_reference(const SecondProblem& problem) {
  constexpr const char* kFunction = "attend_tangent";
  if (problem.backward.forward.q.dtype() == DType::f64) {
    ReferenceSecond<double>(problem, kFunction).run_tangent();
  } else {
    ReferenceSecond<float>(problem, kFunction).run_tangent();
  }
}

void attend_second_reference(const SecondProblem& problem) {
  constexpr const char* kFunction = "attend_second";
  if (problem.backward.forward.q.dtype() == DType::f64) {
    ReferenceSecond<double>(problem, kFunction).run();
  } else {
    ReferenceSecond<float>(problem, kFunction).run();
  }
}

}  // namespace cephalo
