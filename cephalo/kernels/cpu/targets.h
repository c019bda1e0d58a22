#pragma once

// Which instruction sets Highway compiles the kernels for; include before any header of Highway.
// Scalar is there everywhere: as the plain version, and for float64 where SIMD has none.
#define HWY_COMPILE_ALL_ATTAINABLE
// Two kinds of scalar, one for each compiler, would be two things to test.
#define HWY_BROKEN_EMU128 1
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_AVX3_DL)
