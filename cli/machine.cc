#include "cli/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>

#include "cephalo/core/parallel.h"
#include "cephalo/kernels/tables.h"

namespace cephalo::cli {
namespace {

constexpr double kManyFlops = 1e12;  // every region is worth its threads

// Results go somewhere, so that nobody leaves the work out.
constexpr std::size_t kSinkBytes = 64;
void keep(std::byte* scratch, float value) {
  *reinterpret_cast<float*>(scratch) = value;
}

const kernels::ProbeKernels& probe() {
  return kernels::probe_kernels(current_isa());
}

}  // namespace

PagedMemory::PagedMemory(std::size_t bytes, Pages pages) : bytes_(bytes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  void* memory =
      mmap(nullptr, bytes_ + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapped_ = memory;
  void* aligned = memory;
  std::size_t room = bytes_ + kHuge;
  std::align(kHuge, bytes_, aligned, room);
#if defined(MADV_HUGEPAGE) && defined(MADV_NOHUGEPAGE)
  // A system that refuses has pages of one size: then both figures are of that.
  static_cast<void>(
      madvise(aligned, bytes_, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
#else
  static_cast<void>(pages);
#endif
  data_ = static_cast<float*>(aligned);
  std::fill_n(data_, bytes_ / sizeof(float), 1.0F);
}

PagedMemory::~PagedMemory() {
  munmap(mapped_, bytes_ + (std::size_t{2} << 20));
}

double seconds_of(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double best_seconds(const std::function<void()>& work, double budget) {
  double spent = seconds_of(work);
  double best = spent;
  for (int count = 0; count < 3 || spent < budget; ++count) {
    const double seconds = seconds_of(work);
    best = count == 0 ? seconds : std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

double fma_rate(double budget) {
  constexpr dim_t kSteps = 20000;  // about 0.1 ms: a thread that comes late costs little
  const dim_t pieces = 16 * static_cast<dim_t>(threads());
  const auto work = [&] {
    parallel_for({pieces, kManyFlops, kSinkBytes}, [](dim_t piece, std::byte* scratch) {
      keep(scratch, probe().multiply_add(kSteps, 0.999F, static_cast<float>(piece) * 0.001F));
    });
  };
  return probe().step_flops * static_cast<double>(kSteps * pieces) / best_seconds(work, budget);
}

double cached_read_rate(std::span<const float> memory, double budget) {
  constexpr dim_t kFloatsEach = dim_t{8} << 20;  // of one thread in one region: 32 MiB
  const auto count = static_cast<dim_t>(memory.size());
  const dim_t pieces = std::max<dim_t>(4, kFloatsEach / count) * static_cast<dim_t>(threads());
  double best = 0.0;
  for (const bool ahead : {false, true}) {
    const auto work = [&] {
      parallel_for({pieces, kManyFlops, kSinkBytes}, [&](dim_t piece, std::byte* scratch) {
        // Threads begin at different places: none follows in the wake of another.
        const dim_t begin = count / pieces * piece;
        keep(scratch, probe().read(memory.data() + begin, count - begin, ahead) +
                          probe().read(memory.data(), begin, ahead));
      });
    };
    const double bytes = static_cast<double>(memory.size_bytes()) * static_cast<double>(pieces);
    best = std::max(best, bytes / best_seconds(work, budget / 2));
  }
  return best;
}

void read_once(const std::vector<std::span<const float>>& parts, bool ahead) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;  // 256 KiB
  const auto pieces_of = [](std::span<const float> part) {
    return static_cast<dim_t>((part.size() + kPiece - 1) / kPiece);
  };
  dim_t pieces = 0;
  for (const auto part : parts) pieces += pieces_of(part);
  parallel_for({pieces, kManyFlops, kSinkBytes}, [&](dim_t piece, std::byte* scratch) {
    for (const auto part : parts) {
      if (piece < pieces_of(part)) {
        const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
        const std::size_t count = std::min(kPiece, part.size() - begin);
        keep(scratch, probe().read(part.data() + begin, static_cast<dim_t>(count), ahead));
        return;
      }
      piece -= pieces_of(part);
    }
  });
}

double read_rate(const std::vector<std::span<const float>>& parts, double budget) {
  double best = 1e9;
  for (const bool ahead : {false, true}) {
    best = std::min(best, best_seconds([&] { read_once(parts, ahead); }, budget / 2));
  }
  return bytes_of(parts) / best;
}

double bytes_of(const std::vector<std::span<const float>>& parts) {
  double bytes = 0.0;
  for (const auto part : parts) bytes += static_cast<double>(part.size_bytes());
  return bytes;
}

}  // namespace cephalo::cli
