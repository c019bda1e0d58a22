#include "cephalo/attention/attend_backward.h"

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/allocator.h"
#include "cephalo/core/common_device.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

constexpr const char* kName = "attend_backward";

void check_gradients(const AttendGradientViews& gradients, const TensorView& q, const TensorView& k,
                     const TensorView& v, const Mask& mask) {
  check_like("dq", gradients.dq, q, q.dtype(), kName);
  check_like("dk", gradients.dk, k, q.dtype(), kName);
  check_like("dv", gradients.dv, v, q.dtype(), kName);
  common_device(kName,
                {{"q", q}, {"dq", gradients.dq}, {"dk", gradients.dk}, {"dv", gradients.dv}});
  check_like_biases({"dbias", "gradients"}, gradients.dbias, mask, compute_type(q.dtype()), kName);
}

}  // namespace

BackwardProblem make_backward_problem(const AttendGradientViews& gradients, const AttendPass& pass,
                                      const TensorView& q, const TensorView& k, const TensorView& v,
                                      const Mask& mask, const AttendOptions& options) {
  BackwardProblem problem{make_problem(q, k, v, mask, options, kName), {}, {}};
  check_pass(pass, q, k, v, ComesBack::gradient, kName);
  check_gradients(gradients, q, k, v, mask);
  const int rank = 4;
  problem.pass = with_leading_ones(pass);
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
  const UseStream use(problem.forward.options.stream);
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
  const UseStream use(options.stream);
  const Device device = q.device();
  AttendGradients gradients{Tensor::empty(q.shape(), q.dtype(), device),
                            Tensor::empty(k.shape(), q.dtype(), device),
                            Tensor::empty(v.shape(), q.dtype(), device),
                            {}};
  AttendGradientViews views{gradients.dq, gradients.dk, gradients.dv, {}};
  if (with_dbias) {
    for (const TensorView& bias : biases_of(mask)) {
      gradients.dbias.push_back(Tensor::empty(bias.shape(), compute_type(q.dtype()), device));
      views.dbias.push_back(gradients.dbias.back());
    }
  }
  attend_backward_into(views, pass, q, k, v, mask, options);
  return gradients;
}

}  // namespace cephalo
