#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>

#include "cephalo/core/shape.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Threads used by each call: the default is one per core the process may run on. 0 asks for that
// default again; more than kMaxThreads means kMaxThreads. Results never depend on the count.
inline constexpr int kMaxThreads = 1024;
void set_threads(int count);
int threads();
int threads_of_caller();  // the count for a call by this thread: see UseThreads

// The count for the calls that this thread makes while the object lives (0: as before).
class UseThreads {
 public:
  explicit UseThreads(int count);
  ~UseThreads();
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  int previous_;
};

// One parallel region. Pieces are claimed one by one in index order, so a late thread costs
// nothing; which thread runs a piece must not matter to its result.
struct Region {
  dim_t pieces = 0;
  double flops = 0;               // of all pieces: too little work stays in the calling thread
  std::size_t scratch_bytes = 0;  // for each thread, 64-byte aligned, reserved before the region
};

// Calls function(context, piece, scratch) for every piece; parallel_for is the convenient form.
using PieceFunction = void (*)(void* context, dim_t piece, std::byte* scratch);
void run_region(const Region& region, PieceFunction function, void* context);

// Calls body(piece, scratch) for every piece. Any number of threads may call at once; the caller
// always works itself; a call from inside a piece runs in that piece's thread; the first exception
// ends the region and is thrown here; a forked child starts a pool of its own.
template <typename Body>
void parallel_for(const Region& region, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  run_region(
      region,
      [](void* context, dim_t piece, std::byte* scratch) {
        (*static_cast<Plain*>(context))(piece, scratch);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// For pieces that add to one place in a fixed order: returns once `done` is `wanted`. Only for what
// a piece of a lower index brings about: pieces are claimed in index order, so it is at work.
void wait_for_turn(const std::atomic<dim_t>& done, dim_t wanted);

}  // namespace cephalo
#pragma GCC visibility pop
