#include "cephalo/core/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/team.h"

namespace cephalo {
namespace {

using Clock = std::chrono::steady_clock;

// WebAssembly is built without its threads: every region stays in the calling thread.
#if defined(__EMSCRIPTEN__)
constexpr bool kHasThreads = false;
#else
constexpr bool kHasThreads = true;
#endif

// Waking a parked thread takes 20–200 µs; below about this much work the caller is done sooner.
constexpr double kFlopsWorthThreads = 2e5;
// An idle worker watches for new work this long before it gives its core back.
constexpr auto kSpin = std::chrono::microseconds(50);

std::atomic<int> configured_threads{0};
thread_local int threads_of_this_thread = 0;
thread_local int region_depth = 0;  // > 0 inside a piece: nested regions run in place

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int cores_of_this_process() {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Scratch of one calling thread, kept between calls. A region nested in a piece has a block of its
// own, because the outer one is in use.
class Arena {
 public:
  ~Arena() {
    for (const Block& block : blocks_) release(block);
  }
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* reserve(int depth, std::size_t bytes) {
    if (bytes == 0) return nullptr;
    const auto level = static_cast<std::size_t>(depth);
    if (level >= blocks_.size()) blocks_.resize(level + 1);
    Block& block = blocks_[level];
    if (block.bytes < bytes) {
      release(block);
      block = {};
      block.memory = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
      if (block.memory == nullptr)
        fail(Error::Kind::memory, "scratch: no memory for {} bytes", bytes);
      block.bytes = bytes;
    }
    return block.memory;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  static void release(const Block& block) { ::operator delete(block.memory, kAlignment); }

  std::vector<Block> blocks_;
};

thread_local Arena arena;

// One region in flight. It lives on its caller's stack until the last helper has left.
struct Job {
  PieceFunction function = nullptr;
  void* context = nullptr;
  dim_t pieces = 0;
  std::byte* scratch = nullptr;  // one slot of scratch_stride bytes per thread
  std::size_t scratch_stride = 0;

  std::atomic<dim_t> next{0};    // the next unclaimed piece
  std::atomic<int> helpers{0};   // workers inside work(); changed under the pool's mutex
  int wanted = 0;                // workers that may still join; under the pool's mutex
  int next_slot = 1;             // slot 0 is the caller's; under the pool's mutex
  std::exception_ptr error;      // the first one; under the pool's mutex
  std::condition_variable left;  // a helper has left
  Job* next_job = nullptr;

  // Runs pieces until none is left; the first exception is returned and ends the region.
  std::exception_ptr work(int slot) {
    std::byte* mine = scratch + static_cast<std::size_t>(slot) * scratch_stride;
    ++region_depth;
    std::exception_ptr thrown;
    try {
      for (dim_t piece = next++; piece < pieces; piece = next++) function(context, piece, mine);
    } catch (...) {
      thrown = std::current_exception();
      next = pieces;
    }
    --region_depth;
    return thrown;
  }
};

class Pool {
 public:
  // Runs the job on the calling thread and up to `helpers` workers; returns when all have left.
  void run(Job& job, int helpers) {
    post(job, helpers);
    std::exception_ptr error = job.work(0);
    const auto deadline = Clock::now() + kSpin;
    while (job.helpers.load(std::memory_order_relaxed) > 0 && Clock::now() < deadline) relax();
    std::unique_lock lock(mutex_);
    remove(job);
    job.left.wait(lock, [&] { return job.helpers == 0; });
    if (!error) error = job.error;
    lock.unlock();
    if (error) std::rethrow_exception(error);
  }

 private:
  void post(Job& job, int helpers) {
    {
      const std::lock_guard lock(mutex_);
      while (workers_ < helpers && start_worker()) {
      }
      job.wanted = helpers;
      job.next_job = jobs_;
      jobs_ = &job;
      posted_.fetch_add(1, std::memory_order_release);
    }
    for (int k = 0; k < helpers; ++k) wake_.notify_one();
  }

  bool start_worker() {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {
      return false;  // the caller works alone; the result is the same
    }
    ++workers_;
    return true;
  }

  void remove(Job& job) {
    Job** link = &jobs_;
    while (*link != &job) link = &(*link)->next_job;
    *link = job.next_job;
  }

  Job* joinable() {
    for (Job* job = jobs_; job != nullptr; job = job->next_job) {
      if (job->wanted > 0 && job->next.load(std::memory_order_relaxed) < job->pieces) return job;
    }
    return nullptr;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (Job* job = joinable()) {
        help(*job, lock);
        continue;
      }
      const auto seen = posted_.load(std::memory_order_relaxed);
      lock.unlock();
      const auto deadline = Clock::now() + kSpin;
      while (posted_.load(std::memory_order_acquire) == seen && Clock::now() < deadline) relax();
      lock.lock();
      wake_.wait(lock, [&] { return posted_.load(std::memory_order_relaxed) != seen; });
    }
  }

  void help(Job& job, std::unique_lock<std::mutex>& lock) {
    --job.wanted;
    ++job.helpers;
    const int slot = job.next_slot++;
    lock.unlock();
    std::exception_ptr error = job.work(slot);
    lock.lock();
    if (error && !job.error) job.error = error;
    // Told under the mutex: the caller may end the job as soon as it holds the mutex again.
    if (--job.helpers == 0) job.left.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> posted_{0};  // jobs ever posted: what idle workers watch
  Job* jobs_ = nullptr;
  int workers_ = 0;
};

// A job on somebody else's threads. Whoever comes first has slot 0; those beyond `count` have
// nothing to do.
class TeamJob {
 public:
  TeamJob(Job& job, int count) : job_(job), count_(count) {}

  void run(RunTeam team) {
    team([](void* context) { static_cast<TeamJob*>(context)->take_part(); }, this);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void take_part() {
    const int slot = slots_++;
    if (slot >= count_) return;
    const std::exception_ptr error = job_.work(slot);
    if (!error) return;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }

  Job& job_;
  int count_;
  std::atomic<int> slots_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
};

// Never destroyed: workers may outlive the statics. A forked child has none of the parent's
// workers, so it forgets the parent's pool, and the team.
std::atomic<Pool*> current_pool{nullptr};
std::atomic<RunTeam> current_team{nullptr};
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
  current_pool = nullptr;
  current_team = nullptr;
});

Pool& pool() {
  Pool* present = current_pool.load(std::memory_order_acquire);
  if (present != nullptr) return *present;
  auto* fresh = new Pool;
  if (current_pool.compare_exchange_strong(present, fresh)) return *fresh;
  delete fresh;
  return *present;
}

int threads_for(const Region& region) {
  if (!kHasThreads || region_depth > 0 || region.flops < kFlopsWorthThreads) return 1;
  return static_cast<int>(std::min<dim_t>(threads_of_caller(), region.pieces));
}

}  // namespace

void set_threads(int count) {
  require(count >= 0, "set_threads: count ({}) must be >= 0; 0 means one per core", count);
  configured_threads = std::min(count, kMaxThreads);
}

int threads() {
  const int configured = configured_threads.load(std::memory_order_relaxed);
  if (configured > 0) return configured;
  // No constant: the child of a fork that catches another thread making one would wait for it.
  static std::atomic<int> cores{0};
  if (cores.load(std::memory_order_relaxed) == 0) {
    cores = std::min(cores_of_this_process(), kMaxThreads);
  }
  return cores.load(std::memory_order_relaxed);
}

int threads_of_caller() {
  return threads_of_this_thread > 0 ? std::min(threads_of_this_thread, kMaxThreads) : threads();
}

UseThreads::UseThreads(int count) : previous_(threads_of_this_thread) {
  require(count >= 0, "threads ({}) must be >= 0; 0 means the default", count);
  if (count > 0) threads_of_this_thread = count;
}

UseThreads::~UseThreads() {
  threads_of_this_thread = previous_;
}

void run_region(const Region& region, PieceFunction function, void* context) {
  if (region.pieces <= 0) return;
  const int count = threads_for(region);
  Job job;
  job.function = function;
  job.context = context;
  job.pieces = region.pieces;
  job.scratch_stride = (region.scratch_bytes + 63) / 64 * 64;
  job.scratch = arena.reserve(region_depth, job.scratch_stride * static_cast<std::size_t>(count));
  if (count == 1) {
    if (const std::exception_ptr error = job.work(0)) std::rethrow_exception(error);
  } else if (const RunTeam team = current_team.load(std::memory_order_acquire)) {
    TeamJob(job, count).run(team);
  } else {
    pool().run(job, count - 1);
  }
}

void set_team(RunTeam run) {
  current_team.store(run, std::memory_order_release);
}

void wait_for_turn(const std::atomic<dim_t>& done, dim_t wanted) {
  // With more threads than cores the one that is waited for may need this core.
  constexpr int kSpins = 1000;
  for (int spins = 0; done.load(std::memory_order_acquire) != wanted; ++spins) {
    spins < kSpins ? relax() : std::this_thread::yield();
  }
}

}  // namespace cephalo
