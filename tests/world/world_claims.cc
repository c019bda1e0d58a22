#include "tests/world/world_claims.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

void everyone_hears_the_root(World& world) {
  for (int root = 0; root < world.size(); ++root) {
    std::vector<int> numbers(1000, world.rank());
    world.broadcast(bytes_of(numbers), root);
    EXPECT_EQ(numbers, std::vector<int>(1000, root));
    EXPECT_EQ(world.broadcast("text of " + std::to_string(world.rank()), root),
              "text of " + std::to_string(root));
  }
}

void gathering_takes_shares_of_any_size(World& world) {
  // Shares of 0, 1, 2, ... bytes.
  std::vector<Share> shares;
  for (int r = 0; r < world.size(); ++r) {
    const dim_t begin = r == 0 ? 0 : shares.back().end;
    shares.push_back({begin, begin + r});
  }
  std::vector<std::uint8_t> all(static_cast<std::size_t>(shares.back().end), 255);
  const Share mine = shares[static_cast<std::size_t>(world.rank())];
  for (dim_t k = mine.begin; k < mine.end; ++k)
    all[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(world.rank());
  world.gather(bytes_of(all), shares);
  std::size_t at = 0;
  for (int r = 0; r < world.size(); ++r) {
    for (int k = 0; k < r; ++k) EXPECT_EQ(all[at++], r);
  }
  const std::vector<std::string> texts =
      world.gather(std::string(static_cast<std::size_t>(world.rank()), 'x'));
  ASSERT_EQ(std::ssize(texts), world.size());
  for (int r = 0; r < world.size(); ++r) {
    EXPECT_EQ(texts[static_cast<std::size_t>(r)].size(), static_cast<std::size_t>(r));
  }
}

// Numbers of very different sizes: any other order rounds otherwise.
float number_of(int rank, std::size_t k) {
  return std::ldexp(1.0F + static_cast<float>(k % 7),
                    static_cast<int>((k * 5 + 11 * static_cast<std::size_t>(rank)) % 30));
}

void sums_go_rank_after_rank(World& world) {
  for (const std::size_t count : {0, 1, 2, 5, 1000, 300'000}) {
    Tensor x = Tensor::empty({static_cast<dim_t>(count)});
    auto* values = x.mutable_data_as<float>();
    for (std::size_t k = 0; k < count; ++k) values[k] = number_of(world.rank(), k);
    world.sum(x);
    for (std::size_t k = 0; k < count; ++k) {
      float sum = number_of(0, k);
      for (int r = 1; r < world.size(); ++r) sum += number_of(r, k);
      ASSERT_EQ(values[k], sum) << k;
    }
  }
  Tensor wide = Tensor::empty({3}, DType::f64);
  wide.mutable_view().fill(0.1);
  world.sum(wide);
  double sum = 0.1;
  for (int r = 1; r < world.size(); ++r) sum += 0.1;
  EXPECT_EQ(wide.at({2}), sum);
}

// Two exchanges overlap, as keys and values do that travel on while others are worked on.
void a_ring_brings_what_every_process_has(World& world) {
  constexpr std::size_t kCount = 100'000;
  std::vector<float> mine(kCount, static_cast<float>(world.rank()));
  std::vector<float> other(kCount, static_cast<float>(-world.rank()));
  for (int turn = 1; turn <= world.size(); ++turn) {
    std::vector<float> next(kCount);
    std::vector<float> next_other(kCount);
    const auto one = world.ring_exchange(bytes_of(mine), bytes_of(next));
    const auto two = world.ring_exchange(bytes_of(other), bytes_of(next_other));
    while (!two->progress()) {
    }
    one->wait();
    mine.swap(next);
    other.swap(next_other);
    const int from = (world.rank() + world.size() * 2 - turn) % world.size();
    EXPECT_EQ(mine, std::vector<float>(kCount, static_cast<float>(from)));
    EXPECT_EQ(other, std::vector<float>(kCount, static_cast<float>(-from)));
  }
}

void messages_under_one_tag_keep_their_order(World& world) {
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  if (world.size() == 1) return;
  std::vector<int> out(50);
  std::iota(out.begin(), out.end(), 0);
  std::vector<int> in(50, -1);
  const auto messages = world.transfers();
  for (std::size_t k = 0; k < in.size(); ++k) {
    messages->receive(before, static_cast<int>(k % 2),
                      std::as_writable_bytes(std::span(in).subspan(k, 1)));
  }
  for (const std::size_t first : {1, 0}) {  // the other tag first
    for (std::size_t k = first; k < out.size(); k += 2) {
      messages->send(next, static_cast<int>(first), std::as_bytes(std::span(out).subspan(k, 1)));
    }
  }
  messages->wait();
  EXPECT_EQ(in, out);
}

void one_voice_is_enough(World& world) {
  EXPECT_FALSE(world.any(false));
  for (int r = 0; r < world.size(); ++r) EXPECT_TRUE(world.any(world.rank() == r));
}

void differences_are_named_on_every_process(World& world) {
  world.require_same("the build", "1.0");
  if (world.size() == 1) return;
  const std::string mine = world.rank() == world.size() - 1 ? "avx2" : "avx512";
  const std::string error = error_of([&] { world.require_same("instruction set", mine); });
  EXPECT_EQ(error, "World: instruction set of process " + std::to_string(world.size() - 1) +
                       " is avx2, that of process 0 is avx512");
}

void who_does_not_answer_is_named(World& world) {
  if (world.size() == 1) return;
  world.set_timeout(0.05);
  const int next = (world.rank() + 1) % world.size();
  std::string error;
  {
    std::byte nothing{};
    const auto messages = world.transfers();
    messages->receive(next, 7, std::span(&nothing, 1));
    error = error_of([&] { messages->wait(); });
  }
  EXPECT_NE(error.find("process " + std::to_string(next) + " has not answered for 0.05 s"),
            std::string::npos)
      << error;
  world.set_timeout(0.0);
  world.any(false);
}

}  // namespace

const std::vector<std::pair<std::string, WorldClaim>>& world_claims() {
  static const std::vector<std::pair<std::string, WorldClaim>> kClaims{
      {"everyone_hears_the_root", everyone_hears_the_root},
      {"gathering_takes_shares_of_any_size", gathering_takes_shares_of_any_size},
      {"sums_go_rank_after_rank", sums_go_rank_after_rank},
      {"a_ring_brings_what_every_process_has", a_ring_brings_what_every_process_has},
      {"messages_under_one_tag_keep_their_order", messages_under_one_tag_keep_their_order},
      {"one_voice_is_enough", one_voice_is_enough},
      {"differences_are_named_on_every_process", differences_are_named_on_every_process},
      {"who_does_not_answer_is_named", who_does_not_answer_is_named}};
  return kClaims;
}

}  // namespace cephalo::testing
