// One query a sequence against 4096 keys, held against a plain read of the same memory.

#include <algorithm>
#include <memory>
#include <span>

#include "bench/arrays.h"
#include "bench/yardstick_rows.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cli/machine.h"

namespace cephalo::bench {
namespace {

constexpr dim_t kHeads = 12;
constexpr dim_t kKeys = 4096;
constexpr dim_t kDim = 64;

// Keys and values in pages of one size.
struct DecodeArrays {
  Shape rows;
  Tensor q, out;
  cli::PagedMemory keys, values;
  bool ahead = false;  // how reading is faster here

  DecodeArrays(dim_t batch, cli::Pages pages)
      : rows{batch, kHeads, kKeys, kDim},
        q(normal({batch, kHeads, 1, kDim}, 3)),
        out(Tensor::empty({batch, kHeads, 1, kDim})),
        keys(static_cast<std::size_t>(numel(rows)) * sizeof(float), pages),
        values(static_cast<std::size_t>(numel(rows)) * sizeof(float), pages) {
    TorchGenerator generator(4);
    generator.normal({keys.data(), DType::f32, rows});
    generator.normal({values.data(), DType::f32, rows});
    const auto seconds = [&](bool asked) {
      return cli::best_seconds([&] { cli::read_once(parts(), asked); }, 0.2);
    };
    ahead = seconds(true) < seconds(false);
  }

  std::vector<std::span<const float>> parts() const { return {keys.floats(), values.floats()}; }
  void decode() {
    attend_into({out}, q, {keys.data(), rows}, {values.data(), rows}, {},
                {.engine = Engine::fused});
  }
};

Row read_row(dim_t batch, cli::Pages pages) {
  const std::string name = format_text("decode {} x 12 x 64, 4096 keys, {} pages", batch,
                                       pages == cli::Pages::huge ? "huge" : "4 KiB");
  return {name, [=]() -> Comparison {
            const auto a = std::make_shared<DecodeArrays>(batch, pages);
            const auto parts = a->parts();
            const double bytes = cli::bytes_of(parts);
            return {{name, bytes, [a] { a->decode(); }},
                    {"plain read", bytes, [a, parts] { cli::read_once(parts, a->ahead); }},
                    Ratio::speed,
                    "GB/s"};
          }};
}

// The query belongs to the last token, which is appended by itself. clear() keeps the memory of
// the first filling, so that the rows lie as densely as in the other rows.
std::shared_ptr<KVCache> filled_cache(dim_t batch, DType dtype) {
  auto cache = std::make_shared<KVCache>(KVCache::growing({batch, kHeads, kDim}, dtype));
  const Tensor rows = normal({batch, kHeads, kKeys, kDim}, 4);
  cache->append(rows, rows);
  cache->clear();
  for (const auto& [begin, end] : {std::pair<dim_t, dim_t>(0, kKeys - 1), {kKeys - 1, kKeys}}) {
    cache->append(rows.slice(2, begin, end), rows.slice(2, begin, end));
  }
  return cache;
}

Side cache_side(const std::string& name, dim_t batch, DType dtype) {
  const auto cache = filled_cache(batch, dtype);
  const auto q = std::make_shared<Tensor>(normal({batch, kHeads, 1, kDim}, 3));
  const auto out = std::make_shared<Tensor>(Tensor::empty(q->shape()));
  return {name, static_cast<double>(batch), [=] { attend_into({*out}, *q, *cache); }};
}

Row bfloat16_row(dim_t batch) {
  const std::string name = format_text("decode {} x 12 x 64, bfloat16 cache", batch);
  return {name, [=]() -> Comparison {
            return {cache_side(name, batch, DType::bf16),
                    cache_side("float32 cache", batch, DType::f32), Ratio::speed, "tokens/s", 1.0};
          }};
}

}  // namespace

std::vector<Row> decode_rows() {
  std::vector<Row> rows;
  for (const dim_t batch : {1, 16}) {
    for (const auto pages : {cli::Pages::small, cli::Pages::huge}) {
      rows.push_back(read_row(batch, pages));
    }
    rows.push_back(bfloat16_row(batch));
  }
  return rows;
}

}  // namespace cephalo::bench
