// The softmax of a block of scores without a look for its maximum.
//
// The running maximum m is not looked for in every block. A block's sum of exponentials, which is
// needed anyway, tells when m is too far behind: a sum under kHigh means that none of them came
// near an overflow, and by how much all weights of a row are scaled does not matter. Only when a
// sum runs away are the exponentials taken again, with m raised.
#pragma once

#include "cephalo/kernels/cuda/dropout_bits.cuh"
#include "cephalo/kernels/cuda/forward_scores.cuh"

namespace cephalo::kernels::cuda {

// How far sums may run: P is stored in 16 bits, of which fp16 reaches 2^16 and bf16 2^127.
template <typename Element>
struct ForwardLimits;
template <>
struct ForwardLimits<hopper::Bf16> {
  // Of a sum; of m below a score, and of m above it when it is raised, in powers of two: weights of
  // such rows are that small, and still normal numbers next to values from 2^-66 on.
  static constexpr float kHigh = 0x1p60F, kBehind = 16.0F, kAhead = 60.0F;
  // Of m below a score in rows that are watched; 32 scores no higher than kHarmless cannot reach
  // kHigh.
  static constexpr float kFarBehind = 50.0F, kHarmless = 54.0F;
};
template <>
struct ForwardLimits<hopper::F16> {
  static constexpr float kHigh = 0x1p14F, kBehind = 12.0F, kAhead = 0.0F;
  static constexpr float kFarBehind = 12.0F, kHarmless = 8.0F;
};

template <typename C>
struct ForwardSoftmax : ForwardScores<C> {
  using Base = ForwardScores<C>;
  using Base::a, Base::lane, Base::scale, Base::S, Base::O, Base::m, Base::sum;
  using Base::Base;
  using Element = typename C::Element;
  using Limits = ForwardLimits<Element>;
  static constexpr int kVWidth = C::kVWidth, kKeys = C::kKeys;
  // Where a row starts that has seen no key: finite, so that differences are never NaN.
  static constexpr float kLowest = -1e30F;
  // By so many powers of two a number of 1 can shrink.
  static constexpr float kShrinks = 126.0F;

  // Dropout: which weights of this block are dropped, and what was drawn for the next. Draws are
  // made between exponentials: they keep other units busy.
  struct Draws {
    static_assert(kKeys % 64 == 0);
    RowDraws row;
    std::uint32_t dropped[kKeys / 64], drawn[kKeys / 64];
  };
  struct NoDraws {};
  std::conditional_t<C::kDropout, Draws, NoDraws> dropout;

  __device__ void draw_first(const ForwardTile& tile, int key) {
    if constexpr (C::kDropout) {
      const DropoutCounter counter(a.pairs, tile.head, tile.batch, this->rule_of(tile).shift);
      dropout.row.begin(a.pairs, counter, this->query_of_thread(tile, 0), key, lane);
#pragma unroll
      for (std::uint32_t& word : dropout.drawn) word = 0;
#pragma unroll
      for (int g = 0; g < kKeys / 8; ++g) draw(g);
      next_draws();
    }
  }
  __device__ void draw(int g) {
    dropout.drawn[g / 8] |= dropout.row.next(a.pairs) << 4 * (g % 8);
  }
  __device__ void next_draws() {
    if constexpr (C::kDropout) {
#pragma unroll
      for (int word = 0; word < kKeys / 64; ++word) {
        dropout.dropped[word] = RowDraws::exchanged(~dropout.drawn[word], lane);
        dropout.drawn[word] = 0;
      }
      dropout.row.go_back(2 * kKeys);
    }
  }

  // The four lanes that hold a row have one answer; of each lane, for its two rows.
  struct RowBits {
    unsigned bits[2];
    __device__ bool any() const { return (bits[0] | bits[1]) != 0; }
    __device__ bool of(int r, int lane) const { return (bits[r] >> (lane & 28) & 15u) != 0; }
  };
  static __device__ RowBits rows_where(bool first, bool second) {
    return {{__ballot_sync(~0u, first), __ballot_sync(~0u, second)}};
  }
  // The maximum of these rows raised to cover S, that of others left: what one query sees changes
  // no bit of another. Returns by how much the past shrinks.
  // `ahead`: so many powers of two further than that, where it will have to be raised again. A
  // row's first visible block is no sign of that. below: what else is added to a row's scores, if
  // anything is.
  __device__ void raise_maximum(const RowBits& raised, float ahead, float (&shrink)[2],
                                const float* below = nullptr) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -CUDART_INF_F;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        if (i % 2 == r) top = fmaxf(top, fmaxf(S[2 * i], S[2 * i + 1]));
      }
      if (below != nullptr) top = fmaf(top, scale, below[r]);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      if (below == nullptr) top = this->in_units(top);
      constexpr float kPower = C::kBias ? kLn2 : 1.0F;
      const float further = m[r] == kLowest ? 0.0F : ahead * kPower;
      // Not so far that the past, which may be as large as kHigh, shrinks to nothing.
      const float above = fmaxf(top, fminf(top + further, m[r] + kShrinks * kPower));
      const float up = raised.of(r, lane) && above > m[r] ? above : m[r];
      shrink[r] = this->shrunk(m[r], up);
      m[r] = up;
    }
  }
  __device__ void shrink_past(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < kVWidth / 2; ++i) O[i] *= shrink[i / 2 % 2];
  }
  // By how much this thread's scores lie above the maximum.
  __device__ void rise(float (&above)[2]) const {
    float top[2] = {-CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      top[i % 2] = fmaxf(top[i % 2], fmaxf(S[2 * i], S[2 * i + 1]));
    }
    above[0] = this->above(top[0], m[0]);
    above[1] = this->above(top[1], m[1]);
  }
  __device__ RowBits rows_behind() const {  // their maximum is too far below S
    float above[2];
    rise(above);
    return rows_where(above[0] > Limits::kBehind, above[1] > Limits::kBehind);
  }

  __device__ std::uint32_t packed(int i, float low, float high) const {
    if constexpr (C::kDropout) {  // after they were added up
      const std::uint32_t word = dropout.dropped[2 * i / 32];
      low = word >> 2 * i % 32 & 1U ? 0.0F : low;
      high = word >> (2 * i + 1) % 32 & 1U ? 0.0F : high;
    }
    return hopper::pack(Element{}, low, high);
  }
  // P = exp2(scale · S − level) of row r, and the block's share of its sum.
  __device__ void exponentials(int r, const float (&level)[2], std::uint32_t (&P)[kKeys / 4],
                               float& block) {
    block = 0;
#pragma unroll
    for (int i = r; i < kKeys / 4; i += 2) {
      const float low = hopper::exp2_approx(this->above(S[2 * i], level[r]));
      const float high = hopper::exp2_approx(this->above(S[2 * i + 1], level[r]));
      block += low;
      block += high;
      P[i] = packed(i, low, high);
    }
  }
  // The same of both rows, whose chains of sums run beside each other.
  __device__ void exponentials(const float (&level)[2], std::uint32_t (&P)[kKeys / 4],
                               float (&block)[2]) {
    block[0] = block[1] = 0;
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      if constexpr (C::kDropout) {
        if (i % 2 == 0) draw(i / 2);
      }
      const int r = i % 2;
      const float low = hopper::exp2_approx(this->above(S[2 * i], level[r]));
      const float high = hopper::exp2_approx(this->above(S[2 * i + 1], level[r]));
      block[r] += low;
      block[r] += high;
      P[i] = packed(i, low, high);
    }
  }

  __device__ void add_to_sums(const float (&block)[2], const RowBits& raised,
                              const float (&shrink)[2]) {
    if (raised.any()) {
      sum[0] *= shrink[0];
      sum[1] *= shrink[1];
    }
    sum[0] += block[0];
    sum[1] += block[1];
  }

  // A tile's first block, whose maximum is looked for.
  __device__ void first_block(std::uint32_t (&P)[kKeys / 4]) {
    float shrink[2];
    m[0] = m[1] = C::kBias ? -CUDART_INF_F : kLowest;
    raise_maximum({{~0u, ~0u}}, 0.0F, shrink);
    if (C::kBias) {  // lower than kLowest is a maximum as well, but nothing is none
      m[0] = m[0] == -CUDART_INF_F ? kLowest : m[0];
      m[1] = m[1] == -CUDART_INF_F ? kLowest : m[1];
    }
    exponentials(m, P, sum);
  }
  // Of later ones one that hides something looks for its maximum too: few of its scores may be
  // left.
  __device__ RowBits masked_block(std::uint32_t (&P)[kKeys / 4], float (&shrink)[2]) {
    const RowBits raised = rows_behind();
    float block[2];
    if (raised.any()) raise_maximum(raised, Limits::kAhead, shrink);
    exponentials(m, P, block);
    add_to_sums(block, raised, shrink);
    return raised;
  }
  __device__ RowBits clean_block(std::uint32_t (&P)[kKeys / 4], float (&shrink)[2],
                                 const float (&below)[2]) {
    float block[2];
    const auto take = [&](const float(&level)[2]) {
      exponentials(level, P, block);
      return run_away(block);
    };
    const auto take_again = [&](const RowBits& raised, const float(&level)[2]) {
      if (raised.bits[0] != 0) exponentials(0, level, P, block[0]);
      if (raised.bits[1] != 0) exponentials(1, level, P, block[1]);
    };
    RowBits raised;
    if constexpr (C::kAlibi) {
      const float level[2] = {m[0] - below[0], m[1] - below[1]};
      raised = take(level);
      if (raised.any()) {
        raise_maximum(raised, Limits::kAhead, shrink, below);
        take_again(raised, {m[0] - below[0], m[1] - below[1]});
      }
    } else {
      raised = take(m);
      if (raised.any()) {
        if (C::kWatches) {
          watch(raised);
          set_any(__any_sync(~0u, watches_own()));
        }
        raise_maximum(raised, Limits::kAhead, shrink);
        take_again(raised, m);
      }
    }
    add_to_sums(block, raised, shrink);
    return raised;
  }

  // Where scores climb along the keys every block would be taken twice. So a row whose sum has run
  // away is watched from then on: its maximum is looked for first. What the others of its warp do
  // is what they would have done without it.
  static_assert(!C::kWatches || kKeys / 4 <= 32, "kHarmless is for no more scores of a row");
  unsigned watched;  // bits 0 and 1: the thread's rows; 2: any of the warp
  __device__ void watch_nobody() {
    watched = 0;
  }
  __device__ bool is_watched(int r) const {
    return (watched >> r & 1U) != 0;
  }
  __device__ bool watches_own() const {
    return (watched & 3U) != 0;
  }
  __device__ bool watches_any() const {
    return (watched & 4U) != 0;
  }
  __device__ void set_any(bool any) {
    watched = (watched & 3U) | (any ? 4U : 0U);
  }
  // A NaN does not run anywhere: who sees it is listed at the end.
  static __device__ RowBits run_away(const float (&block)[2]) {
    return rows_where(block[0] >= Limits::kHigh, block[1] >= Limits::kHigh);
  }
  // Before their maximum is raised. A row's first visible block is no climb.
  __device__ void watch(const RowBits& rows) {
#pragma unroll
    for (int r = 0; r < 2; ++r) watched |= (rows.of(r, lane) && m[r] != kLowest ? 1U : 0U) << r;
  }
  // Those that are not watched yet, but whose sums will run away.
  __device__ RowBits watch_others(const float (&above)[2]) {
    const bool near[2] = {!is_watched(0) && above[0] > Limits::kHarmless,
                          !is_watched(1) && above[1] > Limits::kHarmless};
    if (!__any_sync(~0u, near[0] || near[1])) return {};
    float block[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      block[i % 2] += hopper::exp2_approx(this->above(S[2 * i], m[i % 2]));
      block[i % 2] += hopper::exp2_approx(this->above(S[2 * i + 1], m[i % 2]));
    }
    const RowBits found = rows_where(!is_watched(0) && block[0] >= Limits::kHigh,
                                     !is_watched(1) && block[1] >= Limits::kHigh);
    watch(found);
    return found;
  }
  __device__ RowBits watched_block(std::uint32_t (&P)[kKeys / 4], float (&shrink)[2]) {
    float above[2], block[2];
    rise(above);
    const RowBits found = watch_others(above);
    RowBits raised = rows_where(is_watched(0) && above[0] > Limits::kFarBehind,
                                is_watched(1) && above[1] > Limits::kFarBehind);
    raised = {{raised.bits[0] | found.bits[0], raised.bits[1] | found.bits[1]}};
    if (raised.any()) raise_maximum(raised, Limits::kAhead, shrink);
    exponentials(m, P, block);
    add_to_sums(block, raised, shrink);
    return raised;
  }
};

}  // namespace cephalo::kernels::cuda
