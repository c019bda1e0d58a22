#include "cephalo/core/cpu.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr Isa kAll[] = {Isa::scalar, Isa::sse4, Isa::avx2, Isa::avx512, Isa::neon, Isa::wasm};

std::vector<Isa> detect() {
#if defined(__x86_64__)
  std::vector<Isa> found{Isa::scalar};
  __builtin_cpu_init();
  // Each set is what its kernels are compiled for; the operating system's part is checked too.
  const bool sse4 = __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("aes") != 0 &&
                    __builtin_cpu_supports("pclmul") != 0;
  const bool avx2 = sse4 && __builtin_cpu_supports("avx2") != 0 &&
                    __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("bmi") != 0 &&
                    __builtin_cpu_supports("bmi2") != 0;
  const bool avx512 =
      avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512cd") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0;
  if (sse4) found.push_back(Isa::sse4);
  if (avx2) found.push_back(Isa::avx2);
  if (avx512) found.push_back(Isa::avx512);
  return found;
#elif defined(__aarch64__)
  return {Isa::scalar, Isa::neon};
#elif defined(CEPHALO_ENGINE)
  return {Isa::wasm};  // see kernels/cpu/dispatch.h
#elif defined(__wasm_simd128__)
  return {Isa::scalar, Isa::wasm};
#else
  return {Isa::scalar};
#endif
}

std::string available_names() {
  std::string names;
  for (const Isa isa : available_isas())
    names += (names.empty() ? "" : ", ") + std::string(name(isa));
  return names;
}

void require_available(Isa isa) {
  for (const Isa available : available_isas()) {
    if (available == isa) return;
  }
  fail(Error::Kind::value, "CEPHALO_ISA: {} cannot run here; available are {}", name(isa),
       available_names());
}

Isa choose() {
  const char* wanted = std::getenv("CEPHALO_ISA");
  if (wanted == nullptr || *wanted == '\0') return available_isas().back();
  for (const Isa isa : kAll) {
    if (std::string(name(isa)) == wanted) {
      require_available(isa);
      return isa;
    }
  }
  fail(Error::Kind::value, "CEPHALO_ISA: unknown instruction set '{}'; available are {}", wanted,
       available_names());
}

constexpr int kNotChosen = -1;
std::atomic<int> chosen{kNotChosen};

}  // namespace

const char* name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::sse4:
      return "sse4";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
    case Isa::wasm:
      return "wasm";
  }
  return "?";
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = detect();
  return found;
}

Isa current_isa() {
  int isa = chosen.load(std::memory_order_relaxed);
  if (isa == kNotChosen) {
    isa = static_cast<int>(choose());
    chosen.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

bool multiplies(Isa isa, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return true;
    case DType::f64:
      return isa != Isa::wasm;
    default:
      return false;
  }
}

Isa current_isa(DType dtype) {
  const Isa best = current_isa();
  const std::vector<Isa>& isas = available_isas();
  const auto found = std::find_if(isas.rbegin(), isas.rend(),
                                  [&](Isa isa) { return isa <= best && multiplies(isa, dtype); });
  return found != isas.rend() ? *found : current_isa(DType::f32);
}

std::int64_t physical_memory() {
#if defined(__EMSCRIPTEN__)
  return std::int64_t{1} << 32;  // what 32 bits reach: it grows as it is asked for
#endif
  static const std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) *
                                    static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

void force_isa(Isa isa) {
  require_available(isa);
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace cephalo
