// The instances of the backward kernel that look at CEPHALO_LOOKS_AT, and their launch.
#include <algorithm>

#include "cephalo/kernels/cuda/backward.cuh"
#include "cephalo/kernels/cuda/instances.cuh"
#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

template <typename C>
int launch_backward(const HopperBackward& args, cudaStream_t stream) {
  const int error = allow_shared_memory<attend_backward<C>, C::kSharedBytes>();
  if (error != cudaSuccess) return error;
  const int tiles = key_tiles<C>(args) * args.batch * args.num_kv_heads;
  HopperBackward told = args;
  told.multiprocessors = multiprocessors();
  const auto blocks = static_cast<unsigned>(std::min(tiles, told.multiprocessors));
  return launch(attend_backward<C>, {blocks, C::kThreads, C::kSharedBytes}, stream, told);
}

template <DType kDType, int kInstanceWidth, LooksAt kLooksAt>
constexpr BackwardEntry entry() {
  using Element = typename ElementOf<kDType>::Type;
  // Twice the scores of a step, as width 64 has them, leave no registers for what these keep.
  constexpr bool kKeepsMuch = kLooksAt == LooksAt::pairs || kLooksAt == LooksAt::softcap;
  constexpr int kWidth = kKeepsMuch ? 128 : kInstanceWidth;
  using C = BackwardConfig<Element, kWidth, kLooksAt, true>;
  BackwardEntry entry{{kDType, kInstanceWidth, kInstanceWidth, 1, kLooksAt},
                      {C::kQueries, C::kKeys, 64, kWidth},
                      launch_backward<C>,
                      nullptr};
  if constexpr (kWidth == 64) {
    entry.in_any_order = launch_backward<BackwardConfig<Element, kWidth, kLooksAt, false>>;
  }
  return entry;
}
#define CEPHALO_ENTRY(TYPE, WIDTH, LOOKS_AT) entry<DType::TYPE, WIDTH, LooksAt::LOOKS_AT>(),
constexpr BackwardEntry kEntries[] = {CEPHALO_HOPPER_INSTANCES(CEPHALO_ENTRY, CEPHALO_LOOKS_AT)};
#undef CEPHALO_ENTRY

}  // namespace

template <>
Entries<BackwardEntry> entries<BackwardEntry, LooksAt::CEPHALO_LOOKS_AT>() {
  return {kEntries, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0]))};
}

}  // namespace cephalo::kernels::cuda
