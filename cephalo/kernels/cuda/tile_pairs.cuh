// What a mask says of the pairs that a thread holds of a tile of scores in accumulators: which are
// hidden, what is added, which weights dropout drops. Four neighbouring elements at a time, so that
// what is known of them leaves the registers before the next four. Bit c of a word stands for
// element c of the four.
#pragma once

#include <math_constants.h>

#include "cephalo/kernels/cuda/pairs.cuh"
#include "cephalo/kernels/cuda/rules.cuh"

namespace cephalo::kernels::cuda {

constexpr int kThreadPairs = 32, kThreadGroups = kThreadPairs / 4;
constexpr float kLog2e = 1.44269504F, kLn2 = 0.69314718F;

// Where element c of group g of an accumulator lies from the thread's first one: rows of queries in
// the forward pass, rows of keys in the backward pass.
struct RowsOfQueries {
  static __device__ constexpr int query(int /*g*/, int c) { return 8 * (c / 2); }
  static __device__ constexpr int key(int g, int c) { return 8 * g + c % 2; }
};
struct RowsOfKeys {
  static __device__ constexpr int query(int g, int c) { return 8 * g + c % 2; }
  static __device__ constexpr int key(int /*g*/, int c) { return 8 * (c / 2); }
};

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// tanh.approx misses by 2^-11. Near 0 the difference from 1 has no digits left: a series has.
__device__ inline float tanh_by_exp2(float x) {
  const float square = x * x;
  const float series = x * fmaf(square, fmaf(square, 2.0F / 15.0F, -1.0F / 3.0F), 1.0F);
  const float far = 1.0F - 2.0F * reciprocal(1.0F + hopper::exp2_approx(2.0F * kLog2e * x));
  return fabsf(x) < 0.125F ? series : far;
}

template <typename Layout>
struct TilePairs {
  const PairRules& rules;
  int q_tokens, kv_tokens;
  ShortRule rule;
  int b, h;
  int i0, j0;  // of the thread's first element
  int lane;

  // x: four scores, scaled, which are capped; returns by what their gradients are multiplied.
  __device__ float4 cap(float (&x)[4]) const {
    float slope[4] = {1, 1, 1, 1};
    if (rules.softcap != 0.0F) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float t = tanh_by_exp2(x[c] / rules.softcap);
        x[c] = rules.softcap * t;
        slope[c] = fmaf(-t, t, 1.0F);
      }
    }
    return {slope[0], slope[1], slope[2], slope[3]};
  }

  // Adds what the mask adds to group g, and returns which of it is hidden.
  __device__ std::uint32_t add_and_hide(int g, float (&x)[4]) const {
    std::uint32_t hidden = hidden_by_position(g);
    if (rules.mask.q_documents != nullptr) hidden |= hidden_by_document(g);
    if (rules.mask.slopes != nullptr) add_slope(g, x);
    for (int n = 0; n < rules.mask.part_count; ++n) hidden |= by_part(rules.mask.parts[n], g, x);
    return hidden;
  }

  // Which weights of group g dropout drops; the whole warp calls it.
  __device__ std::uint32_t dropped(int g) const {
    return rules.dropout.threshold != 0 ? drawn(g) : 0;
  }

 private:
  // Indices of pairs past the ends are those of the last: they are hidden, but looked up.
  __device__ int query_in(int g, int c) const {
    return min(i0 + Layout::query(g, c), q_tokens - 1);
  }
  __device__ int key_in(int g, int c) const {
    return min(j0 + Layout::key(g, c), kv_tokens - 1);
  }

  __device__ std::uint32_t hidden_by_position(int g) const {
    std::uint32_t hidden = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int i = i0 + Layout::query(g, c), begin = rule.begin(i);
      const int end = i < rule.q_len ? max(begin, rule.end(i)) : begin;
      const auto at = static_cast<unsigned>(j0 + Layout::key(g, c) - begin);
      hidden |= (at >= static_cast<unsigned>(end - begin) ? 1U : 0U) << c;
    }
    return hidden;
  }
  __device__ std::uint32_t hidden_by_document(int g) const {
    const MaskArgs& m = rules.mask;
    const std::int32_t* q_ids = m.q_documents + b * m.q_documents_stride;
    const std::int32_t* kv_ids = m.kv_documents + b * m.kv_documents_stride;
    std::uint32_t hidden = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const std::int32_t id = q_ids[query_in(g, c)];
      hidden |= (id < 0 || id != kv_ids[key_in(g, c)] ? 1U : 0U) << c;
    }
    return hidden;
  }
  __device__ void add_slope(int g, float (&x)[4]) const {
    const auto slope = static_cast<float>(rules.mask.slopes[h]);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int distance = i0 + Layout::query(g, c) + rule.shift - (j0 + Layout::key(g, c));
      x[c] = fmaf(-slope, fabsf(static_cast<float>(distance)), x[c]);
    }
  }

  template <typename T, typename Each>
  __device__ void for_elements(const MaskPart& part, int g, const Each& each) const {
    const T* first = static_cast<const T*>(part.data) + b * part.stride[0] + h * part.stride[1];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      each(c, first[query_in(g, c) * part.stride[2] + key_in(g, c) * part.stride[3]]);
    }
  }
  template <typename T, typename ToFloat>
  __device__ std::uint32_t by_bias(const MaskPart& part, int g, float (&x)[4],
                                   const ToFloat& to_float) const {
    std::uint32_t hidden = 0;
    for_elements<T>(part, g, [&](int c, T raw) {
      const float added = to_float(raw);
      hidden |= (added == -CUDART_INF_F ? 1U : 0U) << c;
      x[c] += added;
    });
    return hidden;
  }
  template <typename T>
  __device__ std::uint32_t by_flags(const MaskPart& part, int g) const {
    std::uint32_t set = 0;
    for_elements<T>(part, g, [&](int c, T flag) { set |= (flag != 0 ? 1U : 0U) << c; });
    return part.role == MaskPart::Role::keep ? ~set & 15U : set;
  }
  __device__ std::uint32_t by_part(const MaskPart& part, int g, float (&x)[4]) const {
    if (part.role == MaskPart::Role::bias) {
      switch (part.dtype) {
        case DType::f32:
          return by_bias<float>(part, g, x, [](float y) { return y; });
        case DType::f64:
          return by_bias<double>(part, g, x, [](double y) { return static_cast<float>(y); });
        case DType::bf16:
          return by_bias<std::uint16_t>(part, g, x, [](std::uint16_t y) { return from_bf16(y); });
        default:
          return by_bias<std::uint16_t>(part, g, x, [](std::uint16_t y) { return from_f16(y); });
      }
    }
    switch (part.dtype) {
      case DType::i64:
        return by_flags<std::int64_t>(part, g);
      case DType::i32:
        return by_flags<std::int32_t>(part, g);
      case DType::i16:
        return by_flags<std::int16_t>(part, g);
      default:
        return by_flags<std::uint8_t>(part, g);
    }
  }

  __device__ std::uint32_t drawn(int g) const;
  // The four words of keys 4 · fourth .. + 3 and query i: a bit for each that drops its weight.
  __device__ std::uint32_t draw(int fourth, int i) const {
    std::uint32_t words[4] = {static_cast<std::uint32_t>(fourth + rules.mask.kv_begin / 4),
                              static_cast<std::uint32_t>(i + rule.shift + rules.mask.kv_begin),
                              rules.dropout.head_begin + static_cast<std::uint32_t>(h),
                              rules.dropout.batch_begin + static_cast<std::uint32_t>(b)};
    philox(rules.dropout.seed, words);
    std::uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) bits |= (words[n] < rules.dropout.threshold ? 1U : 0U) << n;
    return bits;
  }
};

// Four neighbouring lanes hold two rows of eight keys: two draws a row, one for each lane. Lane
// 2n + odd holds keys 4n + 2 · odd and the next; it draws for row `odd`.
template <>
__device__ inline std::uint32_t TilePairs<RowsOfQueries>::drawn(int g) const {
  const int odd = lane % 2;
  const int fourth = (j0 - 2 * (lane % 4)) / 4 + 2 * g + lane / 2 % 2;
  const std::uint32_t own = draw(fourth, i0 + 8 * odd);
  const std::uint32_t other = __shfl_xor_sync(kAll, own, 1);
  return (own >> 2 * odd & 3U) << 2 * odd | (other >> 2 * odd & 3U) << 2 * (1 - odd);
}

// Four lanes that are 4 apart hold the same fours of keys, lane w the key w of each: of two queries
// and two rows of keys, 8 apart, each draws for one, w = 2 · row + query.
template <>
__device__ inline std::uint32_t TilePairs<RowsOfKeys>::drawn(int g) const {
  const int w = lane / 4 % 4;
  const std::uint32_t own = draw((j0 - w + 8 * (w / 2)) / 4, i0 + 8 * g + w % 2);
  std::uint32_t bits = 0;
#pragma unroll
  for (int apart = 0; apart < 4; ++apart) {
    const std::uint32_t other = __shfl_xor_sync(kAll, own, 4 * apart);
    bits |= (other >> w & 1U) << (w ^ apart);
  }
  return bits;
}

}  // namespace cephalo::kernels::cuda
