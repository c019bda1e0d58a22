// The instances of the forward kernel that look at CEPHALO_LOOKS_AT.
#include "cephalo/kernels/cuda/forward_launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

template <DType kDType, int kWidth, LooksAt kLooksAt>
constexpr ForwardEntry entry() {
  using C = ForwardConfig<typename ElementOf<kDType>::Type, kWidth, kLooksAt>;
  return {{kDType, kWidth, kWidth, 1, kLooksAt}, {64, C::kKeys}, launch_forward<C>};
}
#define CEPHALO_ENTRY(TYPE, WIDTH, LOOKS_AT) entry<DType::TYPE, WIDTH, LooksAt::LOOKS_AT>(),
constexpr ForwardEntry kEntries[] = {CEPHALO_HOPPER_INSTANCES(CEPHALO_ENTRY, CEPHALO_LOOKS_AT)};
#undef CEPHALO_ENTRY

}  // namespace

template <>
Entries<ForwardEntry> entries<ForwardEntry, LooksAt::CEPHALO_LOOKS_AT>() {
  return {kEntries, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0]))};
}

}  // namespace cephalo::kernels::cuda
