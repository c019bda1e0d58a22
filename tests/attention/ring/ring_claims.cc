#include "tests/attention/ring/ring_claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "cephalo/attention/ring/attend_heads.h"
#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/attention/ring/ring_help.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/support/mask_spec.h"
#include "tests/support/ring_rows.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

double relative_difference(const TensorView& a, const TensorView& b) {
  return largest_difference(a, b) / std::max(1.0, largest_magnitude(b));
}

// keep, drop and bias with the query rows of one process.
Mask mask_of(const Mask& whole, const RingShare& share) {
  Mask mask = whole;
  for (MaskTensor& part : mask.tensors) {
    if (part.view.dim(-2) == 1) continue;
    part.owner = std::make_shared<const Tensor>(rows_of(part.view, part.view.rank() - 2, share));
    part.view = *part.owner;
  }
  return mask;
}

struct Problem {
  Problem(const MaskExtent& e, dim_t kv_heads, dim_t dim, DType dtype)
      : q(normal({e.batch, e.num_heads, e.q_tokens, dim}, 5, dtype)),
        k(normal({e.batch, kv_heads, e.kv_tokens, dim}, 6, dtype)),
        v(normal({e.batch, kv_heads, e.kv_tokens, dim}, 7, dtype)),
        dcontext(normal({e.batch, e.num_heads, e.q_tokens, dim}, 8, dtype)),
        dlse(normal({e.batch, e.num_heads, e.q_tokens}, 9,
                    dtype == DType::f64 ? DType::f64 : DType::f32)) {}
  Tensor q, k, v, dcontext, dlse;
};

struct Found {
  AttendResult forward;
  AttendGradients back;
};

// In one process.
Found whole_of(const Problem& p, const Mask& mask, AttendOptions options) {
  options.return_lse = true;
  Found all;
  all.forward = attend(p.q, p.k, p.v, mask, options);
  all.back = attend_backward({all.forward.context, all.forward.lse, p.dcontext, p.dlse}, p.q, p.k,
                             p.v, mask, options, true);
  return all;
}

enum class Way { ring, heads };

// This process's rows, over the world.
Found spread(World& world, const Problem& p, const Mask& mask, const AttendOptions& options,
             Way way = Way::ring) {
  const dim_t tokens = p.q.dim(2);
  const RingShare share = ring_share(tokens, world.rank(), world.size());
  const Tensor q = rows_of(p.q, 2, share);
  const Tensor k = rows_of(p.k, 2, share);
  const Tensor v = rows_of(p.v, 2, share);
  const Tensor dcontext = rows_of(p.dcontext, 2, share);
  const Tensor dlse = rows_of(p.dlse, 2, share);
  const Mask own = mask_of(mask, share);
  Found found;
  if (way == Way::ring) {
    found.forward = attend_ring(world, tokens, q, k, v, own, options);
    const AttendPass pass{found.forward.context, found.forward.lse, dcontext, dlse};
    found.back = attend_ring_backward(world, tokens, pass, q, k, v, own, options, true);
  } else {
    found.forward = attend_heads(world, tokens, q, k, v, own, options);
    const AttendPass pass{found.forward.context, found.forward.lse, dcontext, dlse};
    found.back = attend_heads_backward(world, tokens, pass, q, k, v, own, options);
  }
  return found;
}

// The largest difference between what a process found and its rows of the whole.
double error_of_rows(const World& world, const Found& own, const Found& whole) {
  const RingShare share = ring_share(whole.forward.context.dim(2), world.rank(), world.size());
  double error = 0.0;
  const auto compare = [&](const TensorView& mine, const TensorView& all, int axis) {
    error = std::max(error, relative_difference(mine, rows_of(all, axis, share)));
  };
  compare(own.forward.context, whole.forward.context, 2);
  compare(own.forward.lse, whole.forward.lse, 2);
  compare(own.back.dq, whole.back.dq, 2);
  compare(own.back.dk, whole.back.dk, 2);
  compare(own.back.dv, whole.back.dv, 2);
  for (std::size_t n = 0; n < own.back.dbias.size(); ++n) {
    const TensorView all = whole.back.dbias[n];
    if (all.dim(-2) == 1) {
      error = std::max(error, relative_difference(own.back.dbias[n], all));
    } else {
      compare(own.back.dbias[n], all, all.rank() - 2);
    }
  }
  return error;
}

// Joins by lse round for every piece of keys, and gradients are added process by process: a few of
// the last digits, as for rectangles in one process.
void every_mask_gives_the_results_of_one_process(World& world) {
  TorchGenerator generator(41);
  double worst[2] = {};
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    const DType dtype = ++rounds % 2 == 0 ? DType::f32 : DType::f64;
    const dim_t tokens = generator.randint(world.size() + 1, 90);
    const MaskExtent e{2, 4, tokens, tokens};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Problem p(e, 2, 8, dtype);
    AttendOptions options{.dropout = rounds % 3 == 0 ? 0.0 : 0.4, .seed = 78};
    if (rounds % 5 == 0) options.softcap = 3.0;
    const double error =
        error_of_rows(world, spread(world, p, mask.mask, options), whole_of(p, mask.mask, options));
    EXPECT_LE(error, dtype == DType::f32 ? 4e-6 : 2e-14)
        << format_text("{} tokens, dropout {}, {}", tokens, options.dropout, mask.name);
    double& most = worst[dtype == DType::f32 ? 0 : 1];
    most = std::max(most, error);
  }
  if (world.rank() == 0) {
    report(format_text("ring of {}: worst {:.1e} in float32, {:.1e} in float64", world.size(),
                       worst[0], worst[1]));
  }
}

void repeated_runs_have_the_same_bits(World& world) {
  const Problem p({1, 4, 133, 133}, 4, 16, DType::f32);
  const AttendOptions options{.dropout = 0.2, .seed = 3};
  const Found first = spread(world, p, causal(), options);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Found again = spread(world, p, causal(), options);
    EXPECT_TRUE(same_bits(first.forward.context, again.forward.context));
    EXPECT_TRUE(same_bits(first.back.dq, again.back.dq));
    EXPECT_TRUE(same_bits(first.back.dk, again.back.dk));
    EXPECT_TRUE(same_bits(first.back.dv, again.back.dv));
  }
}

void sixteen_bits_are_rounded_once(World& world) {
  const Problem p({1, 4, 120, 120}, 2, 16, DType::bf16);
  constexpr double kHalfDigit = 1.0 / 256;  // of bfloat16, once here and once there
  EXPECT_LE(error_of_rows(world, spread(world, p, causal(), {}), whole_of(p, causal(), {})),
            2 * kHalfDigit);
}

// A world in which the first process takes its time over every look at messages.
class SlowWorld : public World {
 public:
  explicit SlowWorld(World& world) : World(world.rank(), world.size()), world_(world) {}
  int processes_here() const override { return world_.processes_here(); }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<Slow>(rank() == 0, world_.transfers());
  }
  void end() override { world_.end(); }
  void abort(int status) override { world_.abort(status); }

 private:
  class Slow : public Transfers {
   public:
    Slow(bool slow, std::unique_ptr<Transfers> inner)
        : Transfers(0.0), slow_(slow), inner_(std::move(inner)) {}
    void send(int to, int tag, std::span<const std::byte> bytes) override {
      inner_->send(to, tag, bytes);
    }
    void receive(int from, int tag, std::span<std::byte> bytes) override {
      inner_->receive(from, tag, bytes);
    }
    bool progress() override {
      if (slow_) std::this_thread::sleep_for(std::chrono::microseconds(50));
      return inner_->progress();
    }

   private:
    int awaited() override { return 0; }
    bool slow_;
    std::unique_ptr<Transfers> inner_;
  };

  World& world_;
};

// Results of this process's rows with and without help have the same bits. -> runs of units that
// processes attended to for others, all together
double help_changes_no_bits(World& world, const Problem& p, const Mask& mask,
                            const AttendOptions& options, const std::string& what) {
  const dim_t tokens = p.q.dim(2);
  const RingShare share = ring_share(tokens, world.rank(), world.size());
  const Tensor q = rows_of(p.q, 2, share);
  const Tensor k = rows_of(p.k, 2, share);
  const Tensor v = rows_of(p.v, 2, share);
  const AttendResult alone = attend_ring(world, tokens, q, k, v, mask, options);
  SlowWorld slow(world);
  const RingCall call(slow, tokens, q, k, v, mask, options, "attend_ring");
  std::int64_t helped = 0;
  const AttendResult found = attend_ring_in_units(call, 1.0, &helped);
  EXPECT_TRUE(same_bits(alone.context, found.context)) << what;
  EXPECT_TRUE(same_bits(alone.lse, found.lse)) << what;
  Tensor sum = Tensor::full({1}, static_cast<double>(helped), DType::f64);
  world.sum(sum);
  return sum.data_as<double>()[0];
}

void whoever_attends_to_a_unit_gives_it_the_same_bits(World& world) {
  TorchGenerator generator(44);
  double helped = 0.0;
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    const dim_t tokens = generator.randint(world.size() + 1, 90);
    const MaskExtent e{2, 6, tokens, tokens};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    if (!mask.mask.tensors.empty()) continue;
    const Problem p(e, 3, 8, ++rounds % 2 == 0 ? DType::f32 : DType::f64);
    const AttendOptions options{
        .dropout = rounds % 3 == 0 ? 0.0 : 0.4, .seed = 78, .threads = rounds % 4 == 0 ? 2 : 1};
    helped += help_changes_no_bits(world, p, mask.mask, options, mask.name);
  }
  EXPECT_GT(rounds, 5);
  // Pieces that are cut into rows as well, and not by a number of rows that fits any vector.
  const dim_t tokens = dim_t{2} * world.size() * 2405 + 1;
  const Problem p({1, 2, tokens, tokens}, 1, 4, DType::f32);
  helped += help_changes_no_bits(world, p, window(150, 0), {.threads = 1}, "rows");
  EXPECT_EQ(helped > 0.0, world.size() > 1) << helped;
}

// Each head is computed as a whole, by whom does not matter.
void spread_heads_have_the_bits_of_one_process(World& world) {
  TorchGenerator generator(43);
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    const dim_t tokens = generator.randint(1, 90);
    const MaskExtent e{2, 6, tokens, tokens};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    if (!mask.mask.tensors.empty()) continue;
    const Problem p(e, 3, 8, DType::f32);
    const AttendOptions options{.dropout = ++rounds % 2 == 0 ? 0.0 : 0.4, .seed = 5};
    const Found whole = whole_of(p, mask.mask, options);
    const Found own = spread(world, p, mask.mask, options, Way::heads);
    const RingShare share = ring_share(tokens, world.rank(), world.size());
    EXPECT_TRUE(same_bits(own.forward.context, rows_of(whole.forward.context, 2, share)))
        << mask.name;
    EXPECT_TRUE(same_bits(own.forward.lse, rows_of(whole.forward.lse, 2, share))) << mask.name;
    EXPECT_TRUE(same_bits(own.back.dk, rows_of(whole.back.dk, 2, share))) << mask.name;
    EXPECT_TRUE(same_bits(own.back.dv, rows_of(whole.back.dv, 2, share))) << mask.name;
    // Sums of dq depend on how many sequences and heads there are.
    EXPECT_LE(error_of_rows(world, own, whole), 4e-6) << mask.name;
  }
  EXPECT_GT(rounds, 5);
}

}  // namespace

const std::vector<std::pair<std::string, WorldClaim>>& ring_claims() {
  static const std::vector<std::pair<std::string, WorldClaim>> claims{
      {"every_mask_gives_the_results_of_one_process", every_mask_gives_the_results_of_one_process},
      {"repeated_runs_have_the_same_bits", repeated_runs_have_the_same_bits},
      {"sixteen_bits_are_rounded_once", sixteen_bits_are_rounded_once},
      {"whoever_attends_to_a_unit_gives_it_the_same_bits",
       whoever_attends_to_a_unit_gives_it_the_same_bits},
      {"spread_heads_have_the_bits_of_one_process", spread_heads_have_the_bits_of_one_process}};
  return claims;
}

}  // namespace cephalo::testing
