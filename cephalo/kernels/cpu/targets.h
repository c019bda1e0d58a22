#pragma once

// Which instruction sets Highway compiles the kernels for; include before any header of Highway.
// Scalar is there everywhere: as the plain version, and for float64 where SIMD has none.
#define HWY_COMPILE_ALL_ATTAINABLE
// Two kinds of scalar, one for each compiler, would be two things to test.
#define HWY_BROKEN_EMU128 1
// Whatever else a newer Highway knows stays out: these are the ones that dispatch.h names.
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_NEON | HWY_WASM))
