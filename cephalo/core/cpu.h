#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cephalo/core/dtype.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Instruction sets that kernels exist for, in the order of preference within one machine.
enum class Isa { scalar, sse4, avx2, avx512, neon, wasm };
inline constexpr int kIsaCount = 6;
const char* name(Isa isa);  // "avx512"

// What this build holds and this processor runs, the best one last.
const std::vector<Isa>& available_isas();

// The instruction set in use: the best available one, or the one that the environment variable
// CEPHALO_ISA names. An unknown or unavailable name is an error that lists what there is.
Isa current_isa();

// Does an instruction set multiply numbers of this type? WebAssembly's has no float64, and none
// multiplies 16-bit numbers yet.
bool multiplies(Isa isa, DType dtype);

// The instruction set that computes with numbers of this type: the best one up to current_isa()
// that multiplies them. 16-bit numbers that none multiplies widen, and go where float32 goes.
Isa current_isa(DType dtype);

// Bytes of memory that this machine has.
std::int64_t physical_memory();

// For tests and benchmarks: every later call uses this one. Not while other threads compute.
void force_isa(Isa isa);

}  // namespace cephalo
#pragma GCC visibility pop
