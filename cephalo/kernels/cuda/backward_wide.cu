// The instances of the backward kernel for rows of more than 128 columns, and of float32 numbers.
#include "cephalo/kernels/cuda/backward_wide.cuh"

#include "cephalo/kernels/cuda/instances.cuh"
#include "cephalo/kernels/cuda/launch.cuh"

namespace cephalo::kernels::cuda {
namespace {

template <typename C, bool kByTurns>
int launch_backward(const HopperBackward& args, cudaStream_t stream) {
  const int error = allow_shared_memory<attend_backward_wide<C>, C::kSharedBytes>();
  if (error != cudaSuccess) return error;
  const int blocks = key_tiles<C>(args) * args.batch * args.num_kv_heads;
  HopperBackward told = args;
  told.multiprocessors = multiprocessors();
  told.by_turns = kByTurns;
  return launch(attend_backward_wide<C>,
                {static_cast<unsigned>(blocks), C::kThreads, C::kSharedBytes}, stream, told);
}

template <DType kDType, int kWidth, int kParts>
constexpr BackwardEntry entry() {
  using C = WideBackwardConfig<typename ElementOf<kDType>::Type, kWidth, kParts>;
  return {{kDType, kWidth, kWidth, kParts, LooksAt::pairs},
          {C::kQueries, C::kKeys, 64, kWidth},
          launch_backward<C, true>,
          launch_backward<C, false>};
}
#define CEPHALO_ENTRY(TYPE, WIDTH, PARTS) entry<DType::TYPE, WIDTH, PARTS>(),
constexpr BackwardEntry kEntries[] = {CEPHALO_HOPPER_WIDE_BACKWARD(CEPHALO_ENTRY)};
#undef CEPHALO_ENTRY

}  // namespace

template <>
Entries<BackwardEntry> wide_entries<BackwardEntry>() {
  return {kEntries, static_cast<int>(sizeof(kEntries) / sizeof(kEntries[0]))};
}

}  // namespace cephalo::kernels::cuda
