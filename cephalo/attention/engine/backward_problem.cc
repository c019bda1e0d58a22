#include "cephalo/attention/engine/backward_problem.h"

#include <utility>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

void check_types(const AttendPass& pass, const TensorView& q, const TensorView& k,
                 ComesBack comes_back, const char* function) {
  require_type(k.dtype() == q.dtype(), "{}: q is {} but k and v are {}; they must be the same",
               function, name(q.dtype()), name(k.dtype()));
  for (const auto& [name_of, t] :
       {std::pair{"context", &pass.context}, std::pair{"lse", &pass.lse},
        std::pair{"dcontext", &pass.dcontext}, std::pair{"dlse", &pass.dlse}}) {
    if (t == &pass.dlse && t->numel() == 0) continue;
    if (t == &pass.dcontext && comes_back == ComesBack::nothing) break;
    const bool is_sum = t == &pass.lse || t == &pass.dlse;
    require_type(is_sum || t->dtype() == q.dtype(), "{}: {} is {}, q is {}; they must be the same",
                 function, name_of, name(t->dtype()), name(q.dtype()));
    require_type(!is_sum || t->dtype() == compute_type(q.dtype()), "{}: {} is {}, {} is needed",
                 function, name_of, name(t->dtype()), name(compute_type(q.dtype())));
  }
}

void check_shape(const char* what, const TensorView& t, const Shape& expected,
                 const char* function) {
  require(t.shape() == expected, "{}: {} is {}, expected {}", function, what, t.shape(), expected);
}

}  // namespace

void check_pass(const AttendPass& pass, const TensorView& q, const TensorView& k,
                const TensorView& v, ComesBack comes_back, const char* function) {
  check_types(pass, q, k, comes_back, function);
  Shape rows;
  for (int axis = 0; axis + 1 < q.rank(); ++axis) rows.push_back(q.dim(axis));
  Shape whole = rows;
  whole.push_back(v.dim(-1));
  check_shape("context", pass.context, whole, function);
  check_shape("lse", pass.lse, rows, function);
  common_device(function, {{"q", q}, {"context", pass.context}, {"lse", pass.lse}});
  if (comes_back == ComesBack::nothing) return;
  common_device(function, {{"q", q}, {"dcontext", pass.dcontext}, {"dlse", pass.dlse}});
  check_shape("dcontext", pass.dcontext, whole, function);
  if (pass.dlse.numel() > 0) check_shape("dlse", pass.dlse, rows, function);
}

void check_like(const char* what, const TensorView& t, const TensorView& of, DType dtype,
                const char* function) {
  check_shape(what, t, of.shape(), function);
  require_type(t.dtype() == dtype, "{}: {} is {}, {} is needed", function, what, name(t.dtype()),
               name(dtype));
}

std::vector<TensorView> biases_of(const Mask& mask) {
  std::vector<TensorView> biases;
  for (const MaskTensor& part : mask.tensors) {
    if (part.role == MaskTensor::Role::bias) biases.push_back(part.view);
  }
  return biases;
}

template <typename View>
void check_like_biases(const BiasWords& what, const std::vector<View>& given, const Mask& mask,
                       DType dtype, const char* function) {
  if (given.empty()) return;
  const std::vector<TensorView> biases = biases_of(mask);
  require(given.size() == biases.size(),
          "{}: {} {} for the {} biases of the mask; pass one for each, or none", function,
          given.size(), what.several, biases.size());
  for (std::size_t n = 0; n < biases.size(); ++n) {
    common_device(function, {{"the bias", biases[n]}, {what.one, given[n]}});
    check_like(what.one, given[n], biases[n], dtype, function);
  }
}

template void check_like_biases(const BiasWords&, const std::vector<TensorView>&, const Mask&,
                                DType, const char*);
template void check_like_biases(const BiasWords&, const std::vector<MutableTensorView>&,
                                const Mask&, DType, const char*);

AttendPass with_leading_ones(const AttendPass& pass) {
  const int rank = 4;
  return {with_leading_ones(pass.context, rank), with_leading_ones(pass.lse, rank - 1),
          with_leading_ones(pass.dcontext, rank),
          pass.dlse.numel() > 0 ? with_leading_ones(pass.dlse, rank - 1) : TensorView()};
}

}  // namespace cephalo
