// One query and one key: may it look, what is the score, does dropout keep the weight.
#pragma once

#include <math_constants.h>

#include "cephalo/kernels/cuda/elements.cuh"

namespace cephalo::kernels::cuda {

struct KeySpan {
  std::int64_t begin, end;
  __device__ bool holds(std::int64_t j) const { return begin <= j && j < end; }
};

// The keys that positions leave to query i, as BoundMask::span says it.
__device__ inline KeySpan span_of(const PositionRule& rule, std::int64_t i) {
  if (i >= rule.q_len) return {0, 0};
  const std::int64_t p = i + rule.shift;
  const std::int64_t far_end = min(max(p + 1, rule.prefix), p + rule.right + 1);
  return {max(std::int64_t{0}, p - rule.left), min(rule.kv_len, far_end)};
}

__device__ inline std::uint64_t seed_of(const Dropout& dropout) {
  return dropout.seed_at != nullptr ? *dropout.seed_at : dropout.seed;
}

__device__ inline void philox(std::uint64_t key, std::uint32_t (&c)[4]) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53U, c[0]);
    const std::uint32_t high1 = __umulhi(0xCD9E8D57U, c[2]);
    const std::uint32_t low0 = 0xD2511F53U * c[0];
    const std::uint32_t low1 = 0xCD9E8D57U * c[2];
    c[0] = high1 ^ c[1] ^ k0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ k1;
    c[3] = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
}

__device__ inline float exponential(float x) {
  return expf(x);
}
__device__ inline double exponential(double x) {
  return exp(x);
}

// The score of a pair. One that is hidden has none: nothing of its key is read.
template <typename Sum>
struct Score {
  bool visible;
  Sum value;   // scaled, capped, with what the mask adds
  Sum capped;  // before that was added
};

// The pairs of one head of one sequence.
template <typename Sum>
struct Pairs {
  const AttendArgs& a;
  std::int64_t b, h;

  __device__ Pairs(const AttendArgs& args, std::int64_t batch, std::int64_t head)
      : a(args), b(batch), h(head) {}

  __device__ const PositionRule& rule() const { return a.mask.rules[b * a.mask.rule_stride]; }
  __device__ std::int64_t kv_head() const { return h / (a.sizes.num_heads / a.sizes.num_kv_heads); }
  __device__ KeySpan span(std::int64_t i) const { return span_of(rule(), i); }

  // What documents and tensors say of a pair inside the span.
  __device__ bool visible_by_content(std::int64_t i, std::int64_t j) const {
    const MaskArgs& m = a.mask;
    if (m.q_documents != nullptr) {
      const std::int32_t id = m.q_documents[b * m.q_documents_stride + i];
      if (id < 0 || id != m.kv_documents[b * m.kv_documents_stride + j]) return false;
    }
    for (int n = 0; n < m.part_count; ++n) {
      const MaskPart& part = m.parts[n];
      const std::int64_t at = offset(part, i, j);
      if (part.role == MaskPart::Role::bias) {
        if (load<double>(part.data, part.dtype, at) == -CUDART_INF) return false;
      } else if (nonzero(part.data, part.dtype, at) != (part.role == MaskPart::Role::keep)) {
        return false;
      }
    }
    return true;
  }

  __device__ Score<Sum> score(std::int64_t i, std::int64_t j) const {
    if (!visible_by_content(i, j)) return {false, 0, 0};
    const Sum product =
        dot<Sum>(row_of(a.q, b, h, i), row_of(a.k, b, kv_head(), j), a.sizes.head_dim);
    Sum capped = static_cast<Sum>(product * a.scale);
    if (a.softcap != 0.0) {
      capped = static_cast<Sum>(a.softcap * tanh(static_cast<double>(capped) / a.softcap));
    }
    return {true, with_added(capped, i, j), capped};
  }

  // What a weight is multiplied by: 0 where dropout drops it.
  __device__ Sum kept(std::int64_t i, std::int64_t j) const {
    if (a.dropout.threshold == 0) return 1;
    const std::int64_t key = j + a.mask.kv_begin;
    std::uint32_t words[4] = {static_cast<std::uint32_t>(key / 4),
                              static_cast<std::uint32_t>(position(i)),
                              a.dropout.head_begin + static_cast<std::uint32_t>(h),
                              a.dropout.batch_begin + static_cast<std::uint32_t>(b)};
    philox(seed_of(a.dropout), words);
    // An index that is not known ahead would move the words to memory.
    const std::uint32_t low = key % 2 == 0 ? words[0] : words[1];
    const std::uint32_t high = key % 2 == 0 ? words[2] : words[3];
    return (key % 4 < 2 ? low : high) >= a.dropout.threshold ? static_cast<Sum>(a.dropout.grown)
                                                             : Sum{0};
  }

 private:
  __device__ std::int64_t position(std::int64_t i) const {
    return i + rule().shift + a.mask.kv_begin;
  }
  __device__ std::int64_t offset(const MaskPart& part, std::int64_t i, std::int64_t j) const {
    return b * part.stride[0] + h * part.stride[1] + i * part.stride[2] + j * part.stride[3];
  }
  // Rounded once, after all of it is added up.
  __device__ Sum with_added(Sum capped, std::int64_t i, std::int64_t j) const {
    const MaskArgs& m = a.mask;
    if (m.part_count == 0 && m.slopes == nullptr) return capped;
    double added = 0.0;
    for (int n = 0; n < m.part_count; ++n) {
      const MaskPart& part = m.parts[n];
      if (part.role != MaskPart::Role::bias) continue;
      added += load<double>(part.data, part.dtype, offset(part, i, j));
    }
    if (m.slopes != nullptr) {
      const std::int64_t distance = position(i) - (j + m.kv_begin);
      added -= m.slopes[h] * static_cast<double>(distance < 0 ? -distance : distance);
    }
    return static_cast<Sum>(static_cast<double>(capped) + added);
  }
};

// ---- a warp ------------------------------------------------------------------------------------
constexpr int kLanes = 32;
constexpr unsigned kAll = ~0u;

template <typename T>
__device__ inline T sum_of_lanes(T x) {
  for (int apart = kLanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kAll, x, apart);
  return x;
}
template <typename T>
__device__ inline T largest_of_lanes(T x) {
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    const T other = __shfl_xor_sync(kAll, x, apart);
    if (other > x) x = other;
  }
  return x;
}

// Of a row's scores: the largest, and the sum of exponentials below it. Nothing visible, or nothing
// above −inf: top −inf and sum 0. A NaN makes the sum NaN.
template <typename Sum>
struct RowSoftmax {
  Sum top;
  double sum;
  __device__ bool empty() const { return sum == 0.0; }
  __device__ double lse() const {
    return empty() ? -CUDART_INF : static_cast<double>(top) + log(sum);
  }
};

// A lane takes every 32nd key of the span.
template <typename Sum>
__device__ inline RowSoftmax<Sum> softmax_of_row(const Pairs<Sum>& pairs, std::int64_t i) {
  Sum top = static_cast<Sum>(-CUDART_INF);
  double sum = 0.0;
  const KeySpan span = pairs.span(i);
  for (std::int64_t j = span.begin + threadIdx.x % kLanes; j < span.end; j += kLanes) {
    const Score<Sum> score = pairs.score(i, j);
    if (!score.visible || score.value == static_cast<Sum>(-CUDART_INF)) continue;
    if (score.value > top) {
      sum = sum * static_cast<double>(exponential(top - score.value)) + 1.0;
      top = score.value;
    } else {
      sum += static_cast<double>(exponential(score.value - top));  // NaN stays NaN
    }
  }
  const Sum highest = largest_of_lanes(top);
  // Without a score above −inf a lane's sum is 0 or NaN, and the difference of tops may be NaN.
  if (top > static_cast<Sum>(-CUDART_INF)) sum *= static_cast<double>(exponential(top - highest));
  return {highest, sum_of_lanes(sum)};
}

}  // namespace cephalo::kernels::cuda
