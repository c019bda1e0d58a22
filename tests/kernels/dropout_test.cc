// Dropout's counter stream, many counters at a time, is philox of core/random.h bit for bit.
#include "cephalo/core/random.h"
#include "tests/kernels/kernel_test.h"

namespace cephalo::kernels::testing {
namespace {

template <typename T>
using DropoutKernelsTest = KernelTest<T>;
TYPED_TEST_SUITE(DropoutKernelsTest, NumberTypes);

// The rule of KeptStream, word by word.
bool keeps(const KeptStream& stream, std::uint32_t four, std::uint32_t position, dim_t word) {
  const PhiloxCounter drawn = philox(stream.seed, {four, position, stream.head, stream.batch});
  return drawn[static_cast<std::size_t>(word)] >= stream.threshold;
}

constexpr std::uint32_t kLast = 0xFFFFFFFFU;
const KeptStream kStreams[] = {
    {0, 0, 0, 0x80000000U},
    {~std::uint64_t{0}, kLast, kLast, 0x40000000U},
    {0x299f31d0a4093822U, 11, 3, 0x19999999U},  // p = 0.1
    {42, 1, 70000, 0},                          // everything is kept
    {42, 1, 70000, kLast},                      // nearly nothing
};
// Counters that run over 2^32 begin again at 0.
constexpr std::uint32_t kBegins[] = {0, 1, 1000, 0x7FFFFFF0U, kLast - 40, kLast - 3, kLast};

TYPED_TEST(DropoutKernelsTest, kept_by_query_is_plain_philox_for_every_count) {
  for (const KeptStream& stream : kStreams) {
    for (const std::uint32_t begin : kBegins) {
      for (dim_t count = 1; count <= 64; count += count < 2 * this->most() ? 1 : 5) {
        Guarded<std::uint64_t> kept(4);
        const std::uint32_t four = begin ^ 5U;
        this->attend().kept_by_query(stream, four, begin, count, kept.data());
        ASSERT_TRUE(kept.fences_stand());
        for (dim_t w = 0; w < 4; ++w) {
          for (dim_t x = 0; x < count; ++x) {
            ASSERT_EQ((kept[w] >> x & 1) != 0,
                      keeps(stream, four, begin + static_cast<std::uint32_t>(x), w))
                << "word " << w << ", query " << x << " of " << count << " from " << begin;
          }
        }
      }
    }
  }
}

TYPED_TEST(DropoutKernelsTest, kept_by_key_is_plain_philox_for_every_count) {
  for (const KeptStream& stream : kStreams) {
    for (const std::uint32_t begin : kBegins) {
      for (dim_t fours = 1; fours <= 16; ++fours) {
        const std::uint32_t position = begin ^ 9U;
        const std::uint64_t kept = this->attend().kept_by_key(stream, begin, position, fours);
        for (dim_t x = 0; x < 4 * fours; ++x) {
          const std::uint32_t four = begin + static_cast<std::uint32_t>(x / 4);
          ASSERT_EQ((kept >> x & 1) != 0, keeps(stream, four, position, x % 4))
              << "key " << x << " of " << 4 * fours << " from four " << begin;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
