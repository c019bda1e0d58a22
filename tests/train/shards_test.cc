// Training in shards: the same bits for any number of threads and processes.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/linear/ops.h"
#include "cephalo/train/parts.h"
#include "cephalo/train/shard_schedule.h"
#include "cephalo/train/trainer.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_world.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::read_bytes;
using testing::run_in_threads;
using testing::same_bits;

// By its definition: levels of pairs.
double plain_tree(std::vector<double> x) {
  for (std::size_t stride = 1; stride < x.size(); stride *= 2) {
    for (std::size_t i = 0; i + stride < x.size(); i += 2 * stride) x[i] += x[i + stride];
  }
  return x[0];
}

// Numbers that round in any other order.
std::vector<double> numbers(dim_t count) {
  std::vector<double> x;
  for (dim_t k = 0; k < count; ++k) x.push_back(std::ldexp(1.1, static_cast<int>((k * 37) % 61)));
  return x;
}

TEST(ShardScheduleTest, shards_add_as_a_balanced_tree) {
  for (dim_t count = 1; count <= 40; ++count) {
    EXPECT_EQ(tree_sum(numbers(count)), plain_tree(numbers(count))) << count;
  }
}

TEST(AddTreeTest, additions_go_in_order_and_only_sums_that_remain_are_written) {
  constexpr dim_t kCount = 8192 + 700;  // two pieces, and chunks that are not full
  const std::vector<ops::Addition> additions{{0, 1}, {2, 3}, {0, 2}, {5, 0}, {6, 7}};
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<Tensor> terms;
    std::vector<Tensor> plain;
    for (std::uint64_t t = 0; t < 8; ++t) {
      terms.push_back(Tensor::copy(testing::normal({kCount}, t), dtype));
      plain.push_back(Tensor::copy(terms.back()));
    }
    for (const ops::Addition& each : additions) ops::add(plain[each.from], plain[each.to]);
    const Tensor untouched = Tensor::copy(terms[4]);
    std::vector<MutableTensorView> views(terms.begin(), terms.end());
    ops::add_tree(views, additions);
    EXPECT_TRUE(same_bits(terms[5], plain[5]));
    EXPECT_TRUE(same_bits(terms[6], plain[6]));
    EXPECT_TRUE(same_bits(terms[4], untouched));
  }
}

// Runs the schedules of all processes on numbers, and joins what they are left with.
double scheduled_sum(dim_t shards, int processes, dim_t beside) {
  const std::vector<double> x = numbers(shards);
  std::vector<double> left;
  std::vector<ShardNode> nodes;
  std::vector<Addition> additions;
  for (int r = 0; r < processes; ++r) {
    const ShardSchedule schedule = make_schedule(share_of(shards, r, processes), beside);
    std::vector<double> buffers(schedule.buffers, std::nan(""));
    for (const ShardWave& wave : schedule.waves) {
      for (const ShardNode& shard : wave.shards) {
        buffers[shard.buffer] = x[static_cast<std::size_t>(shard.shards.begin)];
      }
      for (const Addition& each : wave.additions) buffers[each.to] += buffers[each.from];
    }
    for (const ShardNode& node : schedule.nodes) {
      push_node(nodes, {node.shards, left.size()}, additions);
      left.push_back(buffers[node.buffer]);
    }
  }
  join_nodes(nodes, additions);
  for (const Addition& each : additions) left[each.to] += left[each.from];
  return left[0];
}

TEST(ShardScheduleTest, the_sum_depends_on_neither_processes_nor_threads) {
  for (const dim_t shards : {1, 2, 3, 5, 8, 12, 16, 21}) {
    for (int processes = 1; processes <= shards; ++processes) {
      for (const dim_t beside : {1, 2, 3, 4, 16}) {
        EXPECT_EQ(scheduled_sum(shards, processes, beside), plain_tree(numbers(shards)))
            << shards << " shards, " << processes << " processes, " << beside << " at a time";
      }
    }
  }
}

TEST(ShardScheduleTest, one_after_the_other_takes_a_buffer_for_each_level) {
  EXPECT_EQ(make_schedule({0, 1}, 1).buffers, 1U);
  EXPECT_EQ(make_schedule({0, 16}, 1).buffers, 5U);
  EXPECT_EQ(make_schedule({0, 16}, 2).buffers, 5U);
  EXPECT_EQ(make_schedule({0, 16}, 16).buffers, 16U);
}

TEST(ShardScheduleTest, threads_are_not_left_idle) {
  EXPECT_EQ(shards_beside(16, 16), 16);
  EXPECT_EQ(shards_beside(16, 2), 2);
  EXPECT_EQ(shards_beside(16, 1), 1);
  EXPECT_EQ(shards_beside(1, 16), 1);
  EXPECT_EQ(shards_beside(4, 16), 1);   // threads inside a shard
  EXPECT_EQ(shards_beside(16, 12), 1);  // a second wave of 4
  EXPECT_EQ(shards_beside(16, 5), 5);
}

TEST(ShardScheduleTest, default_shards_are_the_largest_power_of_two_up_to_16) {
  for (const auto& [batch, shards] : {std::pair<dim_t, dim_t>{1, 1},
                                      {2, 2},
                                      {3, 1},
                                      {12, 4},
                                      {16, 16},
                                      {32, 16},
                                      {48, 16},
                                      {40, 8}}) {
    EXPECT_EQ(default_shards(batch), shards) << batch;
  }
}

TEST(PartsTest, every_element_has_one_owner_and_parts_end_between_pieces) {
  GptOptions o{
      .vocab_size = 1000, .context_length = 8, .d_model = 64, .num_heads = 2, .num_layers = 1};
  const Gpt model(o);
  const std::vector<GptParameter> parameters = model.parameters();
  for (const int processes : {1, 2, 3, 8}) {
    std::vector<dim_t> ends(parameters.size());
    dim_t piece = 0;
    for (const Part& part : make_parts(parameters, processes)) {
      EXPECT_EQ(part.elements.begin, ends[part.parameter]);
      EXPECT_EQ(part.elements.begin % 8192, 0);
      EXPECT_EQ(part.pieces.begin, piece);
      EXPECT_EQ(part.pieces.count(), (part.elements.count() + 8191) / 8192);
      EXPECT_EQ(share_of(piece_count(parameters), part.owner, processes).begin <= piece, true);
      ends[part.parameter] = part.elements.end;
      piece = part.pieces.end;
    }
    EXPECT_EQ(piece, piece_count(parameters));
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      EXPECT_EQ(ends[k], parameters[k].value.numel());
    }
  }
}

// Some parameters have several pieces, so that processes share them.
GptOptions small_model(bool tied = true) {
  return {.vocab_size = 600,
          .context_length = 10,
          .d_model = 32,
          .num_heads = 2,
          .num_layers = 2,
          .dropout = 0.1,
          .tied_head = tied,
          .positions = tied ? PositionKind::rotary : PositionKind::learned,
          .seed = 7};
}

TrainerOptions small_run(dim_t shards, dim_t batch = 16) {
  TrainerOptions o;
  o.schedule = {.learning_rate = 1e-2, .warmup = 2, .steps = 3};
  o.batch = batch;
  o.accumulate = 2;
  o.shards = shards;
  return o;
}

void drawn(std::int64_t number, std::span<std::int64_t> ids) {
  for (std::size_t t = 0; t < ids.size(); ++t) {
    ids[t] = philox(1, {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(t / 2), 0,
                        0})[0] %
             600;
  }
}

RunOptions with_validation() {
  RunOptions run;
  run.validation = drawn;
  run.validation_rows = 7;
  run.validate_every = 2;
  return run;
}

// The checkpoint after a whole run in a world: everything that there is of it.
std::string checkpoint_of(World& world, const GptOptions& options, const TrainerOptions& run,
                          const std::string& path) {
  Gpt model(options);
  Trainer trainer(model, drawn, run, &world);
  EXPECT_TRUE(trainer.run(with_validation()));
  trainer.save(path);
  for (const GptParameter& p : model.parameters()) {
    Tensor sum = Tensor::copy(p.value);
    world.broadcast({static_cast<std::byte*>(sum.mutable_view().mutable_data()), sum.bytes()});
    EXPECT_TRUE(same_bits(sum, p.value)) << p.name << " differs on process " << world.rank();
  }
  world.any(false);  // process 0 has written
  return read_bytes(path);
}

class ShardsTest : public ::testing::Test {
 protected:
  std::string one_process(const GptOptions& model, const TrainerOptions& run) {
    return checkpoint_of(*world_of_one(), model, run, folder_ / "one");
  }
  Folder folder_;
};

TEST_F(ShardsTest, processes_have_the_bits_of_one) {
  const std::string one = one_process(small_model(), small_run(16));
  for (const int size : {2, 3, 4, 8}) {
    run_in_threads(size, [&](World& world) {
      EXPECT_EQ(checkpoint_of(world, small_model(), small_run(16), folder_ / "many"), one) << size;
    });
  }
}

TEST_F(ShardsTest, a_head_of_its_own_is_sent_before_the_blocks) {
  const std::string one = one_process(small_model(false), small_run(8));
  run_in_threads(3, [&](World& world) {
    EXPECT_EQ(checkpoint_of(world, small_model(false), small_run(8), folder_ / "many"), one);
  });
}

TEST_F(ShardsTest, counts_that_are_no_powers_of_two_have_the_same_bits_too) {
  const std::string one = one_process(small_model(), small_run(6, 6));
  for (const int size : {4, 5}) {
    run_in_threads(size, [&](World& world) {
      EXPECT_EQ(checkpoint_of(world, small_model(), small_run(6, 6), folder_ / "many"), one);
    });
  }
}

TEST_F(ShardsTest, threads_beside_or_inside_have_the_same_bits) {
  const int before = threads();
  set_threads(1);
  const std::string one = one_process(small_model(), small_run(16));
  for (const int count : {2, 3, 12}) {  // of these, 12 go inside
    set_threads(count);
    EXPECT_EQ(one_process(small_model(), small_run(16)), one) << count;
  }
  set_threads(before);
}

TEST_F(ShardsTest, shards_change_the_order_of_sums_alone) {
  Gpt model(small_model());
  Trainer trainer(model, drawn, small_run(1));
  const StepRecord record = trainer.step();
  Gpt plain(small_model());
  Trainer shards(plain, drawn, small_run(4));
  const StepRecord other = shards.step();
  EXPECT_NEAR(record.loss, other.loss, 1e-6);
  EXPECT_NEAR(record.gradient_norm, other.gradient_norm, 1e-5);
  EXPECT_NE(record.gradient_norm, other.gradient_norm);  // another order of sums
}

TEST_F(ShardsTest, a_run_continues_on_another_number_of_processes) {
  const std::string whole = one_process(small_model(), small_run(16));
  std::string path = folder_ / "part";
  int step = 0;
  for (const int size : {3, 1, 8}) {
    ++step;
    run_in_threads(size, [&](World& world) {
      Gpt model(small_model());
      Trainer trainer(model, drawn, small_run(16), &world);
      if (step > 1) trainer.load(path);
      EXPECT_EQ(trainer.steps_done(), step - 1);
      RunOptions run = with_validation();
      // One voice of any process stops all.
      run.stop = [&] { return world.rank() == size - 1; };
      EXPECT_EQ(trainer.run(run), step == 3);
      world.any(false);  // all have read
      trainer.save(path);
    });
  }
  EXPECT_EQ(read_bytes(path), whole);
}

TEST_F(ShardsTest, shards_are_in_the_checkpoint_and_absent_means_one) {
  one_process(small_model(), small_run(8));
  EXPECT_EQ(read_checkpoint_summary(folder_ / "one").options.shards, 8);
  const std::string one = one_process(small_model(), small_run(1));
  EXPECT_EQ(read_checkpoint_summary(folder_ / "one").options.shards, 1);
  EXPECT_EQ(one.find("shards"), std::string::npos);
}

TEST_F(ShardsTest, wrong_counts_are_refused) {
  Gpt model(small_model());
  EXPECT_NE(error_of([&] {
              Trainer(model, drawn, small_run(3));
            }).find("shards (3) must divide batch (16)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Trainer(model, drawn, small_run(0)); }), "");
  run_in_threads(3, [&](World& world) {
    Gpt own(small_model());
    EXPECT_EQ(error_of([&] { Trainer(own, drawn, small_run(2), &world); }),
              "Trainer: 3 processes for 2 shards; at most one for each can work");
  });
}

TEST_F(ShardsTest, a_step_that_is_not_finite_is_left_out_by_all) {
  run_in_threads(2, [&](World& world) {
    Gpt model(small_model());
    TrainerOptions options = small_run(4);
    options.schedule.learning_rate = 1e38;
    options.schedule.warmup = 0;
    options.clip = 0.0;
    Trainer trainer(model, drawn, options, &world);
    int skipped = 0;
    for (int k = 0; k < 4; ++k) skipped += trainer.step().skipped ? 1 : 0;
    EXPECT_GE(skipped, 2);
  });
}

TEST(TrainingMemoryTest, shards_side_by_side_take_a_pass_each) {
  const GptOptions model = small_model();
  const TrainerOptions whole = small_run(1);
  const GptMemory one = training_memory(model, whole, 2);
  EXPECT_EQ(one.gradients, one.parameters);
  EXPECT_EQ(one.optimiser, 2 * one.parameters);
  const GptMemory shards = training_memory(model, small_run(16), 2);
  EXPECT_EQ(shards.gradients, 5 * shards.parameters);
  EXPECT_LT(shards.pass, one.pass);
  const GptMemory spread = training_memory(model, small_run(16), 1, 4);
  EXPECT_EQ(spread.gradients, (3 + 1) * spread.parameters);
  EXPECT_EQ(spread.optimiser, spread.parameters / 2);
  EXPECT_NE(error_of([&] { training_memory(model, small_run(2), 1, 3); }), "");
}

}  // namespace
}  // namespace cephalo
