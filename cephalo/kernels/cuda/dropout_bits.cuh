// Which weights of a thread's accumulators dropout drops, a bit each. A draw decides for four
// neighbouring keys of a query, so lanes draw once for every four elements and exchange bits, eight
// draws at a time.
#pragma once

#include "cephalo/kernels/cuda/hopper.cuh"
#include "cephalo/kernels/cuda/hopper.h"

namespace cephalo::kernels::cuda {

constexpr std::uint64_t kPhiloxFirst = 0xD2511F53U, kPhiloxSecond = 0xCD9E8D57U;
__device__ inline std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
__device__ inline std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

// Where a draw's keys of all rounds are. Among a kernel's arguments they need no registers.
struct ArgumentKeys {
  const PairRules& rules;
  __device__ uint2 of(int round) const {
    return {rules.round_keys[round][0], rules.round_keys[round][1]};
  }
  // What carries when it is added to a word whose weight is kept.
  __device__ std::uint32_t carries_kept() const {
    return 0U - static_cast<std::uint32_t>(rules.dropout.threshold);
  }
};
// In shared memory they are asked for once for several draws, and instructions that read them are
// not held up as those that read an argument are.
struct SharedKeys {
  static constexpr int kBytes = (2 * kPhiloxRounds + 4) * 4;
  std::uint32_t at;

  // By one warp, before others draw.
  __device__ void put(const PairRules& rules, int lane) const {
    if (lane < 2 * kPhiloxRounds) {
      hopper::put_shared(at + 4 * lane, static_cast<int>(rules.round_keys[lane / 2][lane % 2]));
    }
    if (lane == 2 * kPhiloxRounds) {
      const auto carries = static_cast<int>(ArgumentKeys{rules}.carries_kept());
      hopper::put_shared(at + 4 * lane, carries);
    }
  }
  // The two of a round.
  __device__ uint2 of(int round) const {
    uint2 keys;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(keys.x), "=r"(keys.y)
                 : "r"(at + 8 * round));
    return keys;
  }
  __device__ std::uint32_t carries_kept() const {
    return static_cast<std::uint32_t>(hopper::get_shared(at + 8 * kPhiloxRounds));
  }
};

// kDraws draws of Philox4x32 from a round on, beside each other. Bit 4 · n + w: is the weight of
// word w of draw n kept?
template <int kRound, int kDraws, typename Keys>
__device__ inline std::uint32_t kept_of(const Keys& keys, std::uint32_t (&c)[kDraws][4]) {
#pragma unroll
  for (int round = kRound; round < kPhiloxRounds; ++round) {
    const uint2 key = keys.of(round);
#pragma unroll
    for (int n = 0; n < kDraws; ++n) {
      const std::uint64_t x = kPhiloxFirst * c[n][0], y = kPhiloxSecond * c[n][2];
      c[n][0] = high_word(y) ^ c[n][1] ^ key.x;
      c[n][1] = low_word(y);
      c[n][2] = high_word(x) ^ c[n][3] ^ key.y;
      c[n][3] = low_word(x);
    }
  }
  const std::uint32_t carries = keys.carries_kept();
  std::uint32_t kept = 0;
#pragma unroll
  for (int n = kDraws - 1; n >= 0; --n) {
    std::uint32_t four;
    asm("{.reg .u32 t;\n"
        "add.cc.u32 t, %4, %5; addc.u32 %0, 0, 0;\n"
        "add.cc.u32 t, %3, %5; addc.u32 %0, %0, %0;\n"
        "add.cc.u32 t, %2, %5; addc.u32 %0, %0, %0;\n"
        "add.cc.u32 t, %1, %5; addc.u32 %0, %0, %0;}"
        : "=&r"(four)
        : "r"(c[n][0]), "r"(c[n][1]), "r"(c[n][2]), "r"(c[n][3]), "r"(carries));
    kept = kept << 4 | four;
  }
  return kept;
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
    const std::uint64_t x =
        kPhiloxFirst * (high_word(y) ^ counter.position(i + 8 * (lane % 2)) ^ keys[0][0]);
    of_row[0] = high_word(x) ^ keys[1][1];
    of_row[1] = low_word(x);
    of_head = low_word(y) ^ keys[1][0];
    of_batch = counter.batch ^ keys[0][1];
    of_keys = kPhiloxFirst * counter.fourth(first_key / 4 + lane / 2 % 2);
  }
  // Four bits: which weights of the next draw are kept.
  __device__ std::uint32_t next(const PairRules& rules) {
    const std::uint64_t y = kPhiloxSecond * (high_word(of_keys) ^ of_batch);
    std::uint32_t c[1][4] = {
        {high_word(y) ^ of_head, low_word(y), of_row[0] ^ low_word(of_keys), of_row[1]}};
    of_keys += 2 * kPhiloxFirst;
    return kept_of<2>(ArgumentKeys{rules}, c);
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
struct ColumnDraws {
  // What the first three rounds make of the keys, of the head and of the sequence, without queries.
  std::uint32_t of_head, of_keys, of_both[3];
  std::uint32_t position;                 // of the next draw's query
  static constexpr int kDrawsAtOnce = 2;  // as many as there are registers for

  __device__ ColumnDraws(const PairRules& rules, const DropoutCounter& counter, int first_query,
                         int key, int lane) {
    const auto& keys = rules.round_keys;
    const int w = lane / 4 % 4;
    const std::uint64_t x = kPhiloxFirst * counter.fourth((key - w + 8 * (w / 2)) / 4);
    const std::uint64_t y = kPhiloxSecond * counter.head;
    const std::uint64_t then = kPhiloxSecond * (high_word(x) ^ counter.batch ^ keys[0][1]);
    const std::uint64_t last = kPhiloxFirst * (high_word(then) ^ low_word(y) ^ keys[1][0]);
    of_head = high_word(y) ^ keys[0][0];
    of_keys = low_word(x) ^ keys[1][1];
    of_both[0] = low_word(then) ^ keys[2][0];
    of_both[1] = high_word(last) ^ keys[2][1];
    of_both[2] = low_word(last);
    position = counter.position(first_query + 2 * (lane % 4) + w % 2);
  }
  // The next kDrawsAtOnce, of queries that are 8 apart.
  __device__ std::uint32_t next(const SharedKeys& keys) {
    std::uint32_t c[kDrawsAtOnce][4];
#pragma unroll
    for (int n = 0; n < kDrawsAtOnce; ++n) {
      const std::uint64_t x = kPhiloxFirst * (position ^ of_head);
      const std::uint64_t y = kPhiloxSecond * (high_word(x) ^ of_keys);
      c[n][0] = high_word(y) ^ of_both[0];
      c[n][1] = low_word(y);
      c[n][2] = low_word(x) ^ of_both[1];
      c[n][3] = of_both[2];
      position += 8;
    }
    return ~kept_of<3>(keys, c);
  }
  // Eight draws of this lane, four bits each -> its own elements: e is bit e % 32.
  __device__ static std::uint32_t exchanged(std::uint32_t x, int lane) {
#pragma unroll
    for (int apart = 1; apart <= 2; ++apart) {
      const bool is_high = (lane / 4 & apart) != 0;
      const std::uint32_t even = apart == 1 ? 0x55555555U : 0x33333333U;
      const std::uint32_t other = __shfl_xor_sync(~0U, x, 4 * apart);
      x = is_high ? (x & ~even) | (other >> apart & even) : (x & even) | (other << apart & ~even);
    }
    return x;
  }
};

// The draws of kElements elements of a thread, a bit each.
template <int kElements>
__device__ inline void draw_all(ColumnDraws& draws, const SharedKeys& keys, int lane,
                                std::uint32_t (&dropped)[kElements / 32]) {
  constexpr int kBits = 4 * ColumnDraws::kDrawsAtOnce;
  static_assert((kElements == 32 || kElements == 64) && 32 % kBits == 0);
  std::uint64_t drawn = 0;
#pragma unroll 1  // registers are few
  for (int n = 0; n < kElements / kBits; ++n) {
    const std::uint64_t bits = draws.next(keys) & ((std::uint64_t{1} << kBits) - 1);
    drawn = drawn >> kBits | bits << (kElements - kBits);
  }
#pragma unroll
  for (int word = 0; word < kElements / 32; ++word) {
    dropped[word] = ColumnDraws::exchanged(static_cast<std::uint32_t>(drawn >> 32 * word), lane);
  }
}

// Two numbers of an element become 0 if its bit says so: one test for both.
__device__ inline void drop_both(std::uint32_t dropped, int bit, float& x, float& y) {
  asm("{.reg .pred kept; .reg .b32 t;\n"
      "and.b32 t, %2, %3; setp.eq.u32 kept, t, 0;\n"
      "selp.f32 %0, %0, 0f00000000, kept; selp.f32 %1, %1, 0f00000000, kept;}"
      : "+f"(x), "+f"(y)
      : "r"(dropped), "r"(1U << bit));
}

}  // namespace cephalo::kernels::cuda
