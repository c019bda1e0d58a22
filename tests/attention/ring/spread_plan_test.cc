#include "cephalo/attention/ring/spread_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/attention/ring/attend_heads.h"
#include "cephalo/attention/ring/attend_ring.h"
#include "tests/support/ring_rows.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_world.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::normal;

// Two processes with 4 tokens each; 4 heads that share 2 of keys and values, 4 wide.
SpreadShape small_shape() {
  return {.processes = 2, .num_heads = 4, .num_kv_heads = 2, .tokens = 8, .head_dim = 4};
}

TEST(SpreadPlanTest, a_ring_sends_its_keys_once_to_every_other_process) {
  const SpreadPlan found = plan(small_shape(), {}, {64.0, 32.0, 1.0});
  EXPECT_EQ(found.ring.bytes, 4 * 2 * (4 + 4) * 4);
  EXPECT_EQ(found.ring.messages, 1);
  // Its own keys and those that come, 2 rows of 4 heads: context and lse.
  EXPECT_EQ(found.ring.memory, 256 + 256 + 2 * 4 * (4 + 1) * 4);
}

TEST(SpreadPlanTest, help_takes_memory_where_pieces_are_long) {
  SpreadShape shape{.processes = 2, .num_heads = 8, .tokens = dim_t{4} * 700, .head_dim = 64};
  const double keys = 2 * 700 * 8 * 128 * 4;
  const double result = 700 * 8 * 65 * 4;
  const SpreadCosts costs{1, 1, 0};
  const double q = 700 * 8 * 64 * 4;
  EXPECT_EQ(plan(shape, {}, costs).ring.memory, 2 * keys + 4 * result + 2.5 * (q + keys / 2));
  shape.tokens /= 2;  // too short
  EXPECT_EQ(plan(shape, {}, costs).ring.memory, (2 * keys + result) / 2);
}

TEST(SpreadPlanTest, numbers_of_16_bits_are_widened_where_they_are_added_up) {
  SpreadShape shape = small_shape();
  shape.dtype = DType::bf16;
  const SpreadCosts costs{64.0, 32.0, 1.0};
  // Half the keys; context, 4 rows of 4 heads, until it is rounded.
  EXPECT_EQ(plan(shape, {}, costs).ring.memory, 128 + 128 + 2 * 4 * (4 + 1) * 4 + 4 * 4 * 4 * 4);
  const double with_16_bits = [&] {
    shape.backward = true;
    return plan(shape, {}, costs).ring.memory;
  }();
  shape.dtype = DType::f32;
  // Twice the keys, but no q, context and dcontext, and no keys at hand besides.
  EXPECT_EQ(with_16_bits - plan(shape, {}, costs).ring.memory, 3 * 4 * 4 * 4 * 4 + 256 - 256);
}

TEST(SpreadPlanTest, on_the_way_back_gradients_come_home) {
  SpreadShape shape = small_shape();
  shape.backward = true;
  const SpreadPlan found = plan(shape, {}, {64.0, 32.0, 1.0});
  EXPECT_EQ(found.ring.bytes, 256 + 2 * 256);
  EXPECT_EQ(found.ring.messages, 3);
  // Of q, context and dcontext two heads of four, of k and v one of two, lse; then dq, dk and dv.
  EXPECT_EQ(found.heads.bytes, 3 * 128 + 128 + 4 * 2 * 4 + 128 + 128);
  EXPECT_EQ(found.heads.messages, 9);
}

TEST(SpreadPlanTest, heads_send_what_others_compute_and_get_their_rows_back) {
  const SpreadPlan found = plan(small_shape(), {}, {64.0, 32.0, 1.0});
  // q of two heads, k and v of one, for 4 tokens; context and lse of two heads for 4 others.
  EXPECT_EQ(found.heads.bytes, 4 * 2 * 4 * 4 + 4 * (4 + 4) * 4 + 4 * 2 * (4 * 4 + 4));
  EXPECT_EQ(found.heads.messages, 5);
}

TEST(SpreadPlanTest, keys_travel_while_others_are_attended_to) {
  // 64 flops for a pair: 10 pairs of each process with its own keys, 8 with the other's.
  const SpreadPlan fast = plan(small_shape(), causal(), {64.0, 32.0, 1.0});
  EXPECT_EQ(fast.ring.flops, 18 * 64);
  EXPECT_DOUBLE_EQ(fast.ring.seconds, 10 + 8);
  const SpreadPlan slow = plan(small_shape(), causal(), {64.0, 16.0, 1.0});
  EXPECT_DOUBLE_EQ(slow.ring.seconds, (1 + 256 / 16.0) + 8);
  EXPECT_DOUBLE_EQ(fast.heads.seconds, 18 + 5 * 1 + 416 / 32.0);
}

TEST(SpreadPlanTest, the_slowest_decides_unless_others_help_it) {
  SpreadShape shape{.processes = 2, .num_heads = 8, .tokens = 8192, .head_dim = 64};
  const SpreadCosts costs{1e11, 1e15, 0.0, 2e11};
  const SpreadPlan long_one = plan(shape, causal(), costs);
  EXPECT_DOUBLE_EQ(long_one.ring.seconds, long_one.ring.flops / 2e11);
  EXPECT_DOUBLE_EQ(long_one.heads.seconds - long_one.heads.bytes / 1e15,
                   long_one.heads.flops / 1e11);
  shape.backward = true;
  EXPECT_GE(plan(shape, causal(), costs).ring.seconds, 2.5 * long_one.ring.flops / 1e11);
  shape.backward = false;
  shape.tokens = 1024;  // too short for help
  const SpreadPlan short_one = plan(shape, causal(), costs);
  EXPECT_DOUBLE_EQ(short_one.ring.seconds, short_one.ring.flops / 1e11);
}

TEST(SpreadPlanTest, says_which_way_and_why) {
  SpreadShape shape{.processes = 4, .num_heads = 8, .tokens = 4096, .head_dim = 64};
  const SpreadCosts slow_network{1e11, 1e9, 1e-5};
  EXPECT_EQ(plan(shape, causal(), slow_network).by, Spread::By::ring);
  shape.tokens = 64;
  shape.num_kv_heads = 8;
  const SpreadCosts far_apart{1e12, 1e12, 1e-3};
  EXPECT_EQ(plan(shape, causal(), far_apart).by, Spread::By::ring) << "3 messages, not 15";
  const SpreadCosts narrow{1e12, 1e7, 1e-7};
  const SpreadPlan by_heads = plan(shape, {}, narrow);
  EXPECT_EQ(by_heads.by, Spread::By::heads) << by_heads.to_string();
  EXPECT_NE(by_heads.why.find(" s instead of "), std::string::npos);
  shape.processes = 16;
  shape.tokens = 4096;
  EXPECT_EQ(plan(shape, causal(), slow_network).why,
            "heads would leave 8 of 16 processes without work");
  const Tensor keep = Tensor::full({4096, 4096}, 1.0, DType::u8);
  EXPECT_NE(plan(shape, cephalo::keep(keep), slow_network).why.find("heads cannot"),
            std::string::npos);
  EXPECT_NE(error_of([&] { plan(shape, {}, {}); }).find("measure_costs"), std::string::npos);
}

TEST(SpreadPlanTest, long_pieces_are_sampled_without_a_bias) {
  const SpreadShape shape{.processes = 4, .tokens = 9001, .head_dim = 8};
  const double pairs = 9001.0 * 9002.0 / 2;
  EXPECT_NEAR(plan(shape, causal(), {1, 1, 0}).heads.flops, 32.0 * pairs, 1e-3 * 32.0 * pairs);
}

// Counts what a process sends for itself, not the world's own messages.
class CountingWorld : public World {
 public:
  explicit CountingWorld(World& world) : World(world.rank(), world.size()), world_(world) {}
  int processes_here() const override { return world_.processes_here(); }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<Counting>(*this, world_.transfers());
  }
  void end() override {}
  void abort(int status) override { world_.abort(status); }

  double bytes = 0.0;
  double messages = 0.0;

 private:
  class Counting : public Transfers {
   public:
    Counting(CountingWorld& world, std::unique_ptr<Transfers> inner)
        : Transfers(0.0), world_(world), inner_(std::move(inner)) {}
    void send(int to, int tag, std::span<const std::byte> message) override {
      if (tag >= 0) {
        world_.bytes += static_cast<double>(message.size());
        world_.messages += 1.0;
      }
      inner_->send(to, tag, message);
    }
    void receive(int from, int tag, std::span<std::byte> message) override {
      inner_->receive(from, tag, message);
    }
    bool progress() override { return inner_->progress(); }
    void wait() override { inner_->wait(); }

   private:
    int awaited() override { return 0; }
    CountingWorld& world_;
    std::unique_ptr<Transfers> inner_;
  };

  World& world_;
};

// The most that a process sends of all.
double most_of(World& world, double mine) {
  std::vector<double> all(static_cast<std::size_t>(world.size()));
  all[static_cast<std::size_t>(world.rank())] = mine;
  Tensor sum = Tensor::copy(TensorView(all.data(), {world.size()}));
  world.sum(sum);
  return *std::max_element(sum.data_as<double>(), sum.data_as<double>() + world.size());
}

TEST(SpreadPlanTest, what_is_sent_is_what_the_plan_says) {
  for (const int size : {1, 2, 3, 4}) {
    testing::run_in_threads(size, [&](World& threads) {
      CountingWorld world(threads);
      SpreadShape shape{.processes = size,
                        .batch = 2,
                        .num_heads = 6,
                        .num_kv_heads = 3,
                        .tokens = 29,
                        .head_dim = 8,
                        .v_dim = 4};
      const RingShare share = ring_share(29, world.rank(), size);
      const Tensor q = testing::rows_of(normal({2, 6, 29, 8}, 1), 2, share);
      const Tensor k = testing::rows_of(normal({2, 3, 29, 8}, 2), 2, share);
      const Tensor v = testing::rows_of(normal({2, 3, 29, 4}, 3), 2, share);
      const auto compare = [&](const SpreadPlan::Way& way, const auto& call) {
        world.bytes = world.messages = 0.0;
        call();
        EXPECT_EQ(most_of(threads, world.bytes), way.bytes) << size;
        EXPECT_EQ(most_of(threads, world.messages), way.messages) << size;
      };
      const SpreadCosts costs{1, 1, 0};
      const SpreadPlan there = plan(shape, causal(), costs);
      shape.backward = true;
      const SpreadPlan back = plan(shape, causal(), costs);
      AttendResult found;
      compare(there.ring, [&] { found = attend_ring(world, 29, q, k, v, causal()); });
      const AttendPass pass{found.context, found.lse, found.context};
      compare(back.ring, [&] { attend_ring_backward(world, 29, pass, q, k, v, causal()); });
      compare(there.heads, [&] { attend_heads(world, 29, q, k, v, causal()); });
      compare(back.heads, [&] { attend_heads_backward(world, 29, pass, q, k, v, causal()); });
    });
  }
}

TEST(SpreadPlanTest, costs_are_measured) {
  testing::run_in_threads(2, [&](World& world) {
    const SpreadCosts costs = measure_costs(world, 1);
    EXPECT_GT(costs.flops, 1e6);
    EXPECT_GE(costs.mean_flops, costs.flops);
    EXPECT_GT(costs.bandwidth, 1e6);
    EXPECT_GT(costs.latency, 0.0);
    EXPECT_LT(costs.latency, 1.0);
  });
}

}  // namespace
}  // namespace cephalo
