// Which weights of a thread's accumulators dropout drops, a bit each. A draw decides for four
// neighbouring keys of a query, so lanes draw once for every four elements and exchange bits, eight
// draws at a time.
#pragma once

#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo::kernels::cuda {

// Philox4x32 from a round on. Bit n: does word n drop its weight?
constexpr std::uint64_t kPhiloxFirst = 0xD2511F53U, kPhiloxSecond = 0xCD9E8D57U;
template <int kRound>
__device__ inline std::uint32_t drawn_from(const PairRules& rules, std::uint32_t c0,
                                           std::uint32_t c1, std::uint32_t c2, std::uint32_t c3) {
#pragma unroll
  for (int round = kRound; round < kPhiloxRounds; ++round) {
    const std::uint64_t x = kPhiloxFirst * c0, y = kPhiloxSecond * c2;
    c0 = static_cast<std::uint32_t>(y >> 32) ^ c1 ^ rules.round_keys[round][0];
    c1 = static_cast<std::uint32_t>(y);
    c2 = static_cast<std::uint32_t>(x >> 32) ^ c3 ^ rules.round_keys[round][1];
    c3 = static_cast<std::uint32_t>(x);
  }
  const auto highest = static_cast<std::uint32_t>(rules.dropout.threshold - 1);  // dropped
  return (c0 <= highest ? 1U : 0U) | (c1 <= highest ? 2U : 0U) | (c2 <= highest ? 4U : 0U) |
         (c3 <= highest ? 8U : 0U);
}

// The counter of query i and keys 4 · fourth .. + 3 of one head of one sequence.
struct DropoutCounter {
  std::uint32_t head, batch;
  std::uint32_t first_fourth, first_position;  // of key 0 and query 0

  __device__ DropoutCounter(const PairRules& rules, int h, int b, int shift)
      : head(rules.dropout.head_begin + static_cast<std::uint32_t>(h)),
        batch(rules.dropout.batch_begin + static_cast<std::uint32_t>(b)),
        first_fourth(static_cast<std::uint32_t>(rules.mask.kv_begin / 4)),
        first_position(static_cast<std::uint32_t>(shift + rules.mask.kv_begin)) {}
  __device__ std::uint32_t fourth(int n) const {
    return first_fourth + static_cast<std::uint32_t>(n);
  }
  __device__ std::uint32_t position(int i) const {
    return first_position + static_cast<std::uint32_t>(i);
  }
};

// Rows are queries: four neighbouring lanes hold rows i and i + 8 of eight keys, lane 2n + odd the
// keys 4n + 2 · odd and the next. It draws for row `odd`, from left to right, one draw for every
// eight keys; what it drew of keys that its neighbour holds, the neighbour needs.
struct RowDraws {
  // What the first two rounds make of the row, of the head and of the sequence, without keys.
  std::uint32_t of_row[2], of_head, of_batch;
  std::uint64_t of_keys;  // the first product of the next draw

  __device__ void begin(const PairRules& rules, const DropoutCounter& counter, int i, int first_key,
                        int lane) {
    const auto& keys = rules.round_keys;
    const std::uint64_t y = kPhiloxSecond * counter.head;
    const std::uint64_t x = kPhiloxFirst * (static_cast<std::uint32_t>(y >> 32) ^
                                            counter.position(i + 8 * (lane % 2)) ^ keys[0][0]);
    of_row[0] = static_cast<std::uint32_t>(x >> 32) ^ keys[1][1];
    of_row[1] = static_cast<std::uint32_t>(x);
    of_head = static_cast<std::uint32_t>(y) ^ keys[1][0];
    of_batch = counter.batch ^ keys[0][1];
    of_keys = kPhiloxFirst * counter.fourth(first_key / 4 + lane / 2 % 2);
  }
  __device__ std::uint32_t next(const PairRules& rules) {
    const std::uint64_t y = kPhiloxSecond * (static_cast<std::uint32_t>(of_keys >> 32) ^ of_batch);
    const std::uint32_t bits = drawn_from<2>(
        rules, static_cast<std::uint32_t>(y >> 32) ^ of_head, static_cast<std::uint32_t>(y),
        of_row[0] ^ static_cast<std::uint32_t>(of_keys), of_row[1]);
    of_keys += 2 * kPhiloxFirst;
    return bits;
  }
  __device__ void go_back(int keys) { of_keys -= kPhiloxFirst * static_cast<unsigned>(keys / 4); }
  // Eight draws of this lane, four bits each -> its own elements: e is bit e % 32.
  __device__ static std::uint32_t exchanged(std::uint32_t drawn, int lane) {
    const bool odd = lane % 2 != 0;
    const std::uint32_t held = odd ? 0xCCCCCCCCU : 0x33333333U;
    const std::uint32_t other = __shfl_xor_sync(~0U, drawn, 1) & held;
    return (drawn & held) | (odd ? other >> 2 : other << 2);
  }
};

// Rows are keys: lanes that are 4 apart hold the same fours of keys, lane w = lane / 4 % 4 the key
// w of each. Of two queries and two rows of keys, 8 apart, each draws for one, w = 2 · row + query;
// then four lanes transpose their 4 x 4 bits.
template <int kQueries>
__device__ inline void dropped_in_column(const PairRules& rules, const DropoutCounter& counter,
                                         int first_query, int key, int lane,
                                         std::uint32_t (&bits)[kQueries / 64]) {
  const int w = lane / 4 % 4;
  const int fourth = (key - w + 8 * (w / 2)) / 4, i = first_query + 2 * (lane % 4) + w % 2;
#pragma unroll
  for (int word = 0; word < kQueries / 64; ++word) {
    std::uint32_t x = 0;
#pragma unroll kQueries == 64 ? 2 : 1  // twice the scores leave registers for one draw
    for (int g = 0; g < 8; ++g) {
      x |= drawn_from<0>(rules, counter.fourth(fourth), counter.position(i + 8 * (8 * word + g)),
                         counter.head, counter.batch)
           << 4 * g;
    }
#pragma unroll
    for (int apart = 1; apart <= 2; ++apart) {
      const bool high = (w & apart) != 0;
      const std::uint32_t even = apart == 1 ? 0x55555555U : 0x33333333U;
      const std::uint32_t other = __shfl_xor_sync(~0U, x, 4 * apart);
      x = high ? (x & ~even) | (other >> apart & even) : (x & even) | (other << apart & ~even);
    }
    bits[word] = x;
  }
}

}  // namespace cephalo::kernels::cuda
