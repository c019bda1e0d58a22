// The instances of the forward kernel that look at CEPHALO_LOOKS_AT.
#include "cephalo/kernels/cuda/forward_launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

// For documents alibi has kernels of their own: some have no slopes, and tiles of 64 columns are
// smaller.
template <DType kDType, int kWidth, LooksAt kLooksAt, bool kHasDocuments>
constexpr ForwardEntry entry() {
  using Element = typename ElementOf<kDType>::Type;
  using C = ForwardConfig<Element, kWidth, kLooksAt, kWidth, 1,
                          kHasDocuments && kLooksAt == LooksAt::alibi>;
  return {{kDType, kWidth, kWidth, 1, kLooksAt, kHasDocuments}, {64, C::kKeys}, launch_forward<C>};
}
#define CEPHALO_ENTRY(TYPE, WIDTH, LOOKS_AT) entry<DType::TYPE, WIDTH, LooksAt::LOOKS_AT, false>(),
#define CEPHALO_DOCUMENTS(TYPE, WIDTH, LOOKS_AT) \
  entry<DType::TYPE, WIDTH, LooksAt::LOOKS_AT, true>(),
constexpr ForwardEntry kEntries[] = {CEPHALO_HOPPER_INSTANCES(
    CEPHALO_ENTRY, CEPHALO_LOOKS_AT) CEPHALO_HOPPER_INSTANCES(CEPHALO_DOCUMENTS, CEPHALO_LOOKS_AT)};
#undef CEPHALO_ENTRY
#undef CEPHALO_DOCUMENTS

}  // namespace

template <>
Entries<ForwardEntry> entries<ForwardEntry, LooksAt::CEPHALO_LOOKS_AT>() {
  return {kEntries, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0]))};
}

}  // namespace cephalo::kernels::cuda
