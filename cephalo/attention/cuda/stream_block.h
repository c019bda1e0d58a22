#pragma once

#include <cstddef>
#include <span>

#include "cephalo/kernels/cuda/launch_line.h"

namespace cephalo {

// Device memory that stays with a stream, for what every call needs a little of: scratch, counters,
// and the mask's numbers, which are seldom other ones than those of a call before. The calls of a
// stream run one after another, so a block serves them all; they are never launched to overlap.
class StreamBlock {
 public:
  static constexpr std::size_t kWorkBytes = std::size_t{1} << 20;
  static constexpr std::size_t kNumberBytes = 2048;

  // That of the current GPU and stream, this thread's alone while this object lives. There is none
  // while a graph is captured, which may run beside other work and has memory of its own; while
  // another thread is in a call; and for streams beyond the first 64 of a GPU.
  StreamBlock();
  ~StreamBlock();
  StreamBlock(const StreamBlock&) = delete;
  StreamBlock& operator=(const StreamBlock&) = delete;

  bool is_there() const { return kept_ != nullptr; }
  kernels::cuda::KeptGraphs* graphs() const;  // null where there is no block
  // All that follows asks for a block. Uninitialised, kWorkBytes.
  std::byte* work() const;
  // Where kernels find these numbers of the host, at most kNumberBytes, whole words of 4 bytes:
  // sent, unless they are there already. Nobody may change them.
  const std::byte* numbers(std::span<const std::byte> bytes);

  // kernels::cuda::kCounters numbers that are 0 when the call's first kernel starts, and those of
  // the next call, which the call's last kernel must clear. Once that is launched, say so; if a
  // call fails before, the next one clears all of them itself.
  struct Counters {
    unsigned *now, *next;
  };
  Counters counters();
  void cleared_next();

 private:
  struct Kept;
  static Kept* find(int device, unsigned long long stream);

  Kept* kept_ = nullptr;
};

}  // namespace cephalo
