// The suite that every engine's backward pass passes: all masks, what is hidden, edges, bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/support/bounds.h"
#include "tests/support/engine_calls.h"
#include "tests/support/mask_spec.h"
#include "tests/support/plain_backward.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_finite;
using testing::all_zero;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::make_mask_spec;
using testing::mask_combinations;
using testing::MaskSpec;
using testing::normal;
using testing::same_bits;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ConformanceBackwardTest : public ::testing::TestWithParam<Engine> {
 protected:
  AttendOptions options() const { return {.return_lse = true, .engine = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Engines, ConformanceBackwardTest,
                         ::testing::ValuesIn(testing::backward_engines_here()),
                         [](const auto& engine) { return std::string(name(engine.param)); });

// One pass with all that goes into it, so that a test can change any of it.
struct Pass {
  Pass(const MaskExtent& e, dim_t num_kv_heads, dim_t head_dim, dim_t v_dim, std::uint64_t seed,
       DType dtype = DType::f32)
      : q(normal({e.batch, e.num_heads, e.q_tokens, head_dim}, seed, dtype)),
        k(normal({e.batch, num_kv_heads, e.kv_tokens, head_dim}, seed + 1, dtype)),
        v(normal({e.batch, num_kv_heads, e.kv_tokens, v_dim}, seed + 2, dtype)),
        dcontext(normal({e.batch, e.num_heads, e.q_tokens, v_dim}, seed + 3, dtype)),
        dlse(normal({e.batch, e.num_heads, e.q_tokens}, seed + 4, dtype)) {}
  Pass(const Pass& other)
      : q(Tensor::copy(other.q)),
        k(Tensor::copy(other.k)),
        v(Tensor::copy(other.v)),
        dcontext(Tensor::copy(other.dcontext)),
        dlse(Tensor::copy(other.dlse)) {}
  Pass& operator=(const Pass&) = delete;

  AttendResult forward(const Mask& mask, const AttendOptions& options) const {
    return testing::attend_by(options.engine, q, k, v, mask, options);
  }
  AttendGradients backward(const AttendResult& r, const Mask& mask, const AttendOptions& options,
                           bool with_dbias = false) const {
    return testing::attend_backward_by(options.engine, {r.context, r.lse, dcontext, dlse}, q, k, v,
                                       mask, options, with_dbias);
  }
  AttendGradients gradients(const Mask& mask, const AttendOptions& options,
                            bool with_dbias = false) const {
    return backward(forward(mask, options), mask, options, with_dbias);
  }

  Tensor q, k, v, dcontext, dlse;
};

bool same_gradients(const AttendGradients& a, const AttendGradients& b) {
  bool same = same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv) &&
              a.dbias.size() == b.dbias.size();
  for (std::size_t n = 0; same && n < a.dbias.size(); ++n) same = same_bits(a.dbias[n], b.dbias[n]);
  return same;
}

TEST_P(ConformanceBackwardTest, every_mask_gives_the_gradients_of_the_brute_force_in_float64) {
  constexpr dim_t kLengths[] = {1, 3, 17, 70, 130};
  TorchGenerator generator(2025);
  double worst = 0.0;
  int passes = 0;
  for (const auto& parts : mask_combinations()) {
    for (int round = 0; round < testing::rounds(6); ++round, ++passes) {
      const MaskExtent e{1 + passes % 2, 4, kLengths[generator.randint(0, 5)],
                         kLengths[passes % 5]};
      const MaskSpec mask = make_mask_spec(parts, e, generator);
      const dim_t num_kv_heads = dim_t{1} << generator.randint(0, 3);
      const Pass pass(e, num_kv_heads, generator.randint(1, 20), generator.randint(1, 20),
                      static_cast<std::uint64_t>(passes), DType::f64);
      SCOPED_TRACE(format_text("batch {} heads 4/{} tokens {}/{} {}", e.batch, num_kv_heads,
                               e.q_tokens, e.kv_tokens, mask.name));
      const testing::MaskTable table(mask, e);
      const double scale = 1.0 / std::sqrt(static_cast<double>(pass.q.dim(3)));
      const auto exact = testing::plain_backward<long double>(
          {pass.q, pass.k, pass.v, pass.dcontext, pass.dlse, table, scale});
      const AttendGradients ours = pass.gradients(mask.mask, options(), true);
      const auto expect_near = [&](const char* what, const TensorView& g, const Tensor& expected) {
        const double error =
            largest_difference(g, expected) / std::max(1.0, largest_magnitude(expected));
        EXPECT_LE(error, 1e-12) << what;
        worst = std::max(worst, error);
      };
      expect_near("dq", ours.dq, exact.dq);
      expect_near("dk", ours.dk, exact.dk);
      expect_near("dv", ours.dv, exact.dv);
      for (const Tensor& dbias : ours.dbias) {
        const Tensor sum = testing::plain_sum_to<long double>(
            exact.dbias, {1, e.num_heads, e.q_tokens, e.kv_tokens});
        expect_near("dbias", dbias, Tensor::copy(sum[0]));
      }
    }
  }
  testing::report(format_text("{} engine: float64 gradients under {} masks, worst {:.1e}",
                              name(GetParam()), passes, worst));
}

// Normal numbers, heads of 64 and the usual scale: here plain code is exact nowhere by luck, and
// the floor is 2⁻²² of the largest gradient.
TEST_P(ConformanceBackwardTest, usual_sizes_stay_within_three_times_the_error_of_plain_code) {
  double worst = 0.0;
  std::string worst_case;
  for (const dim_t tokens : {64, 128, 257, 512}) {
    for (const std::string part : {"none", "causal", "window"}) {
      const MaskExtent e{1, 2, tokens, tokens};
      TorchGenerator generator(static_cast<std::uint64_t>(tokens));
      const MaskSpec mask = make_mask_spec({part}, e, generator);
      const Pass pass(e, 1, 64, 64, static_cast<std::uint64_t>(tokens));
      const testing::MaskTable table(mask, e);
      const testing::PlainPass plain_pass{pass.q,    pass.k, pass.v, pass.dcontext,
                                          pass.dlse, table,  0.125};
      const auto plain = testing::plain_backward<float>(plain_pass);
      const auto exact = testing::plain_backward<double>(plain_pass);
      const AttendGradients ours = pass.gradients(mask.mask, options());
      const auto check = [&](const char* what, const Tensor& g, const Tensor& by_plain,
                             const Tensor& expected) {
        const double error = largest_difference(g, expected);
        const double plain_error = largest_difference(by_plain, expected);
        EXPECT_LE(error, 3.0 * plain_error + 0x1p-22 * largest_magnitude(expected))
            << what << " " << tokens << " " << part;
        if (error <= worst * plain_error) return;
        worst = error / plain_error;
        worst_case = format_text("{:.1e} against {:.1e} in {}, {} tokens, {}", error, plain_error,
                                 what, tokens, part);
      };
      check("dq", ours.dq, plain.dq, exact.dq);
      check("dk", ours.dk, plain.dk, exact.dk);
      check("dv", ours.dv, plain.dv, exact.dv);
    }
  }
  testing::report(
      format_text("{} engine: gradients of usual sizes at most {:.2f} x the error of "
                  "plain code: {}",
                  name(GetParam()), worst, worst_case));
}

// Does any query of this key head see both keys?
bool seen_together(const MaskSpec& mask, const MaskExtent& e, dim_t b, dim_t kv_head, dim_t group,
                   dim_t j, dim_t other) {
  for (dim_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    for (dim_t i = 0; i < e.q_tokens; ++i) {
      if (mask.visible(b, h, i, j) && mask.visible(b, h, i, other)) return true;
    }
  }
  return false;
}

TEST_P(ConformanceBackwardTest, changing_a_hidden_token_changes_no_bit) {
  TorchGenerator generator(7);
  const auto combinations = mask_combinations();
  constexpr double kValues[] = {kNan, kInfinity, -kInfinity, 1e30, 0.5};
  const int wanted = testing::rounds(1000);
  int hidden = 0;  // rows of gradients that the token may not reach
  for (int round = 0; round < wanted; ++round) {
    const auto& parts = combinations[static_cast<std::size_t>(round) % combinations.size()];
    const MaskExtent e{2, 4, generator.randint(1, 14), generator.randint(1, 14)};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Pass pass(e, 2, 5, 3, static_cast<std::uint64_t>(round));
    const AttendGradients before = pass.gradients(mask.mask, options());
    const dim_t b = generator.randint(0, 2), j = generator.randint(0, e.kv_tokens);
    const double value = kValues[generator.randint(0, 5)];
    Pass changed(pass);
    for (dim_t h = 0; h < 2; ++h) {
      changed.k.mutable_view()[b][h][j].fill(value);
      changed.v.mutable_view()[b][h][j].fill(value);
    }
    const AttendGradients after = changed.gradients(mask.mask, options());
    SCOPED_TRACE(format_text("round {} mask {} key {} = {}", round, mask.name, j, value));
    for (dim_t other = 0; other < 2; ++other) {
      for (dim_t h = 0; h < 4; ++h) {
        for (dim_t i = 0; i < e.q_tokens; ++i) {
          if (other == b && mask.visible(b, h, i, j)) continue;
          ASSERT_TRUE(same_bits(after.dq[other][h][i], before.dq[other][h][i]));
          ++hidden;
        }
      }
      for (dim_t h = 0; h < 2; ++h) {
        for (dim_t key = 0; key < e.kv_tokens; ++key) {
          if (other == b && seen_together(mask, e, b, h, 2, j, key)) continue;
          ASSERT_TRUE(same_bits(after.dk[other][h][key], before.dk[other][h][key])) << key;
          ASSERT_TRUE(same_bits(after.dv[other][h][key], before.dv[other][h][key])) << key;
          ++hidden;
        }
      }
    }
  }
  EXPECT_GE(hidden, 50 * wanted);
}

TEST_P(ConformanceBackwardTest, changing_a_query_reaches_the_keys_that_it_sees) {
  TorchGenerator generator(8);
  const auto combinations = mask_combinations();
  constexpr double kValues[] = {kNan, kInfinity, -kInfinity, 1e30, 0.5};
  for (int round = 0; round < testing::rounds(1000); ++round) {
    const auto& parts = combinations[static_cast<std::size_t>(round) % combinations.size()];
    const MaskExtent e{2, 4, generator.randint(1, 14), generator.randint(1, 14)};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Pass pass(e, 2, 5, 3, static_cast<std::uint64_t>(round));
    AttendResult r = pass.forward(mask.mask, options());
    const AttendGradients before = pass.backward(r, mask.mask, options());
    const dim_t b = generator.randint(0, 2), h = generator.randint(0, 4);
    const dim_t i = generator.randint(0, e.q_tokens);
    const double value = kValues[generator.randint(0, 5)];
    // All that belongs to one query, whoever it sees.
    Pass changed(pass);
    changed.q.mutable_view()[b][h][i].fill(value);
    changed.dcontext.mutable_view()[b][h][i].fill(value);
    changed.dlse.set({b, h, i}, value);
    r.context.mutable_view()[b][h][i].fill(value);
    r.lse.set({b, h, i}, value);
    const AttendGradients after = changed.backward(r, mask.mask, options());
    SCOPED_TRACE(format_text("round {} mask {} query {} = {}", round, mask.name, i, value));
    bool sees_something = false;
    for (dim_t other = 0; other < 2; ++other) {
      for (dim_t kv_head = 0; kv_head < 2; ++kv_head) {
        for (dim_t j = 0; j < e.kv_tokens; ++j) {
          if (other == b && kv_head == h / 2 && mask.visible(b, h, i, j)) {
            sees_something = true;
            continue;
          }
          ASSERT_TRUE(same_bits(after.dk[other][kv_head][j], before.dk[other][kv_head][j])) << j;
          ASSERT_TRUE(same_bits(after.dv[other][kv_head][j], before.dv[other][kv_head][j])) << j;
        }
      }
      for (dim_t head = 0; head < 4; ++head) {
        for (dim_t row = 0; row < e.q_tokens; ++row) {
          if (other == b && head == h && row == i) continue;
          ASSERT_TRUE(same_bits(after.dq[other][head][row], before.dq[other][head][row])) << row;
        }
      }
    }
    if (!sees_something) {
      EXPECT_TRUE(all_zero(after.dq[b][h][i]));
    }
  }
}

TEST_P(ConformanceBackwardTest, who_sees_nothing_and_who_is_not_seen_has_gradient_zero) {
  TorchGenerator generator(9);
  int empty_rows = 0, unseen_keys = 0;
  for (const auto& parts : mask_combinations()) {
    const MaskExtent e{2, 2, 60, 75};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Pass pass(e, 2, 8, 8, 1);
    const AttendGradients g = pass.gradients(mask.mask, options());
    SCOPED_TRACE(mask.name);
    EXPECT_TRUE(all_finite(g.dq) && all_finite(g.dk) && all_finite(g.dv));
    for (dim_t b = 0; b < 2; ++b) {
      for (dim_t h = 0; h < 2; ++h) {
        std::vector<bool> seen(static_cast<std::size_t>(e.kv_tokens));
        for (dim_t i = 0; i < e.q_tokens; ++i) {
          bool looks = false;
          for (dim_t j = 0; j < e.kv_tokens; ++j) {
            if (!mask.visible(b, h, i, j)) continue;
            looks = true;
            seen[static_cast<std::size_t>(j)] = true;
          }
          if (looks) continue;
          ++empty_rows;
          ASSERT_TRUE(all_zero(g.dq[b][h][i])) << i;
        }
        for (dim_t j = 0; j < e.kv_tokens; ++j) {
          if (seen[static_cast<std::size_t>(j)]) continue;
          ++unseen_keys;
          ASSERT_TRUE(all_zero(g.dk[b][h][j]) && all_zero(g.dv[b][h][j])) << j;
        }
      }
    }
  }
  EXPECT_GT(empty_rows, 100);
  EXPECT_GT(unseen_keys, 100);
}

TEST_P(ConformanceBackwardTest, large_scores_have_finite_gradients) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double magnitude : {1e4, -1e4, 1e-40, 0.0}) {
      Pass pass({1, 2, 60, 75}, 2, 8, 8, 1, dtype);
      const Tensor factor = Tensor::copy(pass.q, DType::f64);
      for (dim_t b = 0; b < factor.numel(); ++b) {
        const Dims at{0, b / 8 / 60, b / 8 % 60, b % 8};
        pass.q.set(at, factor.at(at) * magnitude);
      }
      for (const Mask& mask : {Mask(), causal() & alibi({0.5F, 0.1F})}) {
        const AttendGradients g = pass.gradients(mask, options());
        EXPECT_TRUE(all_finite(g.dq) && all_finite(g.dk) && all_finite(g.dv)) << magnitude;
        // Whatever the scores are, a row's weights add up to 1, so dv adds up to dcontext. In
        // float32 an lse of 3e4 is known to 2⁻⁹, and weights that come from it to as much.
        for (dim_t d = 0; d < 8; ++d) {
          double of_values = 0.0, of_context = 0.0;
          for (dim_t j = 0; j < 75; ++j) of_values += g.dv.at({0, 1, j, d});
          for (dim_t i = 0; i < 60; ++i) of_context += pass.dcontext.at({0, 1, i, d});
          EXPECT_NEAR(of_values, of_context, dtype == DType::f32 ? 0.1 : 1e-9) << magnitude;
        }
      }
    }
  }
}

TEST_P(ConformanceBackwardTest, the_same_bits_for_any_number_of_threads_under_every_mask) {
  TorchGenerator generator(5);
  for (const auto& parts : mask_combinations()) {
    const MaskExtent e{1, 3, 130, 160};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    const Pass pass(e, 3, 24, 24, 1);
    AttendOptions with = options();
    with.dropout = 0.1;
    with.threads = 1;
    const AttendGradients alone = pass.gradients(mask.mask, with, true);
    for (const int count : {2, 3, 7}) {
      with.threads = count;
      ASSERT_TRUE(same_gradients(pass.gradients(mask.mask, with, true), alone))
          << mask.name << " " << count;
    }
  }
}

// Many chunks of keys that add to the same rows of dq, each in its turn.
struct ManyChunks {
  ManyChunks(dim_t num_heads, dim_t num_kv_heads, dim_t q_tokens, dim_t kv_tokens)
      : pass({1, num_heads, q_tokens, kv_tokens}, num_kv_heads, 16, 16, 1),
        added(normal({1, kv_tokens}, 9)) {}
  Pass pass;
  Tensor added;
};

TEST_P(ConformanceBackwardTest, the_same_bits_over_250_repeats_where_chunks_wait_for_each_other) {
  const int repeats = testing::rounds(250);
  for (const ManyChunks& c : {ManyChunks(1, 1, 130, 1100), ManyChunks(4, 2, 40, 1500)}) {
    for (const Mask& mask : {Mask(bias(c.added)), causal() & window(700, 0)}) {
      AttendOptions with = options();
      with.dropout = 0.1;
      with.threads = 1;
      const AttendResult r = c.pass.forward(mask, with);
      const AttendGradients first = c.pass.backward(r, mask, with, true);
      constexpr int kCounts[] = {7, 2, 3, 1};  // 7: more than there are cores, so they take turns
      for (int repeat = 0; repeat < repeats; ++repeat) {
        with.threads = kCounts[repeat % 4];
        ASSERT_TRUE(same_gradients(c.pass.backward(r, mask, with, true), first))
            << repeat << " " << with.threads;
      }
    }
  }
}

TEST_P(ConformanceBackwardTest, several_callers_at_once_get_the_same_bits) {
  const ManyChunks c(2, 1, 70, 1100);
  AttendOptions with = options();
  with.threads = 1;
  const AttendResult r = c.pass.forward(causal(), with);
  const AttendGradients first = c.pass.backward(r, causal(), with);
  with.threads = 3;
  std::atomic<int> different{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 10; ++repeat) {
        if (!same_gradients(c.pass.backward(r, causal(), with), first)) ++different;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace cephalo
