#include "cephalo/attention/attend.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/weights.h"
#include "tests/bits/bits.h"
#include "tests/bits/problems.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

constexpr dim_t kBatch = 2, kHeads = 4, kKvHeads = 2;

// What comes in one after the other: a prompt, single tokens, a chunk of which the sequences take
// different shares.
struct Chunk {
  dim_t tokens;
  std::vector<dim_t> counts;
};
const std::vector<Chunk>& chunks() {
  static const std::vector<Chunk> all{{37, {}}, {1, {}}, {1, {1, 0}}, {5, {5, 2}}, {1, {}}};
  return all;
}

struct CacheCase {
  std::string name;
  KVCache cache;
  Mask mask;
  dim_t head_dim;
};

void add_case(Bits& bits, CacheCase& c, DType dtype, Engine engine) {
  Digest digest;
  std::uint64_t seed = 40;
  const AttendOptions options{.return_lse = true, .engine = engine, .threads = bits.threads()};
  for (const Chunk& chunk : chunks()) {
    const Tensor q = normal({kBatch, kHeads, chunk.tokens, c.head_dim}, seed++, dtype);
    const Tensor k = normal({kBatch, kKvHeads, chunk.tokens, c.head_dim}, seed++, dtype);
    const Tensor v = normal({kBatch, kKvHeads, chunk.tokens, c.head_dim}, seed++, dtype);
    c.cache.append(k, v, chunk.counts);
    const AttendResult r = attend(q, c.cache, c.mask, options);
    // Rows past a sequence's count belong to nobody.
    for (dim_t b = 0; b < kBatch; ++b) {
      const dim_t rows = c.cache.appended()[static_cast<std::size_t>(b)];
      digest.add(r.context[b].slice(1, 0, rows)).add(r.lse[b].slice(1, 0, rows));
    }
    if (chunk.counts.empty()) digest.add(weights(q, c.cache, r.lse, c.mask, options));
  }
  bits.add_digest("cache/" + c.name + "/" + cephalo::name(dtype) + "-" +
                      cephalo::name(c.cache.dtype()) + "/" + name(engine) + "/" +
                      std::to_string(c.head_dim),
                  digest);
}

}  // namespace

// float32 queries meet 16-bit caches as well.
void add_cache_bits(Bits& bits) {
  for (const dim_t head_dim : {1, 40, 64, 128}) {
    const KVCacheShape shape{kBatch, kKvHeads, head_dim, 0};
    for (const DType kept : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      const DType dtype = kept == DType::f64 ? DType::f64 : DType::f32;
      for (const Engine engine : {Engine::fused, Engine::reference}) {
        CacheCase cases[] = {
            {"growing", KVCache::growing(shape, kept), causal(), head_dim},
            {"growing+alibi", KVCache::growing(shape, kept), causal() & alibi(alibi_slopes(kHeads)),
             head_dim},
            {"paged", KVCache::paged(shape, 16, kept), causal(), head_dim},
            {"ring", KVCache::ring(shape, 24, kept), causal() & window(15, 0), head_dim}};
        for (CacheCase& c : cases) add_case(bits, c, dtype, engine);
      }
    }
  }
}

}  // namespace cephalo::testing
