#include "cephalo/attention/attend.h"

#include <cmath>
#include <utility>

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
  AttendResult result;
  switch (options.engine) {
    case Engine::automatic:
    case Engine::reference:
    case Engine::fused:
      result = attend_reference(problem);
  }
  const int added = 4 - q.rank();
  return {as_rank(std::move(result.context), added), as_rank(std::move(result.lse), added),
          as_rank(std::move(result.weights), added), as_rank(std::move(result.scores), added)};
}

}  // namespace cephalo
