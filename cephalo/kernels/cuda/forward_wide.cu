// The instances of the forward kernel for rows of more than 128 columns, and of float32 numbers.
#include "cephalo/kernels/cuda/forward_launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

template <DType kDType, int kWidth, int kVWidth, int kParts>
constexpr ForwardEntry entry() {
  using Element = typename ElementOf<kDType>::Type;
  using C = ForwardConfig<Element, kWidth, LooksAt::pairs, kVWidth, kParts>;
  return {{kDType, kWidth, kVWidth, kParts, LooksAt::pairs}, {64, C::kKeys}, launch_forward<C>};
}
#define CEPHALO_ENTRY(TYPE, WIDTH, V_WIDTH, PARTS) entry<DType::TYPE, WIDTH, V_WIDTH, PARTS>(),
constexpr ForwardEntry kEntries[] = {CEPHALO_HOPPER_WIDE(CEPHALO_ENTRY)};
#undef CEPHALO_ENTRY

}  // namespace

template <>
Entries<ForwardEntry> wide_entries<ForwardEntry>() {
  return {kEntries, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0]))};
}

}  // namespace cephalo::kernels::cuda
