#include "cephalo/attention/attend_backward.h"

#include <utility>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

constexpr const char* kName = "attend_backward";

void check_types(const TensorView& q, const TensorView& k, const AttendPass& pass) {
  require_type(q.dtype() == DType::f32 || q.dtype() == DType::f64,
               "{}: q is {}; gradients are computed in float32 or float64", kName, name(q.dtype()));
  require_type(k.dtype() == q.dtype(), "{}: q is {} but k and v are {}; they must be the same",
               kName, name(q.dtype()), name(k.dtype()));
  for (const auto& [name_of, t] :
       {std::pair{"context", &pass.context}, std::pair{"lse", &pass.lse},
        std::pair{"dcontext", &pass.dcontext}, std::pair{"dlse", &pass.dlse}}) {
    if (t == &pass.dlse && t->numel() == 0) continue;
    require_type(t->dtype() == q.dtype(), "{}: {} is {}, q is {}; they must be the same", kName,
                 name_of, name(t->dtype()), name(q.dtype()));
  }
}

void check_shape(const char* what, const TensorView& t, const Shape& expected) {
  require(t.shape() == expected, "{}: {} is {}, expected {}", kName, what, t.shape(), expected);
}

void check_pass(const AttendPass& pass, const TensorView& q, const TensorView& v) {
  Shape rows;
  for (int axis = 0; axis + 1 < q.rank(); ++axis) rows.push_back(q.dim(axis));
  Shape whole = rows;
  whole.push_back(v.dim(-1));
  check_shape("context", pass.context, whole);
  check_shape("lse", pass.lse, rows);
  check_shape("dcontext", pass.dcontext, whole);
  if (pass.dlse.numel() > 0) check_shape("dlse", pass.dlse, rows);
}

std::vector<TensorView> biases_of(const Mask& mask) {
  std::vector<TensorView> biases;
  for (const MaskTensor& part : mask.tensors) {
    if (part.role == MaskTensor::Role::bias) biases.push_back(part.view);
  }
  return biases;
}

void check_gradient(const char* what, const MutableTensorView& t, const TensorView& of,
                    DType dtype) {
  check_shape(what, t, of.shape());
  require_type(t.dtype() == dtype, "{}: {} is {}, {} is needed", kName, what, name(t.dtype()),
               name(dtype));
}

void check_gradients(const AttendGradientViews& gradients, const TensorView& q, const TensorView& k,
                     const TensorView& v, const Mask& mask) {
  check_gradient("dq", gradients.dq, q, q.dtype());
  check_gradient("dk", gradients.dk, k, q.dtype());
  check_gradient("dv", gradients.dv, v, q.dtype());
  if (gradients.dbias.empty()) return;
  const std::vector<TensorView> biases = biases_of(mask);
  require(gradients.dbias.size() == biases.size(),
          "{}: {} gradients for the {} biases of the mask; pass one for each, or none", kName,
          gradients.dbias.size(), biases.size());
  for (std::size_t n = 0; n < biases.size(); ++n) {
    check_gradient("dbias", gradients.dbias[n], biases[n], q.dtype());
  }
}

}  // namespace

BackwardProblem make_backward_problem(const AttendGradientViews& gradients, const AttendPass& pass,
                                      const TensorView& q, const TensorView& k, const TensorView& v,
                                      const Mask& mask, const AttendOptions& options) {
  BackwardProblem problem{make_problem(q, k, v, mask, options, kName), {}, {}};
  check_types(q, k, pass);
  check_pass(pass, q, v);
  check_gradients(gradients, q, k, v, mask);
  const int rank = 4;
  problem.pass = {with_leading_ones(pass.context, rank), with_leading_ones(pass.lse, rank - 1),
                  with_leading_ones(pass.dcontext, rank),
                  pass.dlse.numel() > 0 ? with_leading_ones(pass.dlse, rank - 1) : TensorView()};
  problem.gradients = {with_leading_ones(gradients.dq, rank),
                       with_leading_ones(gradients.dk, rank),
                       with_leading_ones(gradients.dv, rank),
                       {}};
  for (const MutableTensorView& dbias : gradients.dbias) {
    problem.gradients.dbias.push_back(with_leading_ones(dbias, rank));
  }
  return problem;
}

void run_backward(const BackwardProblem& problem) {
  const UseThreads limit(problem.forward.options.threads);
  choose_engine(problem.forward, {Job::backward}, kName).attend_backward(problem);
}

void attend_backward_into(const AttendGradientViews& gradients, const AttendPass& pass,
                          const TensorView& q, const TensorView& k, const TensorView& v,
                          const Mask& mask, const AttendOptions& options) {
  run_backward(make_backward_problem(gradients, pass, q, k, v, mask, options));
}

AttendGradients attend_backward(const AttendPass& pass, const TensorView& q, const TensorView& k,
                                const TensorView& v, const Mask& mask, const AttendOptions& options,
                                bool with_dbias) {
  AttendGradients gradients{Tensor::empty(q.shape(), q.dtype()),
                            Tensor::empty(k.shape(), q.dtype()),
                            Tensor::empty(v.shape(), q.dtype()),
                            {}};
  AttendGradientViews views{gradients.dq, gradients.dk, gradients.dv, {}};
  if (with_dbias) {
    for (const TensorView& bias : biases_of(mask)) {
      gradients.dbias.push_back(Tensor::empty(bias.shape(), q.dtype()));
      views.dbias.push_back(gradients.dbias.back());
    }
  }
  attend_backward_into(views, pass, q, k, v, mask, options);
  return gradients;
}

}  // namespace cephalo
