// Dropout's counter stream (philox of core/random.h), many counters at a time.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/dropout.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

using Word = std::uint32_t;

// Both halves of x · factor.
struct Wide {
  Vec<Word> high;
  Vec<Word> low;
};
HWY_INLINE Wide multiply_wide(Vec<Word> x, Word factor) {
  const Tag<Word> d;
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = std::uint64_t{x.raw} * factor;
  return {hn::Set(d, static_cast<Word>(product >> 32)), hn::Set(d, static_cast<Word>(product))};
#else
  const hn::Repartition<std::uint64_t, Tag<Word>> d64;
  const Vec<Word> f = hn::Set(d, factor);
  const auto even = hn::MulEven(x, f);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x))), f);
  return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
#endif
}

// bits[w]: of each lane, is word w of philox(seed, c0 .. c3) at least the threshold?
HWY_INLINE void draw(const KeptStream& stream, Vec<Word> c0, Vec<Word> c1, std::uint64_t* bits) {
  const Tag<Word> d;
  Vec<Word> c2 = hn::Set(d, stream.head);
  Vec<Word> c3 = hn::Set(d, stream.batch);
  Word k0 = static_cast<Word>(stream.seed);
  Word k1 = static_cast<Word>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Wide first = multiply_wide(c0, 0xD2511F53U);
    const Wide second = multiply_wide(c2, 0xCD9E8D57U);
    c0 = hn::Xor(hn::Xor(second.high, c1), hn::Set(d, k0));
    c1 = second.low;
    c2 = hn::Xor(hn::Xor(first.high, c3), hn::Set(d, k1));
    c3 = first.low;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  const Vec<Word> least = hn::Set(d, stream.threshold);
  const Vec<Word> words[4] = {c0, c1, c2, c3};
  CEPHALO_UNROLL
  for (int w = 0; w < 4; ++w) {
    bits[w] = 0;
    hn::StoreMaskBits(d, hn::Not(hn::Lt(words[w], least)),
                      reinterpret_cast<std::uint8_t*>(bits + w));
  }
}

HWY_NOINLINE void kept_by_query(const KeptStream& stream, Word four, Word position, dim_t count,
                                std::uint64_t* kept) {
  const Tag<Word> d;
  for (int w = 0; w < 4; ++w) kept[w] = 0;
  for (dim_t x = 0; x < count; x += kLanes<Word>) {
    std::uint64_t bits[4];
    draw(stream, hn::Set(d, four), hn::Iota(d, position + static_cast<Word>(x)), bits);
    for (int w = 0; w < 4; ++w) kept[w] |= bits[w] << x;
  }
}

// Every bit of the low 16 moves to four times its place.
HWY_INLINE std::uint64_t spread(std::uint64_t bits) {
  bits = (bits | bits << 24) & 0x000000FF000000FFULL;
  bits = (bits | bits << 12) & 0x000F000F000F000FULL;
  bits = (bits | bits << 6) & 0x0303030303030303ULL;
  return (bits | bits << 3) & 0x1111111111111111ULL;
}

HWY_NOINLINE std::uint64_t kept_by_key(const KeptStream& stream, Word four, Word position,
                                       dim_t fours) {
  const Tag<Word> d;
  std::uint64_t words[4] = {};
  for (dim_t g = 0; g < fours; g += kLanes<Word>) {
    std::uint64_t bits[4];
    draw(stream, hn::Iota(d, four + static_cast<Word>(g)), hn::Set(d, position), bits);
    for (int w = 0; w < 4; ++w) words[w] |= bits[w] << g;
  }
  std::uint64_t kept = 0;
  for (int w = 0; w < 4; ++w) kept |= spread(words[w]) << w;
  return kept;
}

template <typename T>
void fill_dropout(AttendKernels<T, T>* table) {
  table->kept_by_query = kept_by_query;
  table->kept_by_key = kept_by_key;
}

void dropout_f32(AttendKernels<float, float>* table) {
  fill_dropout(table);
}
void dropout_f64(AttendKernels<double, double>* table) {
  fill_dropout(table);
}

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_dropout_kernels(Isa isa, AttendKernels<float, float>* table) {
  CEPHALO_FOR_ISA(isa, dropout_f32)(table);
}
void add_dropout_kernels(Isa isa, AttendKernels<double, double>* table) {
  CEPHALO_FOR_ISA(isa, dropout_f64)(table);
}
}  // namespace cephalo::kernels
#endif
