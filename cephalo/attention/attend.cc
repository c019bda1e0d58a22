#include "cephalo/attention/attend.h"

#include <cmath>
#include <utility>

#include "cephalo/attention/fused.h"
#include "cephalo/attention/reference.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

// t as [batch, heads, tokens, dim], with 1 for what it does not have.
TensorView as_rank_4(const TensorView& t) {
  Shape shape = t.shape();
  while (shape.rank() < 4) {
    Shape longer{1};
    for (const dim_t dim : shape) longer.push_back(dim);
    shape = longer;
  }
  return broadcast_to(t, shape);
}

// Drops the leading dimensions of 1 that as_rank_4 added.
Tensor as_rank(Tensor t, int dropped) {
  if (dropped == 0 || t.rank() <= 1) return t;
  Shape shape;
  for (int axis = dropped; axis < t.rank(); ++axis) shape.push_back(t.shape()[axis]);
  return std::move(t).reshaped(shape);
}

void check_types(const TensorView& q, const TensorView& k, const TensorView& v,
                 const char* function) {
  for (const auto& [name_of, t] : {std::pair{"q", &q}, std::pair{"k", &k}, std::pair{"v", &v}}) {
    require_type(is_floating(t->dtype()), "{}: {} is {}, a floating-point type is needed", function,
                 name_of, name(t->dtype()));
  }
  require_type(k.dtype() == v.dtype(), "{}: k is {} but v is {}; they must be the same", function,
               name(k.dtype()), name(v.dtype()));
  require_type(
      q.dtype() == k.dtype() || (q.dtype() == DType::f32 && is_16_bit_float(k.dtype())),
      "{}: q is {} but k and v are {}; they must be the same, or q float32 over 16-bit k and v",
      function, name(q.dtype()), name(k.dtype()));
}

void check_shapes(const TensorView& q, const TensorView& k, const TensorView& v,
                  const char* function) {
  const int rank = q.rank();
  require(rank >= 2 && rank <= 4,
          "{}: q {} must be [tokens, dim], [heads, tokens, dim] or [batch, heads, tokens, dim]",
          function, q.shape());
  require(k.rank() == rank && v.rank() == rank, "{}: q {}, k {} and v {} must have the same rank",
          function, q.shape(), k.shape(), v.shape());
  if (rank == 4) {
    require(q.dim(0) == k.dim(0) && q.dim(0) == v.dim(0),
            "{}: batch of q ({}), k ({}) and v ({}) differ", function, q.dim(0), k.dim(0),
            v.dim(0));
  }
  if (rank >= 3) {
    const dim_t heads = q.dim(-3);
    const dim_t kv_heads = k.dim(-3);
    require(heads > 0 && kv_heads > 0, "{}: num_heads ({}) and num_kv_heads ({}) must be > 0",
            function, heads, kv_heads);
    require(kv_heads == v.dim(-3), "{}: k has {} heads but v has {}", function, kv_heads,
            v.dim(-3));
    require(heads % kv_heads == 0, "{}: num_heads ({}) must be a multiple of num_kv_heads ({})",
            function, heads, kv_heads);
  }
  require(q.dim(-1) > 0, "{}: head_dim is 0 in q {}", function, q.shape());
  require(q.dim(-1) == k.dim(-1), "{}: head_dim of q ({}) and k ({}) differ: q {}, k {}", function,
          q.dim(-1), k.dim(-1), q.shape(), k.shape());
  require(k.dim(-2) == v.dim(-2), "{}: kv_tokens of k ({}) and v ({}) differ: k {}, v {}", function,
          k.dim(-2), v.dim(-2), k.shape(), v.shape());
}

void check_options(const AttendOptions& options, const char* function) {
  require(options.dropout >= 0.0 && options.dropout < 1.0, "{}: dropout ({}) must be in [0, 1)",
          function, options.dropout);
  require(!options.softcap || (*options.softcap > 0.0 && std::isfinite(*options.softcap)),
          "{}: softcap ({}) must be > 0 and finite", function, options.softcap.value_or(0.0));
  require(!options.scale || std::isfinite(*options.scale), "{}: scale ({}) must be finite",
          function, options.scale.value_or(0.0));
  require(options.dropout == 0.0 || options.dropout_stream == DropoutStream::counter ||
              options.generator != nullptr,
          "{}: the torch dropout streams draw from a generator; pass one, or use the counter "
          "stream",
          function);
}

// The same memory with dimensions of 1 in front.
MutableTensorView with_leading_ones(const MutableTensorView& t, int rank) {
  Shape shape;
  Strides strides;
  for (int axis = t.rank(); axis < rank; ++axis) {
    shape.push_back(1);
    strides.push_back(0);
  }
  for (int axis = 0; axis < t.rank(); ++axis) {
    shape.push_back(t.dim(axis));
    strides.push_back(t.strides()[axis]);
  }
  return {t.mutable_data(), t.dtype(), shape, strides};
}

void check_output(const AttendOutput& output, const TensorView& q, const TensorView& v) {
  Shape rows;
  for (int axis = 0; axis + 1 < q.rank(); ++axis) rows.push_back(q.dim(axis));
  Shape whole = rows;
  whole.push_back(v.dim(-1));
  require(output.context.shape() == whole, "attend_into: context is {}, the result {}",
          output.context.shape(), whole);
  require_type(is_floating(output.context.dtype()), "attend_into: context cannot be {}",
               name(output.context.dtype()));
  if (output.lse.numel() == 0) return;
  const DType steps = q.dtype() == DType::f64 ? DType::f64 : DType::f32;
  require(output.lse.shape() == rows, "attend_into: lse is {}, the result {}", output.lse.shape(),
          rows);
  require_type(output.lse.dtype() == steps, "attend_into: lse is {}, {} is needed",
               name(output.lse.dtype()), name(steps));
}

void run_into(const AttendOutput& output, const AttendProblem& problem) {
  if (problem.options.engine != Engine::reference) {
    attend_fused(problem, output);
    return;
  }
  AttendProblem wanted = problem;
  wanted.options.return_lse = output.lse.numel() > 0;
  const AttendResult result = attend_reference(wanted);
  output.context.copy_from(result.context);
  if (wanted.options.return_lse) output.lse.copy_from(result.lse);
}

AttendResult run_fused(const AttendProblem& problem) {
  AttendResult result;
  const Shape rows{problem.q.dim(0), problem.q.dim(1), problem.q.dim(2)};
  const DType steps = problem.q.dtype() == DType::f64 ? DType::f64 : DType::f32;
  result.context = Tensor::empty({rows[0], rows[1], rows[2], problem.v.dim(3)}, problem.q.dtype());
  if (problem.options.return_lse || problem.options.return_weights) {
    result.lse = Tensor::empty(rows, steps);
  }
  attend_fused(problem, {result.context, result.lse});
  return result;
}

}  // namespace

AttendProblem make_problem(const TensorView& q, const TensorView& k, const TensorView& v,
                           const Mask& mask, const AttendOptions& options, const char* function) {
  check_types(q, k, v, function);
  check_shapes(q, k, v, function);
  check_options(options, function);
  for (const MaskTensor& part : mask.tensors) {
    require_type(part.role != MaskTensor::Role::bias || part.view.dtype() == DType::f32 ||
                     part.view.dtype() == q.dtype(),
                 "{}: bias is {}, float32 or q's {} is needed", function, name(part.view.dtype()),
                 name(q.dtype()));
  }
  const TensorView q4 = as_rank_4(q);
  const TensorView k4 = as_rank_4(k);
  const MaskExtent extent{q4.dim(0), q4.dim(1), q4.dim(2), k4.dim(2)};
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.dim(-1))));
  return {q4, k4, as_rank_4(v), BoundMask(mask, extent, function), scale, options};
}

AttendResult attend(const TensorView& q, const TensorView& k, const TensorView& v, const Mask& mask,
                    const AttendOptions& options) {
  const AttendProblem problem = make_problem(q, k, v, mask, options, "attend");
  const UseThreads limit(options.threads);
  AttendResult result =
      options.engine == Engine::reference ? attend_reference(problem) : run_fused(problem);
  const int added = 4 - q.rank();
  return {as_rank(std::move(result.context), added), as_rank(std::move(result.lse), added),
          as_rank(std::move(result.weights), added), as_rank(std::move(result.scores), added)};
}

void attend_into(const AttendOutput& output, const TensorView& q, const TensorView& k,
                 const TensorView& v, const Mask& mask, const AttendOptions& options) {
  const AttendProblem problem = make_problem(q, k, v, mask, options, "attend_into");
  check_output(output, q, v);
  const UseThreads limit(options.threads);
  const MutableTensorView lse = output.lse.numel() > 0 ? with_leading_ones(output.lse, 3) : output.lse;
  run_into({with_leading_ones(output.context, 4), lse}, problem);
}

}  // namespace cephalo
