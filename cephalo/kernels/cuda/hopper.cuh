// The instructions of Hopper that our kernels use, one wrapper each. Needs sm_90a. No state, no
// policy.
#pragma once

#include <cstdint>

namespace cephalo::kernels::cuda::hopper {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline void put_shared(std::uint32_t at, int x) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
__device__ inline int get_shared(std::uint32_t at) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}

// Here and not earlier, where registers are few.
__device__ inline float get_global(const float* at) {
  float x;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(at));
  return x;
}

// ---- mbarrier: a phase ends when `count` arrivals and all announced bytes have come in ----------
__device__ inline void barrier_init(std::uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// One arrival that also announces bytes.
__device__ inline void barrier_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Behind work of a whole warp or warpgroup, whose threads have waited for each other, one of them
// arrives. racecheck knows of order through a barrier for those that arrive themselves alone: in
// builds for it all of them do, which takes longer.
#ifdef CEPHALO_RACECHECK
constexpr int kWarpArrivals = 32, kGroupArrivals = 128;
#else
constexpr int kWarpArrivals = 1, kGroupArrivals = 1;
#endif
__device__ inline void warp_arrive(std::uint32_t barrier, int lane) {
  if (lane < kWarpArrivals) barrier_arrive(barrier);
}
__device__ inline void group_arrive(std::uint32_t barrier, int thread) {
  if (thread < kGroupArrivals) barrier_arrive(barrier);
}
__device__ inline bool barrier_try(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  while (!barrier_try(barrier, parity)) {
  }
}
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// ---- named barriers, registers ------------------------------------------------------------------
__device__ inline void threads_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void threads_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
template <int kCount>
__device__ inline void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
// Ordinary stores to shared memory become visible to the copy engine and to wgmma.
__device__ inline void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- TMA: one thread moves a box; coordinates {column in 64, row, column / 64, head, batch} -----
struct BoxPlace {
  int row, head, batch;
};
__device__ inline void box_load(std::uint32_t to, const void* map, std::uint32_t barrier,
                                const BoxPlace& at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(0), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}
// 64 columns from `column` on, of a map without planes.
__device__ inline void square_load(std::uint32_t to, const void* map, std::uint32_t barrier,
                                   int column, const BoxPlace& at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}
__device__ inline void box_store(const void* map, std::uint32_t from, const BoxPlace& at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %2, %4, %5}], [%1];" ::
          "l"(map),
      "r"(from), "r"(0), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}
// The boxes of this thread have been read, but for those of the last kLeft commits: their shared
// memory may be written again.
template <int kLeft = 0>
__device__ inline void stores_wait_read() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read %0;" ::"n"(kLeft)
               : "memory");
}
// Plain bytes.
__device__ inline void bytes_load(std::uint32_t to, const void* from, int bytes,
                                  std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Shared memory added to float32 numbers in the L2.
__device__ inline void bytes_add(float* to, std::uint32_t from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
// Shared memory to global memory.
__device__ inline void bytes_store(float* to, std::uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// All but the last kLeft commits of this thread's stores and additions are done, not only read.
template <int kLeft>
__device__ inline void stores_wait_done() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kLeft) : "memory");
}
// 16 bytes added in the L2, nothing returned.
__device__ inline void add_four(float* to, float x, float y, float z, float w) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x),
               "f"(y), "f"(z), "f"(w)
               : "memory");
}

__device__ inline void add_two(float* to, float x, float y) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y)
               : "memory");
}

// ---- turns between blocks of a grid -------------------------------------------------------------
__device__ inline unsigned turn_of(const unsigned* counter) {
  unsigned x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(counter) : "memory");
  return x;
}
__device__ inline void pass_turn(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(1) : "memory");
}
// A kernel that starts early may do so once all blocks of this one have said it, or ended.
__device__ inline void next_kernel_may_start() {
  asm volatile("griddepcontrol.launch_dependents;");
}
// What the copy engine does to memory, before or after what threads do to it.
__device__ inline void fence_copies() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

// ---- 16-bit elements ----------------------------------------------------------------------------
struct Bf16 {};
struct F16 {};
__device__ inline std::uint32_t pack(Bf16, float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ inline std::uint32_t pack(F16, float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// The first and the second of two elements in a word.
__device__ inline void unpack(Bf16, std::uint32_t word, float (&x)[2]) {
  x[0] = __uint_as_float(word << 16);
  x[1] = __uint_as_float(word & 0xFFFF0000U);
}
__device__ inline void unpack(F16, std::uint32_t word, float (&x)[2]) {
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(x[0]), "=f"(x[1])
      : "r"(word));
}
// Four 8 x 8 fragments to shared memory.
__device__ inline void store_fragments(std::uint32_t to, const std::uint32_t (&w)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}
// Four 8 x 8 fragments from shared memory, rows as they lie or turned into columns.
template <bool kTurned>
__device__ inline void load_fragments(std::uint32_t from, std::uint32_t (&w)[4]) {
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(from)
                 : "memory");
  }
}
__device__ inline void put_four(std::uint32_t to, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x), "f"(y), "f"(z), "f"(w)
               : "memory");
}
__device__ inline void get_two(std::uint32_t from, float (&x)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(from));
}
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- wgmma --------------------------------------------------------------------------------------
// An operand in shared memory, 128-byte swizzle: bits 0-13 address / 16, 16-29 leading offset / 16,
// 32-45 stride offset / 16, 62-63 = 1. Rows are 128 bytes; 8 of them make the swizzle's 1024 bytes,
// so the stride offset is always 1024. K-major (q and k): no leading offset. MN-major (v): the
// distance of planes of 64 columns.
__device__ inline std::uint64_t operand(std::uint32_t address, int leading_bytes) {
  return static_cast<std::uint64_t>((address & 0x3FFFF) >> 4) |
         static_cast<std::uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(1024 >> 4) << 32 | std::uint64_t{1} << 62;
}
__device__ inline void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// The compiler believes that a register is ready once the wgmma statement is past. After a wait
// this stops it from moving a use in front of it, or from reusing a register that is still read.
template <int kCount>
__device__ inline void tie(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int kCount>
__device__ inline void tie(std::uint32_t (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// Computed here, and not by a compiler's choice behind the next wait.
__device__ inline std::uint32_t ready(std::uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ inline std::uint64_t ready(std::uint64_t x) {
  asm volatile("" : "+l"(x));
  return x;
}

// Product<Element, N>: d[64 x N] (+)= A[64 x 16] B[16 x N] in float32. from_shared: A and B lie in
// shared memory, both K-major or, with kTransposed, both MN-major. from_registers: A in registers.
template <typename Element, int kColumns>
struct Product;

#define CEPHALO_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CEPHALO_SIXTEEN(i) \
  CEPHALO_FOUR(i), CEPHALO_FOUR(i + 4), CEPHALO_FOUR(i + 8), CEPHALO_FOUR(i + 12)
#define CEPHALO_D16 CEPHALO_SIXTEEN(0)
#define CEPHALO_D32 CEPHALO_D16, CEPHALO_SIXTEEN(16)
#define CEPHALO_D48 CEPHALO_D32, CEPHALO_SIXTEEN(32)
#define CEPHALO_D64 CEPHALO_D48, CEPHALO_SIXTEEN(48)
#define CEPHALO_D128 \
  CEPHALO_D64, CEPHALO_SIXTEEN(64), CEPHALO_SIXTEEN(80), CEPHALO_SIXTEEN(96), CEPHALO_SIXTEEN(112)
#define CEPHALO_R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define CEPHALO_R32 CEPHALO_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CEPHALO_R48 CEPHALO_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define CEPHALO_R64 CEPHALO_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define CEPHALO_R128                                                             \
  CEPHALO_R64                                                                    \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"             \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"             \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// A0 .. A6: the numbers of the operands that follow the HALF accumulators.
#define CEPHALO_PRODUCT(ELEMENT, TYPE, N, HALF, A0, A1, A2, A3, A4, A5, A6)                        \
  template <>                                                                                      \
  struct Product<ELEMENT, N> {                                                                     \
    template <int kTransposed = 0>                                                                 \
    static __device__ inline void from_shared(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, \
                                              int add) {                                           \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #A2                                           \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                 \
                   " {" CEPHALO_R##HALF "}, %" #A0 ", %" #A1 ", p, 1, 1, %" #A3 ", %" #A3 ";}"     \
                   : CEPHALO_D##HALF                                                               \
                   : "l"(a), "l"(b), "r"(add), "n"(kTransposed));                                  \
    }                                                                                              \
    template <int kTransposed>                                                                     \
    static __device__ inline void from_registers(float (&d)[N / 2], const std::uint32_t* a,        \
                                                 std::uint64_t b, int add) {                       \
      asm volatile(                                                                                \
          "{.reg .pred p; setp.ne.b32 p, %" #A5                                                    \
          ", 0;\n"                                                                                 \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" CEPHALO_R##HALF     \
          "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #A4 ", p, 1, 1, %" #A6 ";}"                \
          : CEPHALO_D##HALF                                                                        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed));       \
    }                                                                                              \
  };
#define CEPHALO_PRODUCTS(ELEMENT, TYPE)                               \
  CEPHALO_PRODUCT(ELEMENT, TYPE, 32, 16, 16, 17, 18, 19, 20, 21, 22)  \
  CEPHALO_PRODUCT(ELEMENT, TYPE, 64, 32, 32, 33, 34, 35, 36, 37, 38)  \
  CEPHALO_PRODUCT(ELEMENT, TYPE, 96, 48, 48, 49, 50, 51, 52, 53, 54)  \
  CEPHALO_PRODUCT(ELEMENT, TYPE, 128, 64, 64, 65, 66, 67, 68, 69, 70) \
  CEPHALO_PRODUCT(ELEMENT, TYPE, 256, 128, 128, 129, 130, 131, 132, 133, 134)
CEPHALO_PRODUCTS(Bf16, "bf16")
CEPHALO_PRODUCTS(F16, "f16")
#undef CEPHALO_PRODUCTS
#undef CEPHALO_PRODUCT

}  // namespace cephalo::kernels::cuda::hopper
