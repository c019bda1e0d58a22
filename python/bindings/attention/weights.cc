#include "cephalo/attention/weights.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

AnyArray weights_python(const AnyArray& q, const AnyArray& k, const AnyArray& lse,
                        const AnyArray& mask, std::optional<double> scale,
                        std::optional<double> softcap, double dropout, std::uint64_t seed,
                        std::vector<dim_t> heads, std::vector<dim_t> rows, bool dropped,
                        std::optional<int> threads) {
  const AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  const ArrayIn queries(q, "weights", "q");
  Cache* cache = nb::isinstance<Cache>(k) ? nb::cast<Cache*>(k) : nullptr;
  const ArrayIn keys = cache == nullptr ? ArrayIn(k, "weights", "k") : ArrayIn();
  const ArrayIn sums(lse, "weights", "lse");
  const Mask& parts = mask_of(mask, "weights");
  const WeightsSelection selection{std::move(heads), std::move(rows), dropped};
  Tensor chosen;
  {
    const WithoutGil released;
    const CacheReading reading(cache);
    chosen = cache == nullptr ? weights(queries, keys, sums, parts, options, selection)
                              : weights(queries, cache->stored, sums, parts, options, selection);
  }
  return to_python(std::move(chosen), queries.kind());
}

AnyArray pooled_python(const AnyArray& q, const AnyArray& k, const AnyArray& lse, dim_t cells,
                       dim_t head, dim_t batch, const AnyArray& mask, std::optional<double> scale,
                       std::optional<double> softcap, std::optional<int> threads) {
  const AttendOptions options = attend_options(scale, softcap, 0.0, 0, threads);
  const ArrayIn queries(q, "pooled_weights", "q");
  const ArrayIn keys(k, "pooled_weights", "k");
  const ArrayIn sums(lse, "pooled_weights", "lse");
  const Mask& parts = mask_of(mask, "pooled_weights");
  PooledWeights pooled;
  {
    const WithoutGil released;
    pooled = pooled_weights(queries, keys, sums, cells, head, batch, parts, options);
  }
  return nb::borrow<AnyArray>(
      ResultType("PooledWeights")(to_python(std::move(pooled.largest), queries.kind()),
                                  to_python(std::move(pooled.mean), queries.kind())));
}

AnyArray row_sums_python(const AnyArray& q, const AnyArray& k, const AnyArray& lse,
                         const std::optional<AnyArray>& tokens, const AnyArray& mask,
                         std::optional<double> scale, std::optional<double> softcap,
                         std::optional<int> threads) {
  const AttendOptions options = attend_options(scale, softcap, 0.0, 0, threads);
  const ArrayIn queries(q, "row_sums", "q");
  const ArrayIn keys(k, "row_sums", "k");
  const ArrayIn sums(lse, "row_sums", "lse");
  const ArrayIn ids = tokens ? ArrayIn(*tokens, "row_sums", "tokens") : ArrayIn();
  const Mask& parts = mask_of(mask, "row_sums");
  Tensor rows;
  {
    const WithoutGil released;
    rows = row_sums(queries, keys, sums, ids, parts, options);
  }
  return to_python(std::move(rows), queries.kind());
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.def("weights", &weights_python, "q"_a, "k"_a, "lse"_a, "mask"_a = nb::none(),
        "scale"_a = nb::none(), "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0,
        "heads"_a = std::vector<dim_t>(), "rows"_a = std::vector<dim_t>(), "dropped"_a = false,
        "threads"_a = nb::none(),
        "The weights that attend used, from q, k (or a KVCache) and the lse that it returned:\n"
        "[batch, heads, rows, kv_tokens]. heads, rows: the ones you want; empty: all. dropped: "
        "after\n"
        "dropout. The other arguments as passed to attend.");
  m.def(
      "pooled_weights", &pooled_python, "q"_a, "k"_a, "lse"_a, "cells"_a, "head"_a, "batch"_a = 0,
      "mask"_a = nb::none(), "scale"_a = nb::none(), "softcap"_a = nb::none(),
      "threads"_a = nb::none(),
      "A small map of one head: (largest, mean), each [cells, cells], without storing the matrix.");
  m.def("row_sums", &row_sums_python, "q"_a, "k"_a, "lse"_a, "tokens"_a = nb::none(),
        "mask"_a = nb::none(), "scale"_a = nb::none(), "softcap"_a = nb::none(),
        "threads"_a = nb::none(),
        "For every query row: entropy, largest, distance, previous, first, current, visible,\n"
        "duplicate, has_duplicate, induction, has_induction (cephalo.ROW_SUMS).\n"
        "tokens: int64 [kv_tokens]. -> float64 [batch, num_heads, q_tokens, 11]");
}

}  // namespace cephalo::python
