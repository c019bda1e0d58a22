#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Messages on their way while other work is done. Memory that is sent from is not written, and
// memory that is received into not touched, until wait() has returned. What two processes send each
// other under one tag arrives in the order in which it was sent; a message is received into as many
// bytes as were sent. One thread of a process works with its world: the one that opened it.
class Transfers {
 public:
  explicit Transfers(double timeout) : timeout_(timeout) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  virtual ~Transfers() = default;

  virtual void send(int to, int tag, std::span<const std::byte> bytes) = 0;  // tag: from 0 on
  virtual void receive(int from, int tag, std::span<std::byte> bytes) = 0;

  // Moves them on without waiting; are all there? Long messages travel while this is called now and
  // then.
  virtual bool progress() = 0;
  // Returns when all are there. A process that takes longer than the world's timeout is an error.
  virtual void wait();

 private:
  virtual int awaited() = 0;  // a process that something is still expected of

  double timeout_;
};

// Part of a run of elements.
struct Share {
  dim_t begin = 0;
  dim_t end = 0;
  dim_t count() const { return end - begin; }
};
// What process `rank` of `size` has of `count` things in a row: neighbours, and about as many each.
Share share_of(dim_t count, int rank, int size);

// The processes that work on one thing together. Every process makes the same calls in the same
// order; what is added up has an order that ranks alone decide, so results have the same bits
// whatever arrives first.
class World {
 public:
  World(int rank, int size) : rank_(rank), size_(size) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  int rank() const { return rank_; }  // from 0 to size() - 1
  int size() const { return size_; }
  virtual int processes_here() const = 0;  // on this machine

  // How long one process waits for another, in seconds; 0: for ever.
  void set_timeout(double seconds) { timeout_ = seconds; }
  double timeout() const { return timeout_; }

  virtual std::unique_ptr<Transfers> transfers() = 0;  // none yet
  // Does their progress() tell when they are there? Else only wait() does.
  virtual bool tells_progress() const { return true; }

  // Begins to pass `mine` on to the next process and to receive what the one before passes on, of
  // the same size; the last one's next is the first. wait() ends it.
  std::unique_ptr<Transfers> ring_exchange(std::span<const std::byte> mine,
                                           std::span<std::byte> theirs);

  void broadcast(std::span<std::byte> bytes, int root = 0);
  std::string broadcast(const std::string& text, int root = 0);  // -> the root's

  // bytes: shares[r] of them is what process r brings along; every process has all of them then.
  void gather(std::span<std::byte> bytes, const std::vector<Share>& shares);
  std::vector<std::string> gather(const std::string& text);  // -> everyone's, by rank

  // x: dense, float32 or float64 -> the sum over processes, rank after rank, on every one.
  void sum(const MutableTensorView& x);

  bool any(bool mine);  // does one of them say so?

  // An error, on every process, that names the first that differs from process 0.
  void require_same(const char* what, const std::string& mine);

  // The orderly end: returns when every process has come here. Nothing is called after it.
  virtual void end() = 0;
  // Ends all processes now, the others without a word.
  [[noreturn]] virtual void abort(int status) = 0;

 private:
  int rank_;
  int size_;
  double timeout_ = 0.0;
};

// A world of this process alone.
std::unique_ptr<World> world_of_one();

// What `mpirun` says in the environment of a process that it started.
struct Launch {
  int rank = 0;
  int size = 0;  // 0: nobody started this process with others
};
Launch launch_of_this_process();

// The world of all processes that mpirun started together with this one, or of this one alone.
// Without MPI in the build (CEPHALO_MPI) more than one is an error that says so. Once in the life
// of a process.
std::unique_ptr<World> open_world();

}  // namespace cephalo
#pragma GCC visibility pop
