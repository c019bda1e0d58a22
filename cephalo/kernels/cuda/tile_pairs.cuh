// What a mask says of the pairs, 32 or fewer, that a thread holds of a tile of scores in
// accumulators: which are hidden, what is added, which weights dropout drops. It is asked for some
// neighbouring elements at a time, from `first` on, as many as registers allow. Bit n of a word
// stands for element first + n.
#pragma once

#include <math_constants.h>

#include "cephalo/kernels/cuda/pairs.cuh"
#include "cephalo/kernels/cuda/rules.cuh"
#include "cephalo/kernels/cuda/softcap.cuh"

namespace cephalo::kernels::cuda {

// Where element e of an accumulator lies from the thread's first one: rows of queries in the
// forward pass, rows of keys in the backward pass.
struct RowsOfQueries {
  static __device__ constexpr int query(int e) { return 8 * (e / 2 % 2); }
  static __device__ constexpr int key(int e) { return 8 * (e / 4) + e % 2; }
};
struct RowsOfKeys {
  static __device__ constexpr int query(int e) { return 8 * (e / 4) + e % 2; }
  static __device__ constexpr int key(int e) { return 8 * (e / 2 % 2); }
};

// A tile of 64 queries and at most 64 keys from (query, key) on, of which the thread's first
// element is (i0, j0).
template <typename Layout>
struct TilePairs {
  const PairRules& rules;
  int q_tokens, kv_tokens;
  ShortRule rule;
  int b, h;
  int query, key;
  int i0, j0;
  int lane;

  // Of the whole tile: does it lie inside of what positions leave, and what documents hide of it.
  enum class ByDocument { nothing, some, all };
  struct Known {
    bool inside;
    ByDocument by_document;
  };
  __device__ Known known() const {
    const bool inside = is_inside();
    if (rules.mask.q_documents == nullptr) return {inside, ByDocument::nothing};
    const DocumentSpans& d = rules.documents;
    const int q_one = d.q_one[b * d.blocks_stride + query / kDocumentQueries];
    const int kv_one =
        key < kv_tokens ? d.kv_one[b * d.kv_blocks_stride + key / kDocumentQueries] : -1;
    if (q_one < 0 || kv_one < 0) return {inside, ByDocument::some};
    return {inside, q_one == kv_one ? ByDocument::nothing : ByDocument::all};
  }

  // Where positions alone hide: which of the thread's pairs.
  template <int kCount>
  __device__ std::uint32_t hidden_alone() const {
    return is_inside() ? 0 : hidden_by_position<kCount>(0);
  }
  // added: what the mask adds; returns which pairs are hidden.
  template <int kCount>
  __device__ std::uint32_t look(int first, const Known& known, float (&added)[kCount]) const {
    std::uint32_t hidden = known.inside ? 0 : hidden_by_position<kCount>(first);
    if (known.by_document != ByDocument::nothing) {
      hidden |= known.by_document == ByDocument::all ? ~0U : hidden_by_document<kCount>(first);
    }
    if (rules.mask.slopes != nullptr) {
      add_slope(first, added);
    } else {
#pragma unroll
      for (int n = 0; n < kCount; ++n) added[n] = 0;
    }
    for (int n = 0; n < rules.mask.part_count; ++n) {
      const MaskPart& part = rules.mask.parts[n];
      hidden |= known.inside && part.stride[3] == 1 ? by_part<true>(part, first, added)
                                                    : by_part<false>(part, first, added);
    }
    return hidden;
  }

  // Which weights of elements 4 g .. 4 g + 3 dropout drops; the whole warp calls it.
  __device__ std::uint32_t dropped(int g) const {
    return rules.dropout.threshold != 0 ? drawn(g) : 0;
  }

 private:
  // Do all queries see all keys, as far as positions go? Ends of spans never fall.
  __device__ bool is_inside() const {
    return query + 64 <= rule.q_len && rule.begin(query + 63) <= key && key + 64 <= rule.end(query);
  }
  // Indices of pairs past the ends are those of the last: they are hidden, but looked up.
  __device__ int query_in(int e) const {
    return min(i0 + Layout::query(e), q_tokens - 1);
  }
  __device__ int key_in(int e) const {
    return min(j0 + Layout::key(e), kv_tokens - 1);
  }

  template <int kCount>
  __device__ std::uint32_t hidden_by_position(int first) const {
    std::uint32_t hidden = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int i = i0 + Layout::query(first + n), begin = rule.begin(i);
      const int end = i < rule.q_len ? max(begin, rule.end(i)) : begin;
      const auto at = static_cast<unsigned>(j0 + Layout::key(first + n) - begin);
      hidden |= (at >= static_cast<unsigned>(end - begin) ? 1U : 0U) << n;
    }
    return hidden;
  }
  template <int kCount>
  __device__ std::uint32_t hidden_by_document(int first) const {
    const MaskArgs& m = rules.mask;
    const std::int32_t* q_ids = m.q_documents + b * m.q_documents_stride;
    const std::int32_t* kv_ids = m.kv_documents + b * m.kv_documents_stride;
    std::uint32_t hidden = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const std::int32_t id = q_ids[query_in(first + n)];
      hidden |= (id < 0 || id != kv_ids[key_in(first + n)] ? 1U : 0U) << n;
    }
    return hidden;
  }
  template <int kCount>
  __device__ void add_slope(int first, float (&added)[kCount]) const {
    const auto slope = static_cast<float>(rules.mask.slopes[h]);
    const auto distance = static_cast<float>(i0 + rule.shift - j0);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int more = Layout::query(first + n) - Layout::key(first + n);
      added[n] = -slope * fabsf(distance + static_cast<float>(more));
    }
  }

  // kNear: all pairs are there, and keys are neighbours in memory. All are read before one is used.
  template <bool kNear, typename T, int kCount>
  __device__ void read(const MaskPart& part, int first, T (&values)[kCount]) const {
    const T* at = static_cast<const T*>(part.data) + b * part.stride[0] + h * part.stride[1];
    if (kNear) at += i0 * part.stride[2] + j0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int e = first + n;
      values[n] = kNear ? at[Layout::query(e) * part.stride[2] + Layout::key(e)]
                        : at[query_in(e) * part.stride[2] + key_in(e) * part.stride[3]];
    }
  }
  template <bool kNear, typename T, int kCount, typename ToFloat>
  __device__ std::uint32_t by_bias(const MaskPart& part, int first, float (&added)[kCount],
                                   const ToFloat& to_float) const {
    T values[kCount];
    read<kNear>(part, first, values);
    std::uint32_t hidden = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const float x = to_float(values[n]);
      hidden |= (x == -CUDART_INF_F ? 1U : 0U) << n;
      added[n] += x;
    }
    return hidden;
  }
  template <bool kNear, typename T, int kCount>
  __device__ std::uint32_t by_flags(const MaskPart& part, int first) const {
    T values[kCount];
    read<kNear>(part, first, values);
    std::uint32_t set = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) set |= (values[n] != 0 ? 1U : 0U) << n;
    return part.role == MaskPart::Role::keep ? ~set : set;
  }
  template <bool kNear, int kCount>
  __device__ std::uint32_t by_part(const MaskPart& part, int first, float (&added)[kCount]) const {
    if (part.role == MaskPart::Role::bias) {
      switch (part.dtype) {
        case DType::f32:
          return by_bias<kNear, float>(part, first, added, [](float x) { return x; });
        case DType::bf16:
          return by_bias<kNear, std::uint16_t>(part, first, added,
                                               [](std::uint16_t x) { return from_bf16(x); });
        default:
          return by_bias<kNear, std::uint16_t>(part, first, added,
                                               [](std::uint16_t x) { return from_f16(x); });
      }
    }
    switch (part.dtype) {
      case DType::i64:
        return by_flags<false, std::int64_t, kCount>(part, first);
      case DType::i32:
        return by_flags<false, std::int32_t, kCount>(part, first);
      case DType::i16:
        return by_flags<false, std::int16_t, kCount>(part, first);
      default:
        return by_flags<kNear, std::uint8_t, kCount>(part, first);
    }
  }

  __device__ std::uint32_t drawn(int g) const;
  // The four words of keys 4 · fourth .. + 3 and query i: a bit for each that drops its weight.
  __device__ std::uint32_t draw(int fourth, int i) const {
    std::uint32_t words[4] = {static_cast<std::uint32_t>(fourth + rules.mask.kv_begin / 4),
                              static_cast<std::uint32_t>(i + rule.shift + rules.mask.kv_begin),
                              rules.dropout.head_begin + static_cast<std::uint32_t>(h),
                              rules.dropout.batch_begin + static_cast<std::uint32_t>(b)};
    philox(seed_of(rules.dropout), words);
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
