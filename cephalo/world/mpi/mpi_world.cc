#include "cephalo/world/mpi/mpi_world.h"

// MPI's C++ interface is none of ours.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "cephalo/core/fail.h"
#include "cephalo/world/tags.h"

namespace cephalo {
namespace {

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail(Error::Kind::io, "World: {} failed: {}", call,
       std::string(text, static_cast<std::size_t>(length)));
}

class MpiTransfers : public Transfers {
 public:
  explicit MpiTransfers(double timeout) : Transfers(timeout) {}

  // Left before the end by an error: what is received has nowhere to go any more.
  ~MpiTransfers() override {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  void send(int to, int tag, std::span<const std::byte> bytes) override {
    for_blocks(bytes, [&](std::span<const std::byte> block) {
      check(MPI_Isend(block.data(), static_cast<int>(block.size()), MPI_BYTE, to, tag - kLowestTag,
                      MPI_COMM_WORLD, add(to)),
            "MPI_Isend");
    });
  }

  void receive(int from, int tag, std::span<std::byte> bytes) override {
    for_blocks(bytes, [&](std::span<std::byte> block) {
      check(MPI_Irecv(block.data(), static_cast<int>(block.size()), MPI_BYTE, from,
                      tag - kLowestTag, MPI_COMM_WORLD, add(from)),
            "MPI_Irecv");
    });
  }

  bool progress() override {
    int all = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (all == 0) return false;
    requests_.clear();
    peers_.clear();
    return true;
  }

 private:
  // MPI counts in int.
  template <typename Byte, typename Call>
  static void for_blocks(std::span<Byte> bytes, const Call& call) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    for (std::size_t begin = 0; begin < bytes.size(); begin += kMost) {
      call(bytes.subspan(begin, std::min(kMost, bytes.size() - begin)));
    }
  }

  MPI_Request* add(int peer) {
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back(peer);
    return &requests_.back();
  }

  int awaited() override {
    for (std::size_t k = 0; k < requests_.size(); ++k) {
      int there = 0;
      MPI_Test(&requests_[k], &there, MPI_STATUS_IGNORE);
      if (there == 0) return peers_[k];
    }
    return 0;
  }

  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of the requests
};

int rank_in_mpi() {
  int rank = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of_mpi() {
  int size = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

class MpiWorld : public World {
 public:
  MpiWorld() : World(rank_in_mpi(), size_of_mpi()) {
    MPI_Comm here = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
          "MPI_Comm_split_type");
    check(MPI_Comm_size(here, &processes_here_), "MPI_Comm_size");
    check(MPI_Comm_free(&here), "MPI_Comm_free");
  }

  int processes_here() const override { return processes_here_; }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<MpiTransfers>(timeout());
  }
  void end() override { check(MPI_Finalize(), "MPI_Finalize"); }
  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  int processes_here_ = 1;
};

}  // namespace

std::unique_ptr<World> open_mpi_world() {
  int given = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
  require(given >= MPI_THREAD_FUNNELED, "World: this MPI does not let a process have threads");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return std::make_unique<MpiWorld>();
}

}  // namespace cephalo
