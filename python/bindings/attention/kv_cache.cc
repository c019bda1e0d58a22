#include "bindings/attention/kv_cache.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/spellings.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

KVCacheShape shape_of(dim_t batch, dim_t num_kv_heads, dim_t head_dim, dim_t v_dim) {
  return {.batch = batch, .num_kv_heads = num_kv_heads, .head_dim = head_dim, .v_dim = v_dim};
}

std::unique_ptr<Cache> growing(dim_t batch, dim_t num_kv_heads, dim_t head_dim, dim_t v_dim,
                               const nb::object& dtype) {
  return std::make_unique<Cache>(
      KVCache::growing(shape_of(batch, num_kv_heads, head_dim, v_dim), dtype_of(dtype, "KVCache")));
}

std::unique_ptr<Cache> ring(dim_t capacity, dim_t batch, dim_t num_kv_heads, dim_t head_dim,
                            dim_t v_dim, const nb::object& dtype) {
  return std::make_unique<Cache>(KVCache::ring(shape_of(batch, num_kv_heads, head_dim, v_dim),
                                               capacity, dtype_of(dtype, "KVCache")));
}

std::unique_ptr<Cache> paged(dim_t page, dim_t batch, dim_t num_kv_heads, dim_t head_dim,
                             dim_t v_dim, const nb::object& dtype) {
  return std::make_unique<Cache>(KVCache::paged(shape_of(batch, num_kv_heads, head_dim, v_dim),
                                                page, dtype_of(dtype, "KVCache")));
}

void append(Cache& self, const AnyArray& k, const AnyArray& v, const std::vector<dim_t>& counts) {
  const ArrayIn keys(k, "KVCache.append", "k");
  const ArrayIn values(v, "KVCache.append", "v");
  const WithoutGil released;
  const CacheWriting turn(&self);
  self.stored.append(keys, values, counts);
}

void clear(Cache& self, std::optional<dim_t> b) {
  const WithoutGil released;
  const CacheWriting turn(&self);
  if (b) {
    self.stored.clear(*b);
  } else {
    self.stored.clear();
  }
}

// One number or list about the cache, read while nobody changes it.
template <typename Ask>
auto reading(Cache& self, Ask ask) {
  const WithoutGil released;
  const CacheReading turn(&self);
  return ask(self.stored);
}

std::string text_of(Cache& self) {
  return reading(self, [](const KVCache& cache) {
    const char* kind = cache.kind() == KVCache::Kind::growing ? "growing"
                       : cache.kind() == KVCache::Kind::ring  ? "ring"
                                                              : "paged";
    const KVCacheShape& shape = cache.shape();
    return std::string("KVCache.") + kind + "(batch=" + std::to_string(shape.batch) +
           ", num_kv_heads=" + std::to_string(shape.num_kv_heads) +
           ", head_dim=" + std::to_string(shape.head_dim) +
           ", v_dim=" + std::to_string(shape.v_dim) + ", dtype=" + name(cache.dtype()) + "), " +
           std::to_string(cache.tokens()) + " tokens";
  });
}

}  // namespace

void bind_kv_cache(nb::module_& m) {
  nb::class_<Cache>(m, "KVCache",
                    "The keys and values of earlier tokens. Made by growing, ring or paged; "
                    "layer(x, cache=cache) appends to it and attends to all of it.")
      .def_static("growing", &growing, "batch"_a = 1, "num_kv_heads"_a = 1, nb::kw_only(),
                  "head_dim"_a, "v_dim"_a = 0, "dtype"_a = "float32",
                  "Keeps every token, in memory that grows by doubling.")
      .def_static("ring", &ring, "capacity"_a, "batch"_a = 1, "num_kv_heads"_a = 1, nb::kw_only(),
                  "head_dim"_a, "v_dim"_a = 0, "dtype"_a = "float32",
                  "Keeps the last `capacity` tokens of each sequence.")
      .def_static("paged", &paged, "page"_a, "batch"_a = 1, "num_kv_heads"_a = 1, nb::kw_only(),
                  "head_dim"_a, "v_dim"_a = 0, "dtype"_a = "float32",
                  "Keeps every token, in pages of `page` tokens that are reused.")
      .def("append", &append, "k"_a, "v"_a, "counts"_a = std::vector<dim_t>(),
           "k: [batch, num_kv_heads, new_tokens, head_dim]\n"
           "v: [batch, num_kv_heads, new_tokens, v_dim]\n"
           "counts: how many of new_tokens belong to each sequence; empty: all.")
      .def("clear", &clear, "b"_a = nb::none(),
           "Empties sequence b, or all of them; the next token is at position 0 again.")
      .def_prop_ro("lengths",
                   [](Cache& c) { return reading(c, [](auto& s) { return s.lengths(); }); })
      .def_prop_ro("tokens",
                   [](Cache& c) { return reading(c, [](auto& s) { return s.tokens(); }); })
      .def_prop_ro("bytes", [](Cache& c) { return reading(c, [](auto& s) { return s.bytes(); }); })
      .def("__repr__", &text_of);
}

}  // namespace cephalo::python
