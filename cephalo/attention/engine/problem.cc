#include "cephalo/attention/engine/problem.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/rows.h"

namespace cephalo {
namespace {

// The address of what nobody reads: a view of a shape alone.
alignas(double) constexpr std::byte kNowhere{};

// Shape and strides of t, with dimensions of 1 in front.
std::pair<Shape, Strides> padded(const TensorView& t, int rank) {
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
  return {shape, strides};
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
  common_device(function, {{"q", q}, {"k", k}, {"v", v}});
  require_engine_on(function, q);
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

void check_options(const TensorView& q, const AttendOptions& options, const char* function) {
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
  require(options.dropout == 0.0 || options.dropout_stream == DropoutStream::counter ||
              options.place == Place{},
          "{}: the torch dropout streams draw for a whole problem in its memory order; a rectangle "
          "of one needs the counter stream",
          function);
  require(options.device_seed == nullptr || !q.device().is_host(),
          "{}: device_seed is in a GPU's memory, q in the host's", function);
}

void check_bias_types(const Mask& mask, DType dtype, const char* function) {
  for (const MaskTensor& part : mask.tensors) {
    require_type(part.role != MaskTensor::Role::bias || part.view.dtype() == DType::f32 ||
                     part.view.dtype() == dtype,
                 "{}: bias is {}, float32 or q's {} is needed", function, name(part.view.dtype()),
                 name(dtype));
  }
}

double scale_of(const TensorView& q, const AttendOptions& options) {
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.dim(-1))));
}

// A view that has the shape and type of a cache's keys or values; its rows lie elsewhere.
TensorView shape_of(const KVCache& cache, dim_t tokens, dim_t dim) {
  const KVCacheShape& shape = cache.shape();
  return shape_alone({shape.batch, shape.num_kv_heads, tokens, dim}, cache.dtype());
}

dim_t longest(const std::vector<dim_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

CacheTokens tokens_now(const KVCache& cache) {
  CacheTokens now{cache.lengths(), cache.appended(), {}};
  for (dim_t b = 0; b < cache.shape().batch; ++b) now.first_kept.push_back(cache.first_kept(b));
  return now;
}

// Lengths of a cache's sequences as the mask of the whole batch has them: 0 for sequences outside
// of the rectangle, which nobody asks about.
Mask lengths_in_whole(const CacheTokens& tokens, dim_t begin, dim_t batch) {
  std::vector<dim_t> kv(static_cast<std::size_t>(std::max<dim_t>(batch, 1)));
  std::vector<dim_t> q = kv;
  std::copy(tokens.lengths.begin(), tokens.lengths.end(), kv.begin() + begin);
  std::copy(tokens.appended.begin(), tokens.appended.end(), q.begin() + begin);
  return lengths(std::move(kv), std::move(q));
}

// A ring keeps what a window needs; a query that may look further back is refused.
void check_evicted(const AttendProblem& problem, const CacheTokens& tokens, const char* function) {
  for (dim_t b = 0; b < problem.q.dim(0); ++b) {
    const auto at = static_cast<std::size_t>(b);
    const dim_t kept = tokens.first_kept[at];
    const auto [begin, end] = problem.mask.key_range(b, 0, problem.q.dim(2));
    if (begin >= end || begin >= kept) continue;
    const dim_t capacity = problem.cache->capacity();
    fail(Error::Kind::value,
         "{}: the query at position {} of sequence {} may look at key {}, which the ring of {} "
         "tokens has evicted (it holds {} to {}); add window({}, 0) or a larger ring",
         function, problem.mask.position(b, 0), b, begin, capacity, kept, tokens.lengths[at] - 1,
         capacity);
  }
}

// Rows of a cache. Keys that were evicted are hidden from every query: any row stands for them.
template <typename Ask>
void cache_rows(const KVCache& cache, const RowPlace& place, const void** rows, const Ask& ask) {
  const dim_t evicted = std::clamp<dim_t>(cache.first_kept(place.b) - place.j, 0, place.count - 1);
  ask(place.j + evicted, place.j + place.count, rows + evicted);
  for (dim_t k = 0; k < evicted; ++k) rows[k] = rows[evicted];
}

}  // namespace

AttendProblem make_problem(const TensorView& q, const KVCache& cache, const CacheTokens& tokens,
                           const Mask& mask, const AttendOptions& options, const char* function) {
  const dim_t kv_tokens = longest(tokens.lengths);
  const TensorView k = shape_of(cache, kv_tokens, cache.shape().head_dim);
  const TensorView v = shape_of(cache, kv_tokens, cache.shape().v_dim);
  require(q.rank() == 4, "{}: q {} must be [batch, heads, tokens, dim] to meet a cache", function,
          q.shape());
  check_types(q, k, v, function);
  check_shapes(q, k, v, function);
  check_options(q, options, function);
  check_bias_types(mask, q.dtype(), function);
  require(!mask.lengths, "{}: the cache knows its lengths; leave lengths(...) out of the mask",
          function);
  require(q.dim(2) >= longest(tokens.appended), "{}: q has {} tokens, the last append brought {}",
          function, q.dim(2), longest(tokens.appended));
  const Place& place = options.place;
  require(place.q_tokens == Place::Axis{} && place.kv_tokens == Place::Axis{},
          "{}: a cache holds every key of its sequences; place may cut batch and heads alone",
          function);
  const MaskExtent extent{q.dim(0), q.dim(1), q.dim(2), kv_tokens};
  const dim_t batch = whole_of(place, extent, function).batch;
  auto joined =
      std::make_shared<const Mask>(mask & lengths_in_whole(tokens, place.batch.begin, batch));
  BoundMask bound(*joined, extent, function, place);
  AttendProblem problem{q, k, v, std::move(bound), scale_of(q, options), options, &cache, joined};
  check_evicted(problem, tokens, function);
  return problem;
}

TensorView shape_alone(const Shape& shape, DType dtype) {
  return {&kNowhere, dtype, shape};
}

TensorView with_leading_ones(const TensorView& t, int rank) {
  const auto [shape, strides] = padded(t, rank);
  return {t.data(), t.dtype(), shape, strides, t.device()};
}

MutableTensorView with_leading_ones(const MutableTensorView& t, int rank) {
  const auto [shape, strides] = padded(t, rank);
  return {t.mutable_data(), t.dtype(), shape, strides, t.device()};
}

Tensor without_leading_ones(Tensor t, int dropped) {
  if (dropped == 0 || t.rank() <= 1) return t;
  Shape shape;
  for (int axis = dropped; axis < t.rank(); ++axis) shape.push_back(t.shape()[axis]);
  return std::move(t).reshaped(shape);
}

AttendProblem make_problem(const TensorView& q, const TensorView& k, const TensorView& v,
                           const Mask& mask, const AttendOptions& options, const char* function) {
  check_types(q, k, v, function);
  check_shapes(q, k, v, function);
  check_options(q, options, function);
  check_bias_types(mask, q.dtype(), function);
  const TensorView q4 = with_leading_ones(q, 4);
  const TensorView k4 = with_leading_ones(k, 4);
  const MaskExtent extent{q4.dim(0), q4.dim(1), q4.dim(2), k4.dim(2)};
  return {q4,
          k4,
          with_leading_ones(v, 4),
          BoundMask(mask, extent, function, options.place, q.device()),
          scale_of(q, options),
          options,
          nullptr,
          nullptr};
}

CacheTokens tokens_after(const KVCache& cache, dim_t new_tokens, const std::vector<dim_t>& counts,
                         const char* function) {
  const dim_t batch = cache.shape().batch;
  require(counts.empty() || static_cast<dim_t>(counts.size()) == batch,
          "{}: counts has {} numbers for a batch of {}", function, counts.size(), batch);
  CacheTokens after;
  for (dim_t b = 0; b < batch; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const dim_t count = counts.empty() ? new_tokens : counts[at];
    require(0 <= count && count <= new_tokens, "{}: counts[{}] ({}) must be in [0, {}] (tokens)",
            function, b, count, new_tokens);
    const dim_t before = cache.lengths()[at];
    after.lengths.push_back(checked_add(before, count));
    after.appended.push_back(count);
    after.first_kept.push_back(
        cache.kind() == KVCache::Kind::ring ? std::max<dim_t>(0, before - cache.capacity()) : 0);
  }
  return after;
}

AttendProblem make_problem(const TensorView& q, const KVCache& cache, const Mask& mask,
                           const AttendOptions& options, const char* function) {
  return make_problem(q, cache, tokens_now(cache), mask, options, function);
}

void AttendProblem::key_rows(const RowPlace& place, const void** rows) const {
  if (cache == nullptr) {
    return row_addresses(k, place.b, place.kv_head, place.j, place.count, rows);
  }
  cache_rows(*cache, place, rows, [&](dim_t begin, dim_t end, const void** to) {
    cache->key_rows(place.b, place.kv_head, begin, end, to);
  });
}

void AttendProblem::value_rows(const RowPlace& place, const void** rows) const {
  if (cache == nullptr) {
    return row_addresses(v, place.b, place.kv_head, place.j, place.count, rows);
  }
  cache_rows(*cache, place, rows, [&](dim_t begin, dim_t end, const void** to) {
    cache->value_rows(place.b, place.kv_head, begin, end, to);
  });
}

}  // namespace cephalo
