#pragma once

#include <hwy/highway.h>

#include "cephalo/core/cpu.h"

// The function of one instruction set, at the foot of a kernel file: CEPHALO_FOR_ISA(isa, f) is
// N_AVX2::f when isa is avx2, and so on for what this build holds. Where an instruction set has no
// float64, CEPHALO_FOR_ISA_F64 is the scalar function.
#if HWY_ARCH_X86
#define CEPHALO_FOR_ISA(isa, function)      \
  ((isa) == Isa::avx512 ? &N_AVX3::function \
   : (isa) == Isa::avx2 ? &N_AVX2::function \
   : (isa) == Isa::sse4 ? &N_SSE4::function \
                        : &N_SCALAR::function)
#define CEPHALO_FOR_ISA_F64(isa, function) CEPHALO_FOR_ISA(isa, function)
#elif HWY_ARCH_ARM
#define CEPHALO_FOR_ISA(isa, function) \
  ((isa) == Isa::neon ? &N_NEON::function : &N_SCALAR::function)
#define CEPHALO_FOR_ISA_F64(isa, function) CEPHALO_FOR_ISA(isa, function)
#elif HWY_ARCH_WASM && defined(CEPHALO_ENGINE)
// A page's engine has one instruction set: float32 by scalars would only make it larger.
#define CEPHALO_FOR_ISA(isa, function) (static_cast<void>(isa), &N_WASM::function)
#define CEPHALO_FOR_ISA_F64(isa, function) (static_cast<void>(isa), &N_SCALAR::function)
#elif HWY_ARCH_WASM && (HWY_TARGETS & HWY_WASM)
#define CEPHALO_FOR_ISA(isa, function) \
  ((isa) == Isa::wasm ? &N_WASM::function : &N_SCALAR::function)
#define CEPHALO_FOR_ISA_F64(isa, function) (static_cast<void>(isa), &N_SCALAR::function)
#else
#define CEPHALO_FOR_ISA(isa, function) (static_cast<void>(isa), &N_SCALAR::function)
#define CEPHALO_FOR_ISA_F64(isa, function) CEPHALO_FOR_ISA(isa, function)
#endif
