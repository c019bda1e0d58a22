// Tokens spread over processes give the results of one process: every mask, dropout, both ways.
#include "cephalo/attention/ring/attend_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cephalo/attention/ring/attend_heads.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/support/mask_spec.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_world.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::make_mask_spec;
using testing::mask_combinations;
using testing::MaskSpec;
using testing::normal;
using testing::run_in_threads;
using testing::same_bits;

double relative_difference(const TensorView& a, const TensorView& b) {
  return largest_difference(a, b) / std::max(1.0, largest_magnitude(b));
}

// The rows of one process along an axis of the whole: the early piece, then the late one.
Tensor rows_of(const TensorView& whole, int axis, const RingShare& share) {
  Shape shape = whole.shape();
  shape[axis] = share.tokens();
  Tensor own = Tensor::empty(shape, whole.dtype());
  const MutableTensorView to = own;
  const dim_t early = share.early.count();
  to.slice(axis, 0, early).copy_from(whole.slice(axis, share.early.begin, share.early.end));
  to.slice(axis, early, share.tokens())
      .copy_from(whole.slice(axis, share.late.begin, share.late.end));
  return own;
}

void write_rows(const TensorView& own, int axis, const RingShare& share,
                const MutableTensorView& whole) {
  const dim_t early = share.early.count();
  whole.slice(axis, share.early.begin, share.early.end).copy_from(own.slice(axis, 0, early));
  whole.slice(axis, share.late.begin, share.late.end)
      .copy_from(own.slice(axis, early, share.tokens()));
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

// What all processes found, put together again.
struct Found {
  Tensor context, lse, dq, dk, dv;
  std::vector<Tensor> dbias;
};

enum class Way { ring, heads };

Found spread(const Problem& p, const Mask& mask, const AttendOptions& options, int size,
             Way way = Way::ring) {
  const dim_t tokens = p.q.dim(2);
  Found all{
      Tensor::zeros(p.dcontext.shape(), p.q.dtype()), Tensor::zeros(p.dlse.shape(), p.dlse.dtype()),
      Tensor::zeros(p.q.shape(), p.q.dtype()),        Tensor::zeros(p.k.shape(), p.q.dtype()),
      Tensor::zeros(p.v.shape(), p.q.dtype()),        {}};
  for (const MaskTensor& part : mask.tensors) {
    if (part.role == MaskTensor::Role::bias) {
      all.dbias.push_back(Tensor::zeros(part.view.shape(), p.dlse.dtype()));
    }
  }
  run_in_threads(size, [&](World& world) {
    const RingShare share = ring_share(tokens, world.rank(), world.size());
    const Tensor q = rows_of(p.q, 2, share);
    const Tensor k = rows_of(p.k, 2, share);
    const Tensor v = rows_of(p.v, 2, share);
    const Mask own = mask_of(mask, share);
    const bool ring = way == Way::ring;
    const AttendResult r = ring ? attend_ring(world, tokens, q, k, v, own, options)
                                : attend_heads(world, tokens, q, k, v, own, options);
    const Tensor dcontext = rows_of(p.dcontext, 2, share);
    const Tensor dlse = rows_of(p.dlse, 2, share);
    const AttendPass pass{r.context, r.lse, dcontext, dlse};
    const AttendGradients g =
        ring ? attend_ring_backward(world, tokens, pass, q, k, v, own, options, true)
             : attend_heads_backward(world, tokens, pass, q, k, v, own, options);
    // Rows of different processes do not overlap.
    write_rows(r.context, 2, share, all.context);
    write_rows(r.lse, 2, share, all.lse);
    write_rows(g.dq, 2, share, all.dq);
    write_rows(g.dk, 2, share, all.dk);
    write_rows(g.dv, 2, share, all.dv);
    for (std::size_t n = 0; n < all.dbias.size(); ++n) {
      const int axis = all.dbias[n].rank() - 2;
      if (all.dbias[n].dim(-2) != 1) {
        write_rows(g.dbias[n], axis, share, all.dbias[n]);
      } else if (world.rank() == 0) {
        all.dbias[n].mutable_view().copy_from(g.dbias[n]);
      }
    }
  });
  return all;
}

TEST(RingShareTest, every_token_has_one_place_and_late_ones_go_with_early_ones) {
  for (const int size : {1, 2, 3, 8}) {
    for (const dim_t tokens : {0, 1, 5, 16, 97}) {
      std::vector<int> count(static_cast<std::size_t>(tokens));
      for (int r = 0; r < size; ++r) {
        const RingShare share = ring_share(tokens, r, size);
        EXPECT_LE(share.early.end, share.late.begin);
        for (const Share& s : {share.early, share.late}) {
          for (dim_t t = s.begin; t < s.end; ++t) ++count[static_cast<std::size_t>(t)];
        }
      }
      EXPECT_EQ(std::count(count.begin(), count.end(), 1), tokens);
    }
  }
}

// Joins by lse round for every piece of keys, and gradients are added process by process: a few of
// the last digits, as for rectangles in one process.
class AttendRingTest : public ::testing::TestWithParam<int> {};

TEST_P(AttendRingTest, every_mask_gives_the_results_of_one_process) {
  const int size = GetParam();
  TorchGenerator generator(41);
  double worst[2] = {};
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    const DType dtype = ++rounds % 2 == 0 ? DType::f32 : DType::f64;
    const dim_t tokens = generator.randint(size + 1, 90);
    const MaskExtent e{2, 4, tokens, tokens};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Problem p(e, 2, 8, dtype);
    AttendOptions options{.return_lse = true};
    options.dropout = rounds % 3 == 0 ? 0.0 : 0.4;
    options.seed = 78;
    if (rounds % 5 == 0) options.softcap = 3.0;
    const AttendResult whole = attend(p.q, p.k, p.v, mask.mask, options);
    const AttendGradients expected = attend_backward({whole.context, whole.lse, p.dcontext, p.dlse},
                                                     p.q, p.k, p.v, mask.mask, options, true);
    const Found found = spread(p, mask.mask, options, size);
    SCOPED_TRACE(format_text("{} tokens, dropout {}, {}", tokens, options.dropout, mask.name));
    double error = std::max(
        {relative_difference(found.context, whole.context),
         relative_difference(found.lse, whole.lse), relative_difference(found.dq, expected.dq),
         relative_difference(found.dk, expected.dk), relative_difference(found.dv, expected.dv)});
    ASSERT_EQ(found.dbias.size(), expected.dbias.size());
    for (std::size_t n = 0; n < found.dbias.size(); ++n) {
      error = std::max(error, relative_difference(found.dbias[n], expected.dbias[n]));
    }
    ASSERT_LE(error, dtype == DType::f32 ? 4e-6 : 2e-14);
    double& most = worst[dtype == DType::f32 ? 0 : 1];
    most = std::max(most, error);
  }
  testing::report(format_text("ring of {}: worst {:.1e} in float32, {:.1e} in float64", size,
                              worst[0], worst[1]));
}

TEST_P(AttendRingTest, repeated_runs_have_the_same_bits) {
  const int size = GetParam();
  const MaskExtent e{1, 4, 133, 133};
  const Problem p(e, 4, 16, DType::f32);
  const AttendOptions options{.dropout = 0.2, .seed = 3};
  const Found first = spread(p, causal(), options, size);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Found again = spread(p, causal(), options, size);
    EXPECT_TRUE(same_bits(first.context, again.context));
    EXPECT_TRUE(same_bits(first.dq, again.dq));
    EXPECT_TRUE(same_bits(first.dk, again.dk));
    EXPECT_TRUE(same_bits(first.dv, again.dv));
  }
}

TEST_P(AttendRingTest, sixteen_bits_are_rounded_once) {
  const int size = GetParam();
  const MaskExtent e{1, 4, 120, 120};
  const Problem p(e, 2, 16, DType::bf16);
  const AttendOptions options{.return_lse = true};
  const AttendResult whole = attend(p.q, p.k, p.v, causal(), options);
  const AttendGradients expected = attend_backward({whole.context, whole.lse, p.dcontext, p.dlse},
                                                   p.q, p.k, p.v, causal(), options);
  const Found found = spread(p, causal(), options, size);
  constexpr double kHalfDigit = 1.0 / 256;  // of bfloat16, once here and once there
  EXPECT_LE(relative_difference(found.context, whole.context), 2 * kHalfDigit);
  EXPECT_LE(relative_difference(found.dq, expected.dq), 2 * kHalfDigit);
  EXPECT_LE(relative_difference(found.dk, expected.dk), 2 * kHalfDigit);
  EXPECT_LE(relative_difference(found.dv, expected.dv), 2 * kHalfDigit);
}

// Each head is computed as a whole, by whom does not matter.
TEST_P(AttendRingTest, spread_heads_have_the_bits_of_one_process) {
  TorchGenerator generator(43);
  int rounds = 0;
  for (const auto& parts : mask_combinations()) {
    const dim_t tokens = generator.randint(1, 90);
    const MaskExtent e{2, 6, tokens, tokens};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    if (!mask.mask.tensors.empty()) continue;
    const Problem p(e, 3, 8, DType::f32);
    AttendOptions options{.return_lse = true};
    options.dropout = ++rounds % 2 == 0 ? 0.0 : 0.4;
    options.seed = 5;
    const AttendResult whole = attend(p.q, p.k, p.v, mask.mask, options);
    const AttendGradients expected = attend_backward({whole.context, whole.lse, p.dcontext, p.dlse},
                                                     p.q, p.k, p.v, mask.mask, options);
    const Found found = spread(p, mask.mask, options, GetParam(), Way::heads);
    SCOPED_TRACE(mask.name);
    ASSERT_TRUE(same_bits(found.context, whole.context));
    ASSERT_TRUE(same_bits(found.lse, whole.lse));
    ASSERT_TRUE(same_bits(found.dk, expected.dk));
    ASSERT_TRUE(same_bits(found.dv, expected.dv));
    // Sums of dq depend on how many sequences and heads there are.
    ASSERT_LE(relative_difference(found.dq, expected.dq), 4e-6);
  }
  EXPECT_GT(rounds, 5);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttendRingTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(AttendRingErrorTest, names_what_a_process_should_bring) {
  const auto world = world_of_one();
  const Tensor x = normal({1, 2, 5, 4}, 1);
  EXPECT_NE(error_of([&] { attend_ring(*world, 6, x, x, x); }).find("6 of 6 tokens"),
            std::string::npos);
  AttendOptions options{.return_weights = true};
  EXPECT_NE(error_of([&] { attend_ring(*world, 5, x, x, x, {}, options); }).find("whole rows"),
            std::string::npos);
}

}  // namespace
}  // namespace cephalo
