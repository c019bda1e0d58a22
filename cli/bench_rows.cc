#include "cli/bench_rows.h"

#include <algorithm>
#include <span>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/linear/packed_linear.h"
#include "cli/machine.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kHeadDim = 64;

// One figure for each thread count.
BenchLine measure(const BenchSettings& settings, const std::string& name, const std::string& unit,
                  const std::function<BenchValue()>& figure) {
  BenchLine line{name, unit, {}};
  for (const int count : settings.threads) {
    show_status(format_text("{}, {} threads", name, count));
    set_threads(count);
    line.values.push_back(figure());
  }
  return line;
}

constexpr int kTurns = 5;

// By turns with the limit: a neighbour that takes a core must not slow down one of them alone.
BenchLine measure_flops(const BenchSettings& settings, const std::string& name, double flops,
                        const std::function<void()>& work) {
  return measure(settings, name, "GF", [&]() -> BenchValue {
    double best = 1e9;
    double limit = 0.0;
    for (int turn = 0; turn < kTurns; ++turn) {
      limit = std::max(limit, fma_rate(settings.budget() / 50));
      best = std::min(best, best_seconds(work, settings.budget() / kTurns));
    }
    return {flops / best / 1e9, 0.0, limit / 1e9};
  });
}

Tensor normal(const Shape& shape) {
  TorchGenerator generator(123);
  return generator.randn(shape);
}

struct Attention {
  Tensor q, k, v, out;
  explicit Attention(const Shape& shape)
      : q(normal(shape)), k(normal(shape)), v(normal(shape)), out(Tensor::empty(shape)) {}
};

BenchLine measure_attention(const BenchSettings& settings, const Shape& shape, const Mask& mask) {
  Attention a(shape);
  const std::string words = mask.empty() ? "full" : mask.to_string();
  return measure_flops(settings, format_text("attention {} {}", to_tuple_string(shape), words),
                       plan(a.q, a.k, a.v, mask).flops,
                       [&] { attend_into({a.out}, a.q, a.k, a.v, mask); });
}

// Five products where the forward pass has two.
BenchLine measure_backward(const BenchSettings& settings, const Shape& shape, const Mask& mask) {
  Attention a(shape);
  Tensor lse = Tensor::empty({shape[0], shape[1], shape[2]});
  attend_into({a.out, lse}, a.q, a.k, a.v, mask);
  const Tensor dcontext = normal(shape);
  Attention gradients(shape);
  return measure_flops(settings,
                       format_text("backward {} {}", to_tuple_string(shape), mask.to_string()),
                       2.5 * plan(a.q, a.k, a.v, mask).flops, [&] {
                         attend_backward_into({gradients.q, gradients.k, gradients.v},
                                              {a.out, lse, dcontext}, a.q, a.k, a.v, mask);
                       });
}

BenchLine measure_gemm(const BenchSettings& settings, dim_t rows, dim_t d_in, dim_t width) {
  const Tensor x = normal({rows, d_in});
  const PackedLinear linear(normal({width, d_in}), {}, DType::f32);
  Tensor out = Tensor::empty({rows, width});
  return measure_flops(settings, format_text("GEMM {} x {} x {}", rows, d_in, width),
                       2.0 * static_cast<double>(rows * d_in * width),
                       [&] { linear.apply(x, out); });
}

BenchLine measure_layer(const BenchSettings& settings, dim_t batch, dim_t tokens, dim_t width) {
  const dim_t num_heads = width / kHeadDim;
  MultiHeadAttention layer({.d_in = width, .d_out = width, .num_heads = num_heads, .seed = 123});
  layer.eval();
  layer.prepare();
  const Tensor x = normal({batch, tokens, width});
  const Tensor heads = Tensor::empty({batch, num_heads, tokens, kHeadDim});
  const double flops = 8.0 * static_cast<double>(batch * tokens * width * width) +
                       plan(heads, heads, heads, causal()).flops;
  return measure_flops(
      settings, format_text("layer {} {} heads causal", to_tuple_string(x.shape()), num_heads),
      flops, [&] { layer(x); });
}

// Keys and values of `tokens` tokens, the last one appended alone: its query is to be answered.
// Growing at once leaves no room to spare, so the cache can be read as two arrays.
KVCache filled_cache(dim_t batch, dim_t num_heads, dim_t tokens, DType dtype) {
  KVCache cache = KVCache::growing({batch, num_heads, kHeadDim}, dtype);
  const Tensor rows = normal({batch, num_heads, tokens, kHeadDim});
  cache.append(rows, rows);
  cache.clear();
  const TensorView before = rows.slice(2, 0, tokens - 1);
  const TensorView last = rows.slice(2, tokens - 1, tokens);
  cache.append(before, before);
  cache.append(last, last);
  return cache;
}

std::span<const float> floats_of(const TensorView& t) {
  return {static_cast<const float*>(t.data()), t.bytes() / sizeof(float)};
}

// One query a sequence against all its keys, by turns with a plain read of the same memory.
BenchLine measure_decode(const BenchSettings& settings, dim_t batch, dim_t tokens, DType dtype) {
  constexpr dim_t kHeads = 12;
  const KVCache cache = filled_cache(batch, kHeads, tokens, dtype);
  const std::vector<std::span<const float>> parts = {floats_of(*cache.dense_keys()),
                                                     floats_of(*cache.dense_values())};
  const Tensor q = normal({batch, kHeads, 1, kHeadDim});
  Tensor out = Tensor::empty(q.shape());
  const auto work = [&] { attend_into({out}, q, cache); };
  const std::string name =
      format_text("decode {} x {} keys, {}", batch, tokens, cephalo::name(dtype));
  return measure(settings, name, "GB/s", [&]() -> BenchValue {
    double best = 1e9;
    double read = 0.0;
    for (int turn = 0; turn < kTurns; ++turn) {
      best = std::min(best, best_seconds(work, settings.budget() / kTurns));
      read = std::max(read, read_rate(parts, settings.budget() / kTurns));
    }
    const double rate = bytes_of(parts) / best;
    return {rate / 1e9, rate / read};
  });
}

}  // namespace

BenchLine bench_fma(const BenchSettings& settings, const std::string& name) {
  return measure(settings, name, "GF",
                 [&]() -> BenchValue { return {fma_rate(settings.budget()) / 1e9}; });
}

BenchSection bench_memory(const BenchSettings& settings) {
  constexpr std::size_t kKiB = 1024;
  constexpr std::size_t kMiB = 1024 * kKiB;
  BenchSection section{"reading", {}};
  for (const auto& [name, bytes] :
       {std::pair("L2, 512 KiB", 512 * kKiB), std::pair("L3, 8 MiB", 8 * kMiB)}) {
    const PagedMemory memory(bytes, Pages::huge);
    section.lines.push_back(measure(settings, name, "GB/s", [&]() -> BenchValue {
      return {cached_read_rate(memory.floats(), settings.budget()) / 1e9};
    }));
  }
  const std::size_t mib = settings.quick ? 64 : 512;
  for (const auto& [name, pages] :
       {std::pair("4 KiB pages", Pages::small), std::pair("huge pages", Pages::huge)}) {
    const PagedMemory memory(mib * kMiB, pages);
    section.lines.push_back(measure(
        settings, format_text("memory, {} MiB, {}", mib, name), "GB/s",
        [&]() -> BenchValue { return {read_rate({memory.floats()}, settings.budget()) / 1e9}; }));
  }
  return section;
}

BenchSection bench_kernels(const BenchSettings& settings) {
  BenchSection section{"kernels, and their share of the FMA peak", {}};
  const auto attention = [&](const Shape& shape, const Mask& mask) {
    section.lines.push_back(measure_attention(settings, shape, mask));
  };
  const auto backward = [&](const Shape& shape, const Mask& mask) {
    section.lines.push_back(measure_backward(settings, shape, mask));
  };
  const auto gemm = [&](dim_t rows, dim_t d_in, dim_t width) {
    section.lines.push_back(measure_gemm(settings, rows, d_in, width));
  };
  if (settings.quick) {
    attention({1, 4, 256, 64}, causal());
    attention({1, 4, 256, 64}, {});
    backward({1, 4, 256, 64}, causal());
    gemm(256, 256, 256);
    section.lines.push_back(measure_layer(settings, 1, 128, 128));
    return section;
  }
  attention({4, 12, 1024, 64}, causal());
  attention({4, 12, 1024, 64}, {});
  attention({1, 12, 4096, 64}, causal());
  attention({1, 32, 2048, 128}, causal());
  attention({1, 12, 16384, 64}, window(255, 0));
  backward({4, 12, 1024, 64}, causal());
  backward({1, 12, 4096, 64}, causal());
  gemm(4096, 768, 768);
  gemm(4096, 768, 2304);
  gemm(4096, 768, 3072);
  gemm(64, 768, 2304);
  section.lines.push_back(measure_layer(settings, 4, 1024, 768));
  return section;
}

BenchSection bench_decode(const BenchSettings& settings) {
  BenchSection section{"decoding, and its share of a plain read of the same bytes", {}};
  const dim_t tokens = settings.quick ? 512 : 4096;
  for (const dim_t batch : {1, settings.quick ? 4 : 16}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      section.lines.push_back(measure_decode(settings, batch, tokens, dtype));
    }
  }
  return section;
}

BenchSection bench_calls(const BenchSettings& settings) {
  BenchSection section{"calls", {}};
  Attention a({1, 12, 16, kHeadDim});
  const Mask mask = causal();
  const auto work = [&] { attend_into({a.out}, a.q, a.k, a.v, mask); };
  section.lines.push_back(
      measure(settings, "attention (1, 12, 16, 64) causal()", "µs",
              [&]() -> BenchValue { return {1e6 * best_seconds(work, settings.budget())}; }));
  return section;
}

}  // namespace cephalo::cli
