#include "cephalo/attention/attend_second.h"

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

constexpr const char* kTangent = "attend_tangent";
constexpr const char* kSecond = "attend_second";
constexpr int kRank = 4;

// Zeros in a shape, all of them one number.
TensorView zeros_like(const TensorView& t) {
  alignas(double) static constexpr std::byte kZero[sizeof(double)] = {};
  Strides strides;
  for (int axis = 0; axis < t.rank(); ++axis) strides.push_back(0);
  return {kZero, t.dtype(), t.shape(), strides};
}

// The tensors of a direction, checked, at rank 4; what stands still is zeros.
AttendDirection whole_direction(const AttendDirection& along, const TensorView& q,
                                const TensorView& k, const TensorView& v, const Mask& mask,
                                const char* function) {
  const auto whole = [&](const char* what, const TensorView& t, const TensorView& of) {
    if (t.numel() == 0) return with_leading_ones(zeros_like(of), kRank);
    check_like(what, t, of, q.dtype(), function);
    common_device(function, {{"q", q}, {what, t}});
    return with_leading_ones(t, kRank);
  };
  AttendDirection result{whole("the direction of q", along.q, q),
                         whole("the direction of k", along.k, k),
                         whole("the direction of v", along.v, v),
                         {}};
  check_like_biases({"the direction of a bias", "directions"}, along.bias, mask,
                    compute_type(q.dtype()), function);
  for (const TensorView& bias : along.bias) result.bias.push_back(with_leading_ones(bias, kRank));
  return result;
}

// q: [batch, num_heads, q_tokens, head_dim], or fewer dimensions, as all of the others
SecondProblem make_second(const AttendPass& pass, const TensorView& q, const TensorView& k,
                          const TensorView& v, const AttendDirection& along, const Mask& mask,
                          const AttendOptions& options, ComesBack comes_back,
                          const AttendTangentViews& tangents, const char* function) {
  SecondProblem problem{{make_problem(q, k, v, mask, options, function), {}, {}}, {}, {}};
  require(problem.backward.forward.mask.has_all_keys(),
          "{}: a rectangle of a larger problem needs all of its keys: place may not cut kv_tokens",
          function);
  check_pass(pass, q, k, v, comes_back, function);
  const bool goes_back = comes_back == ComesBack::gradient;
  problem.backward.pass = with_leading_ones(
      goes_back ? pass : AttendPass{pass.context, pass.lse, zeros_like(pass.context)});
  problem.along = whole_direction(along, q, k, v, mask, function);
  const char* tcontext = goes_back ? "hdcontext" : "tcontext";
  const char* tlse = goes_back ? "hdlse" : "tlse";
  check_like(tcontext, tangents.tcontext, pass.context, q.dtype(), function);
  check_like(tlse, tangents.tlse, pass.lse, compute_type(q.dtype()), function);
  common_device(function, {{"q", q}, {tcontext, tangents.tcontext}, {tlse, tangents.tlse}});
  problem.tangents = {with_leading_ones(tangents.tcontext, kRank),
                      with_leading_ones(tangents.tlse, kRank - 1)};
  return problem;
}

void check_second(const AttendSecondViews& second, const TensorView& q, const TensorView& k,
                  const TensorView& v, const Mask& mask) {
  check_like("hq", second.hq, q, q.dtype(), kSecond);
  check_like("hk", second.hk, k, q.dtype(), kSecond);
  check_like("hv", second.hv, v, q.dtype(), kSecond);
  common_device(kSecond, {{"q", q}, {"hq", second.hq}, {"hk", second.hk}, {"hv", second.hv}});
  check_like_biases({"hbias", "results"}, second.hbias, mask, compute_type(q.dtype()), kSecond);
}

}  // namespace

void attend_tangent_into(const AttendTangentViews& tangents, const AttendPass& pass,
                         const TensorView& q, const TensorView& k, const TensorView& v,
                         const AttendDirection& along, const Mask& mask,
                         const AttendOptions& options) {
  const SecondProblem problem =
      make_second(pass, q, k, v, along, mask, options, ComesBack::nothing, tangents, kTangent);
  const UseThreads limit(options.threads);
  choose_engine(problem.backward.forward, {Job::tangent}, kTangent).attend_tangent(problem);
}

AttendTangents attend_tangent(const AttendPass& pass, const TensorView& q, const TensorView& k,
                              const TensorView& v, const AttendDirection& along, const Mask& mask,
                              const AttendOptions& options) {
  AttendTangents result{Tensor::empty(pass.context.shape(), q.dtype(), q.device()),
                        Tensor::empty(pass.lse.shape(), compute_type(q.dtype()), q.device())};
  attend_tangent_into({result.tcontext, result.tlse}, pass, q, k, v, along, mask, options);
  return result;
}

void attend_second_into(const AttendSecondViews& second, const AttendPass& pass,
                        const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttendDirection& along, const Mask& mask,
                        const AttendOptions& options) {
  SecondProblem problem = make_second(pass, q, k, v, along, mask, options, ComesBack::gradient,
                                      {second.hdcontext, second.hdlse}, kSecond);
  check_second(second, q, k, v, mask);
  problem.backward.gradients = {with_leading_ones(second.hq, kRank),
                                with_leading_ones(second.hk, kRank),
                                with_leading_ones(second.hv, kRank),
                                {}};
  for (const MutableTensorView& hbias : second.hbias) {
    problem.backward.gradients.dbias.push_back(with_leading_ones(hbias, kRank));
  }
  const UseThreads limit(options.threads);
  choose_engine(problem.backward.forward, {Job::second}, kSecond).attend_second(problem);
}

AttendSecond attend_second(const AttendPass& pass, const TensorView& q, const TensorView& k,
                           const TensorView& v, const AttendDirection& along, const Mask& mask,
                           const AttendOptions& options, bool with_hbias) {
  AttendSecond result{Tensor::empty(q.shape(), q.dtype(), q.device()),
                      Tensor::empty(k.shape(), q.dtype(), q.device()),
                      Tensor::empty(v.shape(), q.dtype(), q.device()),
                      {},
                      Tensor::empty(pass.context.shape(), q.dtype(), q.device()),
                      Tensor::empty(pass.lse.shape(), compute_type(q.dtype()), q.device())};
  AttendSecondViews views{result.hq, result.hk, result.hv, result.hdcontext, result.hdlse, {}};
  if (with_hbias) {
    for (const TensorView& bias : biases_of(mask)) {
      result.hbias.push_back(Tensor::empty(bias.shape(), compute_type(q.dtype()), q.device()));
      views.hbias.push_back(result.hbias.back());
    }
  }
  attend_second_into(views, pass, q, k, v, along, mask, options);
  return result;
}

}  // namespace cephalo
