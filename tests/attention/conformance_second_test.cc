// The suite that second derivatives and forward mode of every engine pass: all masks, what is
// hidden, symmetry, bits, memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cephalo/attention/attend_second.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/bounds.h"
#include "tests/support/mask_spec.h"
#include "tests/support/memory.h"
#include "tests/support/plain_second.h"
#include "tests/support/random_config.h"
#include "tests/support/second_engines.h"
#include "tests/support/second_pass.h"
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
using testing::SecondPass;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ConformanceSecondTest : public ::testing::TestWithParam<Engine> {
 protected:
  AttendOptions options() const { return {.engine = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Engines, ConformanceSecondTest,
                         ::testing::ValuesIn(testing::kSecondEngines),
                         [](const auto& engine) { return std::string(name(engine.param)); });

bool same_second(const AttendSecond& a, const AttendSecond& b) {
  bool same = same_bits(a.hq, b.hq) && same_bits(a.hk, b.hk) && same_bits(a.hv, b.hv) &&
              same_bits(a.hdcontext, b.hdcontext) && same_bits(a.hdlse, b.hdlse) &&
              a.hbias.size() == b.hbias.size();
  for (std::size_t n = 0; same && n < a.hbias.size(); ++n) same = same_bits(a.hbias[n], b.hbias[n]);
  return same;
}

Shape with_ones(const Shape& shape) {
  Shape all{1, 1, 1, 1};
  for (int axis = 0; axis < shape.rank(); ++axis) all[4 - shape.rank() + axis] = shape[axis];
  return all;
}

// The largest error of all results, each relative to its largest number (1 at least).
double error_of_second(const AttendSecond& ours, const testing::PlainSecond& exact) {
  double worst = 0.0;
  const auto compare = [&](const TensorView& a, const TensorView& b) {
    worst = std::max(worst, largest_difference(a, b) / std::max(1.0, largest_magnitude(b)));
  };
  compare(ours.hq, exact.hq);
  compare(ours.hk, exact.hk);
  compare(ours.hv, exact.hv);
  compare(ours.hdcontext, exact.tcontext);
  compare(ours.hdlse, exact.tlse);
  for (const Tensor& hbias : ours.hbias) {
    const Shape shape = with_ones(hbias.shape());
    compare(view(hbias, shape), testing::plain_sum_to<long double>(exact.hbias, shape));
  }
  return worst;
}

TEST_P(ConformanceSecondTest, every_mask_gives_the_second_derivatives_of_the_definition) {
  constexpr dim_t kLengths[] = {1, 3, 17, 70, 130};
  TorchGenerator generator(2026);
  double worst = 0.0;
  int passes = 0;
  for (const auto& parts : mask_combinations()) {
    for (int round = 0; round < testing::rounds(3); ++round, ++passes) {
      const MaskExtent e{1 + passes % 2, 4, kLengths[generator.randint(0, 5)],
                         kLengths[passes % 5]};
      const MaskSpec mask = make_mask_spec(parts, e, generator);
      const dim_t num_kv_heads = dim_t{1} << generator.randint(0, 3);
      SecondPass pass(e, num_kv_heads, generator.randint(1, 20), generator.randint(1, 20),
                      static_cast<std::uint64_t>(passes));
      pass.move_biases(mask.mask, 99);
      const testing::MaskTable table(mask, e);
      const double scale = 1.0 / std::sqrt(static_cast<double>(pass.q.dim(3)));
      const testing::PlainSecond exact = plain_second(
          {pass.q, pass.k, pass.v, pass.dcontext, pass.dlse, table, scale}, pass.plain_along(e));
      const double error = error_of_second(pass.second(mask.mask, options()), exact);
      EXPECT_LE(error, 1e-11) << format_text("batch {} heads 4/{} tokens {}/{} {}", e.batch,
                                             num_kv_heads, e.q_tokens, e.kv_tokens, mask.name);
      worst = std::max(worst, error);
    }
  }
  testing::report(format_text("{} engine: float64 second derivatives under {} masks, worst {:.1e}",
                              name(GetParam()), passes, worst));
}

struct Config {
  MaskExtent extent;
  dim_t num_kv_heads, head_dim, v_dim;
  std::vector<std::string> parts;
  Shape bias_shape;  // rank 0: no bias besides those of the parts
  AttendOptions options;
};

Config random_config(TorchGenerator& generator) {
  Config c;
  c.num_kv_heads = generator.randint(1, 4);
  do {  // the definition is slow
    c.extent = {generator.randint(1, 4), c.num_kv_heads * generator.randint(1, 4),
                testing::random_tokens(generator), testing::random_tokens(generator)};
    c.head_dim = generator.randint(1, generator.keeps(0.2) ? 131 : 40);
    c.v_dim = generator.randint(1, generator.keeps(0.2) ? 131 : 40);
  } while (c.extent.batch * c.extent.num_heads * c.extent.q_tokens * c.extent.kv_tokens *
               (c.head_dim + c.v_dim + 20) >
           400'000);
  c.parts = testing::random_mask_parts(generator);
  if (generator.keeps(0.5)) {
    const auto or_one = [&](dim_t dim) { return generator.keeps(0.5) ? dim : 1; };
    const MaskExtent& e = c.extent;
    c.bias_shape = {or_one(e.batch), or_one(e.num_heads), or_one(e.q_tokens), or_one(e.kv_tokens)};
  }
  if (generator.keeps(0.4)) c.options.softcap = 0.5 + 5.0 * generator.uniform53();
  if (generator.keeps(0.3)) c.options.scale = 2.0 * generator.uniform53() - 0.5;
  if (generator.keeps(0.4)) c.options.dropout = 0.9 * generator.uniform53();
  c.options.seed = generator.random64();
  c.options.threads = static_cast<int>(generator.randint(1, 4));
  return c;
}

// Errors are relative to the largest number of a result. In float32 a score of up to 50, as scales
// and widths make it here, is off by 2⁻¹⁹, and its weight by as much; movements of scores multiply
// that once more.
TEST_P(ConformanceSecondTest, random_configurations_agree_with_the_definition) {
  double worst_64 = 0.0, worst_32 = 0.0;
  const int count = testing::rounds(200);
  for (int number = 0; number < count; ++number) {
    TorchGenerator generator(static_cast<std::uint64_t>(number));
    Config c = random_config(generator);
    c.options.engine = GetParam();
    MaskSpec spec = make_mask_spec(c.parts, c.extent, generator);
    const Tensor added =
        c.bias_shape.rank() > 0 ? generator.randn(c.bias_shape) : Tensor::zeros({1, 1, 1, 1});
    if (c.bias_shape.rank() > 0) {
      spec.mask = spec.mask & bias(added);
      spec.adds.emplace_back([&](const MaskSpec::Pair& pair) {
        return SecondPass::number(added, {pair.b, pair.h, pair.i, pair.j});
      });
    }
    for (const DType dtype : {DType::f64, DType::f32}) {
      SecondPass pass(c.extent, c.num_kv_heads, c.head_dim, c.v_dim, 7, dtype);
      pass.move_biases(spec.mask, 99);
      const testing::MaskTable table(spec, c.extent);
      testing::PlainPass plain{pass.q,
                               pass.k,
                               pass.v,
                               pass.dcontext,
                               pass.dlse,
                               table,
                               c.options.scale.value_or(1.0 / std::sqrt(c.head_dim))};
      plain.softcap = c.options.softcap.value_or(0.0);
      plain.dropout = c.options.dropout;
      if (plain.dropout > 0.0) plain.kept = testing::kept_pairs(c.extent, spec, c.options);
      const double error = error_of_second(pass.second(spec.mask, c.options),
                                           plain_second(plain, pass.plain_along(c.extent)));
      const std::string text = format_text(
          "configuration {}: heads {}/{} tokens {}/{} width {}/{} mask '{}' bias {} softcap {} "
          "scale {} dropout {}",
          number, c.extent.num_heads, c.num_kv_heads, c.extent.q_tokens, c.extent.kv_tokens,
          c.head_dim, c.v_dim, spec.name, to_string(c.bias_shape), plain.softcap, plain.scale,
          plain.dropout);
      if (dtype == DType::f64) {
        ASSERT_LE(error, 1e-10) << text;
        worst_64 = std::max(worst_64, error);
      } else {
        ASSERT_LE(error, 2e-4) << text;
        worst_32 = std::max(worst_32, error);
      }
    }
  }
  testing::report(format_text(
      "{} engine: second derivatives of {} random configurations, worst {:.1e} in float64 and "
      "{:.1e} in float32, relative to the largest",
      name(GetParam()), count, worst_64, worst_32));
}

// Context and tcontext are stored in 16 bits, and with them delta and tdelta are off by that
// rounding; results are rounded once more.
TEST_P(ConformanceSecondTest, sixteen_bits_cost_a_few_roundings_of_the_largest_number) {
  TorchGenerator generator(16);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const double unit = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    double worst = 0.0;
    for (const auto& parts : mask_combinations()) {
      const MaskExtent e{2, 4, 40, 130};
      const MaskSpec mask = make_mask_spec(parts, e, generator);
      SecondPass pass(e, 2, 16, 24, 3, dtype);
      pass.move_biases(mask.mask, 99);
      const testing::MaskTable table(mask, e);
      AttendOptions with = options();
      with.softcap = 3.0;
      testing::PlainPass plain{pass.q, pass.k, pass.v, pass.dcontext, pass.dlse, table, 0.25};
      plain.softcap = 3.0;
      const AttendSecond ours = pass.second(mask.mask, with);
      ASSERT_EQ(ours.hq.dtype(), dtype);
      ASSERT_EQ(ours.hdcontext.dtype(), dtype);
      ASSERT_EQ(ours.hdlse.dtype(), DType::f32);
      const double error = error_of_second(ours, plain_second(plain, pass.plain_along(e))) / unit;
      EXPECT_LE(error, 4.0) << name(dtype) << " " << mask.name;
      worst = std::max(worst, error);
    }
    testing::report(format_text("{} engine: second derivatives in {}, worst {:.2f} roundings",
                                name(GetParam()), name(dtype), worst));
  }
}

// t + step · along
Tensor moved(const TensorView& t, const TensorView& along, double step) {
  Tensor result = Tensor::copy(t);
  double* to = result.mutable_data_as<double>();
  const Tensor by = Tensor::copy(along);
  for (dim_t n = 0; n < t.numel(); ++n) to[n] += step * by.data_as<double>()[n];
  return result;
}

// Everything that moves, in one place: the pass at some step along the direction.
struct Moved {
  Moved(const SecondPass& pass, const Tensor& added, double step)
      : q(moved(pass.q, pass.uq, step)),
        k(moved(pass.k, pass.uk, step)),
        v(moved(pass.v, pass.uv, step)),
        bias_then(moved(added, pass.ubias[0], step)),
        mask(causal() & bias(bias_then)) {}
  Tensor q, k, v, bias_then;
  Mask mask;
};

// (f(+step) − f(−step)) / 2 step against what is claimed, relative to the largest number.
double difference_error(const TensorView& ahead, const TensorView& behind, double step,
                        const TensorView& claimed) {
  Tensor slope = Tensor::copy(ahead);
  const Tensor back = Tensor::copy(behind);
  double* to = slope.mutable_data_as<double>();
  for (dim_t n = 0; n < slope.numel(); ++n) {
    to[n] = (to[n] - back.data_as<double>()[n]) / (2.0 * step);
  }
  return largest_difference(slope, claimed) / largest_magnitude(claimed);
}

TEST_P(ConformanceSecondTest, they_are_the_differences_of_attend_and_attend_backward) {
  constexpr double kStep = 1e-5;
  const MaskExtent e{2, 4, 37, 41};
  SecondPass pass(e, 2, 8, 6, 3);
  const Tensor added = normal({1, 4, 37, 41}, 50, DType::f64);
  pass.ubias.push_back(normal(added.shape(), 51, DType::f64));
  AttendOptions with = options();
  with.return_lse = true;
  with.softcap = 2.0;
  with.scale = 0.6;
  with.dropout = 0.2;
  const Mask mask = causal() & bias(added);
  const AttendSecond ours = pass.second(mask, with);
  const auto at = [&](double step) {
    const Moved m(pass, added, step);
    AttendResult r = attend(m.q, m.k, m.v, m.mask, with);
    AttendGradients g = attend_backward({r.context, r.lse, pass.dcontext, pass.dlse}, m.q, m.k, m.v,
                                        m.mask, with, true);
    return std::pair{std::move(r), std::move(g)};
  };
  const auto ahead = at(kStep), behind = at(-kStep);
  const auto error = [&](const TensorView& a, const TensorView& b, const TensorView& claimed) {
    return difference_error(a, b, kStep, claimed);
  };
  const double worst =
      std::max({error(ahead.first.context, behind.first.context, ours.hdcontext),
                error(ahead.first.lse, behind.first.lse, ours.hdlse),
                error(ahead.second.dq, behind.second.dq, ours.hq),
                error(ahead.second.dk, behind.second.dk, ours.hk),
                error(ahead.second.dv, behind.second.dv, ours.hv),
                error(ahead.second.dbias[0], behind.second.dbias[0], ours.hbias[0])});
  EXPECT_LE(worst, 1e-8);
  testing::report(
      format_text("{} engine: second derivatives against central differences of "
                  "attend_backward, worst {:.1e}",
                  name(GetParam()), worst));
}

double inner(const TensorView& a, const TensorView& b) {
  const Tensor x = Tensor::copy(a, DType::f64), y = Tensor::copy(b, DType::f64);
  double sum = 0.0;
  for (dim_t n = 0; n < x.numel(); ++n) sum += x.data_as<double>()[n] * y.data_as<double>()[n];
  return sum;
}

TEST_P(ConformanceSecondTest, second_derivatives_are_symmetric) {
  TorchGenerator generator(4);
  for (const auto& parts : mask_combinations()) {
    const MaskExtent e{1, 4, 33, 50};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    AttendOptions with = options();
    with.softcap = 3.0;
    with.dropout = 0.1;
    SecondPass one(e, 2, 9, 5, 1);
    SecondPass other(e, 2, 9, 5, 1);
    one.move_biases(mask.mask, 60);
    other.uq = normal(other.q.shape(), 70, DType::f64);
    other.uk = normal(other.k.shape(), 71, DType::f64);
    other.uv = normal(other.v.shape(), 72, DType::f64);
    other.move_biases(mask.mask, 80);
    const auto meet = [](const SecondPass& w, const AttendSecond& h) {
      double sum = inner(w.uq, h.hq) + inner(w.uk, h.hk) + inner(w.uv, h.hv);
      for (std::size_t n = 0; n < h.hbias.size(); ++n) sum += inner(w.ubias[n], h.hbias[n]);
      return sum;
    };
    const double ab = meet(one, other.second(mask.mask, with));
    const double ba = meet(other, one.second(mask.mask, with));
    EXPECT_NEAR(ab, ba, 1e-10 * std::max(1.0, std::abs(ab))) << mask.name;
  }
}

TEST_P(ConformanceSecondTest, what_is_hidden_reaches_nothing) {
  TorchGenerator generator(7);
  const auto combinations = mask_combinations();
  constexpr double kValues[] = {kNan, kInfinity, -kInfinity, 1e30, 0.5};
  int rows = 0;
  const int wanted = testing::rounds(400);
  for (int round = 0; round < wanted; ++round) {
    const auto& parts = combinations[static_cast<std::size_t>(round) % combinations.size()];
    const MaskExtent e{2, 4, generator.randint(1, 14), generator.randint(1, 14)};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    SecondPass pass(e, 2, 5, 3, static_cast<std::uint64_t>(round), DType::f32);
    const AttendSecond before = pass.second(mask.mask, options());
    const dim_t b = generator.randint(0, 2), j = generator.randint(0, e.kv_tokens);
    const double value = kValues[generator.randint(0, 5)];
    for (dim_t h = 0; h < 2; ++h) {
      for (Tensor* t : {&pass.k, &pass.v, &pass.uk, &pass.uv}) {
        t->mutable_view()[b][h][j].fill(value);
      }
    }
    const AttendSecond after = pass.second(mask.mask, options());
    SCOPED_TRACE(format_text("round {} mask {} key {} = {}", round, mask.name, j, value));
    for (dim_t h = 0; h < 4; ++h) {
      for (dim_t i = 0; i < e.q_tokens; ++i) {
        if (mask.visible(b, h, i, j)) continue;
        ASSERT_TRUE(same_bits(after.hq[b][h][i], before.hq[b][h][i])) << i;
        ASSERT_TRUE(same_bits(after.hdcontext[b][h][i], before.hdcontext[b][h][i])) << i;
        ASSERT_EQ(after.hdlse.at({b, h, i}), before.hdlse.at({b, h, i})) << i;
        ++rows;
      }
    }
    ASSERT_TRUE(same_bits(after.hk[1 - b], before.hk[1 - b]));
    ASSERT_TRUE(same_bits(after.hv[1 - b], before.hv[1 - b]));
  }
  EXPECT_GE(rows, 5 * wanted);
}

TEST_P(ConformanceSecondTest, a_query_that_is_no_number_reaches_the_keys_that_it_sees) {
  TorchGenerator generator(8);
  const auto combinations = mask_combinations();
  for (int round = 0; round < testing::rounds(300); ++round) {
    const auto& parts = combinations[static_cast<std::size_t>(round) % combinations.size()];
    const MaskExtent e{1, 4, generator.randint(1, 14), generator.randint(1, 14)};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    SecondPass pass(e, 2, 5, 3, static_cast<std::uint64_t>(round), DType::f32);
    AttendResult r = pass.forward(mask.mask, options());
    const AttendSecond before = pass.second(r, mask.mask, options());
    const dim_t h = generator.randint(0, 4), i = generator.randint(0, e.q_tokens);
    for (Tensor* t : {&pass.q, &pass.uq, &pass.dcontext, &r.context}) {
      t->mutable_view()[0][h][i].fill(kNan);
    }
    const AttendSecond after = pass.second(r, mask.mask, options());
    SCOPED_TRACE(format_text("round {} mask {} query {}", round, mask.name, i));
    bool sees_something = false;
    for (dim_t j = 0; j < e.kv_tokens; ++j) {
      if (mask.visible(0, h, i, j)) {
        sees_something = true;
        continue;
      }
      ASSERT_TRUE(same_bits(after.hk[0][h / 2][j], before.hk[0][h / 2][j])) << j;
      ASSERT_TRUE(same_bits(after.hv[0][h / 2][j], before.hv[0][h / 2][j])) << j;
    }
    if (sees_something) continue;
    EXPECT_TRUE(all_zero(after.hq[0][h][i]) && all_zero(after.hdcontext[0][h][i]));
    EXPECT_EQ(after.hdlse.at({0, h, i}), 0.0);
  }
}

TEST_P(ConformanceSecondTest, who_sees_nothing_does_not_move) {
  const MaskExtent e{2, 2, 20, 20};
  const SecondPass pass(e, 1, 8, 8, 1, DType::f32);
  const Mask mask = causal() & lengths({12, 0}, {15, 0});
  const AttendSecond h = pass.second(mask, options());
  EXPECT_TRUE(all_finite(h.hq) && all_finite(h.hk) && all_finite(h.hv) && all_finite(h.hdlse));
  EXPECT_TRUE(all_zero(h.hq[1]) && all_zero(h.hk[1]) && all_zero(h.hv[1]));
  EXPECT_TRUE(all_zero(h.hdcontext[1]) && all_zero(h.hdlse[1]));
  EXPECT_TRUE(all_zero(h.hdcontext[0][1].slice(0, 15, 20)));
  EXPECT_FALSE(all_zero(h.hdcontext[0][1].slice(0, 14, 15)));
}

TEST_P(ConformanceSecondTest, no_keys_and_no_queries_are_zero_and_nothing) {
  const SecondPass no_keys({1, 2, 5, 0}, 1, 4, 3, 1);
  const AttendSecond h = no_keys.second({}, options());
  EXPECT_TRUE(all_zero(h.hq) && all_zero(h.hdcontext) && all_zero(h.hdlse));
  const SecondPass no_queries({1, 2, 0, 5}, 1, 4, 3, 1);
  const AttendSecond g = no_queries.second({}, options());
  EXPECT_TRUE(all_zero(g.hk) && all_zero(g.hv));
}

// An lse of 4,000 is known to 2⁻¹² in float32; weights add up to 1 all the same.
TEST_P(ConformanceSecondTest, large_scores_are_those_of_float64) {
  const MaskExtent e{1, 2, 40, 50};
  const Tensor added = Tensor::full({40, 50}, 4096.0);
  for (const Mask& mask : {Mask(bias(added)), Mask()}) {
    const SecondPass pass(e, 2, 8, 8, 1, DType::f32);
    SecondPass wide(e, 2, 8, 8, 1, DType::f64);
    for (auto [to, from] : {std::pair{&wide.q, &pass.q},
                            {&wide.k, &pass.k},
                            {&wide.v, &pass.v},
                            {&wide.dcontext, &pass.dcontext},
                            {&wide.dlse, &pass.dlse},
                            {&wide.uq, &pass.uq},
                            {&wide.uk, &pass.uk},
                            {&wide.uv, &pass.uv}}) {
      *to = Tensor::copy(*from, DType::f64);
    }
    const AttendSecond h = pass.second(mask, options()), exact = wide.second(mask, options());
    const double allowed = mask.tensors.empty() ? 1e-5 : 4e-3;
    const auto close = [&](const TensorView& a, const TensorView& b) {
      return largest_difference(a, b) <= allowed * largest_magnitude(b);
    };
    EXPECT_TRUE(close(h.hq, exact.hq) && close(h.hk, exact.hk) && close(h.hv, exact.hv));
    EXPECT_TRUE(close(h.hdcontext, exact.hdcontext) && close(h.hdlse, exact.hdlse));
  }
}

TEST_P(ConformanceSecondTest, the_same_bits_for_any_number_of_threads_under_every_mask) {
  TorchGenerator generator(5);
  for (const auto& parts : mask_combinations()) {
    const MaskExtent e{1, 3, 130, 160};
    const MaskSpec mask = make_mask_spec(parts, e, generator);
    SecondPass pass(e, 3, 24, 24, 1, DType::f32);
    pass.move_biases(mask.mask, 9);
    AttendOptions with = options();
    with.dropout = 0.1;
    with.threads = 1;
    const AttendSecond alone = pass.second(mask.mask, with);
    for (const int count : {2, 3, 7}) {
      with.threads = count;
      ASSERT_TRUE(same_second(pass.second(mask.mask, with), alone)) << mask.name << " " << count;
    }
  }
}

TEST_P(ConformanceSecondTest, the_tangent_alone_has_the_same_bits) {
  const MaskExtent e{2, 4, 60, 75};
  SecondPass pass(e, 2, 16, 12, 1, DType::f32);
  const Tensor added = normal({60, 75}, 5);
  const Mask mask = causal() & bias(added);
  pass.move_biases(mask, 9);
  AttendOptions with = options();
  with.dropout = 0.2;
  const AttendResult r = pass.forward(mask, with);
  const AttendSecond h = pass.second(r, mask, with);
  const AttendTangents t =
      attend_tangent({r.context, r.lse, {}, {}}, pass.q, pass.k, pass.v, pass.along(), mask, with);
  EXPECT_TRUE(same_bits(t.tcontext, h.hdcontext) && same_bits(t.tlse, h.hdlse));
}

TEST(SecondMemoryTest, second_derivatives_over_8192_tokens_need_less_than_16_mib) {
  const MaskExtent e{1, 2, 8192, 8192};
  const SecondPass pass(e, 2, 16, 16, 1, DType::f32);
  const AttendOptions with{.return_lse = true, .require = Engine::fused, .threads = 2};
  const AttendResult r = pass.forward(causal(), with);
  const auto like = [](const Tensor& t) { return Tensor::full(t.shape(), 1.0); };
  Tensor hq = like(pass.q), hk = like(pass.k), hv = like(pass.v);
  Tensor hdcontext = like(r.context), hdlse = like(r.lse);
  const double extra = testing::extra_mib([&] {
    attend_second_into({hq, hk, hv, hdcontext, hdlse}, {r.context, r.lse, pass.dcontext, pass.dlse},
                       pass.q, pass.k, pass.v, pass.along(), causal(), with);
  });
  testing::report(format_text(
      "8,192 tokens x 2 heads x 16, causal, second derivatives on 2 threads: {:.1f} MiB besides "
      "tensors and results",
      extra));
  EXPECT_LT(extra, 16.0);
  EXPECT_TRUE(all_finite(hq) && all_finite(hk) && all_finite(hv));
  // The first query sees one key: of its score lse alone knows, and is it.
  const double of_score = 0.25 * pass.dlse.at({0, 1, 0});
  for (dim_t d = 0; d < 16; ++d) {
    EXPECT_NEAR(hq.at({0, 1, 0, d}), of_score * pass.uk.at({0, 1, 0, d}), 1e-5);
  }
}

}  // namespace
}  // namespace cephalo
