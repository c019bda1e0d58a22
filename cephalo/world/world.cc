#include "cephalo/world/world.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "cephalo/core/fail.h"
#include "cephalo/world/patience.h"
#include "cephalo/world/tags.h"

namespace cephalo {
namespace {

std::vector<Share> equal_shares(dim_t count, int size) {
  std::vector<Share> shares;
  for (int r = 0; r < size; ++r) shares.push_back(share_of(count, r, size));
  return shares;
}

std::span<std::byte> part_of(std::span<std::byte> bytes, const Share& share) {
  return bytes.subspan(static_cast<std::size_t>(share.begin),
                       static_cast<std::size_t>(share.count()));
}

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Each process adds up its share of the elements, all of them rank after rank.
template <typename T>
void add_shares(World& world, std::span<T> x) {
  const auto shares = equal_shares(std::ssize(x), world.size());
  const Share mine = shares[static_cast<std::size_t>(world.rank())];
  const auto count = static_cast<std::size_t>(mine.count());
  const std::span<T> sum = x.subspan(static_cast<std::size_t>(mine.begin), count);
  std::vector<T> brought(count * static_cast<std::size_t>(world.size()));
  const auto of_rank = [&](int r) {
    return std::span(brought).subspan(count * static_cast<std::size_t>(r), count);
  };
  const auto transfers = world.transfers();
  for (int r = 0; r < world.size(); ++r) {
    if (r == world.rank()) continue;
    const Share& theirs = shares[static_cast<std::size_t>(r)];
    transfers->receive(r, kCollectiveTag, std::as_writable_bytes(of_rank(r)));
    transfers->send(r, kCollectiveTag,
                    std::as_bytes(x.subspan(static_cast<std::size_t>(theirs.begin),
                                            static_cast<std::size_t>(theirs.count()))));
  }
  std::copy(sum.begin(), sum.end(), of_rank(world.rank()).begin());
  transfers->wait();
  std::copy_n(of_rank(0).begin(), count, sum.begin());
  for (int r = 1; r < world.size(); ++r) {
    const std::span<T> more = of_rank(r);
    for (std::size_t k = 0; k < count; ++k) sum[k] += more[k];
  }
  const auto all = std::as_writable_bytes(x);
  std::vector<Share> in_bytes;
  for (const Share& s : shares) {
    constexpr auto kItem = static_cast<dim_t>(sizeof(T));
    in_bytes.push_back({s.begin * kItem, s.end * kItem});
  }
  world.gather(all, in_bytes);
}

class WorldOfOne : public World {
 public:
  WorldOfOne() : World(0, 1) {}
  int processes_here() const override { return 1; }
  std::unique_ptr<Transfers> transfers() override { return std::make_unique<None>(); }
  void end() override {}
  void abort(int status) override { std::_Exit(status); }

 private:
  // A process sends itself nothing.
  class None : public Transfers {
   public:
    None() : Transfers(0.0) {}
    void send(int to, int, std::span<const std::byte>) override { refuse(to); }
    void receive(int from, int, std::span<std::byte>) override { refuse(from); }
    bool progress() override { return true; }

   private:
    [[noreturn]] static void refuse(int rank) {
      fail(Error::Kind::value, "World: there is no process {} to exchange with in a world of one",
           rank);
    }
    int awaited() override { return 0; }
  };
};

}  // namespace

void Patience::nap() const {
  using std::chrono::microseconds;
  constexpr microseconds kSpin{20};
  constexpr microseconds kYield{2000};
  constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 100'000};
  const auto waited = Clock::now() - begin_;
  if (waited < kSpin) return;
  if (waited < kYield) {
    sched_yield();
  } else {
    nanosleep(&kNap, nullptr);
  }
}

bool Patience::is_out() const {
  return timeout_ > 0.0 && std::chrono::duration<double>(Clock::now() - begin_).count() > timeout_;
}

void Patience::give_up(int awaited) const {
  fail(Error::Kind::io,
       "World: process {} has not answered for {} s; it is stopped, its machine cannot be "
       "reached, or it needs more time (timeout)",
       awaited, timeout_);
}

void Transfers::wait() {
  const Patience patience(timeout_);
  while (!progress()) {
    if (patience.is_out()) patience.give_up(awaited());
    patience.nap();
  }
}

Share share_of(dim_t count, int rank, int size) {
  require(count >= 0 && size >= 1 && rank >= 0 && rank < size,
          "share_of: there is no share {} of {} things among {}", rank, count, size);
  // Shares differ by one at most, and no product can overflow.
  const dim_t each = count / size;
  const dim_t more = count % size;
  const dim_t begin = each * rank + std::min<dim_t>(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

std::unique_ptr<Transfers> World::ring_exchange(std::span<const std::byte> mine,
                                                std::span<std::byte> theirs) {
  require(mine.size() == theirs.size(), "World::ring_exchange: {} bytes to pass on, room for {}",
          mine.size(), theirs.size());
  auto exchange = transfers();
  if (size_ == 1) {
    std::copy(mine.begin(), mine.end(), theirs.begin());
    return exchange;
  }
  exchange->receive((rank_ + size_ - 1) % size_, kRingTag, theirs);
  exchange->send((rank_ + 1) % size_, kRingTag, mine);
  return exchange;
}

void World::broadcast(std::span<std::byte> bytes, int root) {
  require(root >= 0 && root < size_, "World::broadcast: there is no process {} of {}", root, size_);
  const auto messages = transfers();
  if (rank_ != root) {
    messages->receive(root, kCollectiveTag, bytes);
  } else {
    for (int r = 0; r < size_; ++r) {
      if (r != root) messages->send(r, kCollectiveTag, bytes);
    }
  }
  messages->wait();
}

std::string World::broadcast(const std::string& text, int root) {
  std::vector<std::uint64_t> length{text.size()};
  broadcast(bytes_of(length), root);
  std::string all = rank_ == root ? text : std::string(length[0], '\0');
  broadcast(bytes_of(all), root);
  return all;
}

void World::gather(std::span<std::byte> bytes, const std::vector<Share>& shares) {
  require(std::ssize(shares) == size_, "World::gather: {} shares for {} processes", shares.size(),
          size_);
  const auto messages = transfers();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    messages->receive(r, kCollectiveTag, part_of(bytes, shares[static_cast<std::size_t>(r)]));
    messages->send(r, kCollectiveTag, part_of(bytes, shares[static_cast<std::size_t>(rank_)]));
  }
  messages->wait();
}

std::vector<std::string> World::gather(const std::string& text) {
  constexpr dim_t kItem = sizeof(std::uint64_t);
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size_));
  lengths[static_cast<std::size_t>(rank_)] = text.size();
  gather(bytes_of(lengths), equal_shares(size_ * kItem, size_));
  std::vector<Share> shares;
  dim_t end = 0;
  for (const std::uint64_t length : lengths) {
    shares.push_back({end, end + static_cast<dim_t>(length)});
    end = shares.back().end;
  }
  std::string all(static_cast<std::size_t>(end), '\0');
  const Share mine = shares[static_cast<std::size_t>(rank_)];
  all.replace(static_cast<std::size_t>(mine.begin), text.size(), text);
  gather(bytes_of(all), shares);
  std::vector<std::string> texts;
  for (const Share& s : shares) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(s.begin), static_cast<std::size_t>(s.count())));
  }
  return texts;
}

void World::sum(const MutableTensorView& x) {
  require_type(x.dtype() == DType::f32 || x.dtype() == DType::f64,
               "World::sum: x is {}, float32 or float64 is needed", name(x.dtype()));
  require(x.is_contiguous(), "World::sum: x {} is not dense", x.shape());
  const auto count = static_cast<std::size_t>(x.numel());
  if (x.dtype() == DType::f64) {
    add_shares(*this, std::span(x.mutable_data_as<double>(), count));
  } else {
    add_shares(*this, std::span(x.mutable_data_as<float>(), count));
  }
}

bool World::any(bool mine) {
  std::vector<std::uint8_t> said(static_cast<std::size_t>(size_));
  said[static_cast<std::size_t>(rank_)] = mine ? 1 : 0;
  gather(bytes_of(said), equal_shares(size_, size_));
  return std::find(said.begin(), said.end(), 1) != said.end();
}

void World::require_same(const char* what, const std::string& mine) {
  const std::vector<std::string> all = gather(mine);
  for (std::size_t r = 1; r < all.size(); ++r) {
    require(all[r] == all[0], "World: {} of process {} is {}, that of process 0 is {}", what, r,
            all[r], all[0]);
  }
}

std::unique_ptr<World> world_of_one() {
  return std::make_unique<WorldOfOne>();
}

}  // namespace cephalo
