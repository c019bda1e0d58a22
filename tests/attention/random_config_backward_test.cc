// Gradients of configurations that nobody thought of, held against the brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/backward_engines.h"
#include "tests/support/bounds.h"
#include "tests/support/dense.h"
#include "tests/support/mask_spec.h"
#include "tests/support/plain_backward.h"
#include "tests/support/random_config.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::largest_difference;
using testing::largest_magnitude;
using testing::MaskSpec;
using testing::plain_backward;
using testing::plain_sum_to;
using testing::PlainGradients;
using testing::PlainPass;
using testing::RandomSource;
using testing::same_bits;

class RandomConfigBackwardTest : public ::testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Engines, RandomConfigBackwardTest,
                         ::testing::ValuesIn(testing::kBackwardEngines),
                         [](const auto& engine) { return std::string(name(engine.param)); });

struct Config {
  MaskExtent extent;
  dim_t num_kv_heads, head_dim, v_dim;
  DType dtype;
  std::vector<std::string> parts;
  Shape bias_shape;  // of a bias beside those of the parts; rank 0: none
  bool with_dlse;
  AttendOptions options;
};

Config random_config(TorchGenerator& generator) {
  Config c;
  c.num_kv_heads = generator.randint(1, 4);
  do {  // the brute force is slow
    c.extent = {generator.randint(1, 4), c.num_kv_heads * generator.randint(1, 4),
                testing::random_tokens(generator), testing::random_tokens(generator)};
    c.head_dim = generator.randint(1, generator.keeps(0.3) ? 131 : 40);
    c.v_dim = generator.randint(1, generator.keeps(0.3) ? 131 : 40);
  } while (c.extent.batch * c.extent.num_heads * c.extent.q_tokens * c.extent.kv_tokens *
               (c.head_dim + c.v_dim + 20) >
           1'000'000);
  c.dtype = generator.keeps(0.75) ? DType::f32 : DType::f64;
  c.parts = testing::random_mask_parts(generator);
  if (generator.keeps(0.4)) {
    const auto or_one = [&](dim_t dim) { return generator.keeps(0.5) ? dim : 1; };
    const MaskExtent& e = c.extent;
    c.bias_shape = {or_one(e.batch), or_one(e.num_heads), or_one(e.q_tokens), or_one(e.kv_tokens)};
  }
  c.with_dlse = generator.keeps(0.5);
  if (generator.keeps(0.3)) c.options.softcap = 0.5 + 5.0 * generator.uniform53();
  if (generator.keeps(0.3)) c.options.scale = 2.0 * generator.uniform53() - 0.5;
  if (generator.keeps(0.25)) c.options.dropout = 0.9 * generator.uniform53();
  c.options.seed = generator.random64();
  c.options.threads = static_cast<int>(generator.randint(1, 4));
  c.options.return_lse = true;
  return c;
}

std::string to_string(const Config& c, const MaskSpec& mask) {
  return format_text(
      "batch {} heads {}/{} tokens {}/{} width {}/{} {} mask '{}' bias {} dlse {} softcap {} scale "
      "{} dropout {}",
      c.extent.batch, c.extent.num_heads, c.num_kv_heads, c.extent.q_tokens, c.extent.kv_tokens,
      c.head_dim, c.v_dim, name(c.dtype), mask.name, to_string(c.bias_shape), c.with_dlse,
      c.options.softcap.value_or(0.0), c.options.scale.value_or(0.0), c.options.dropout);
}

// Everything that goes into one backward pass.
struct Inputs {
  Inputs(const Config& c, TorchGenerator& generator)
      : spec(testing::make_mask_spec(c.parts, c.extent, generator)),
        q({c.extent.batch, c.extent.num_heads, c.extent.q_tokens, c.head_dim}, c.dtype, generator),
        k({c.extent.batch, c.num_kv_heads, c.extent.kv_tokens, c.head_dim}, c.dtype, generator),
        v({c.extent.batch, c.num_kv_heads, c.extent.kv_tokens, c.v_dim}, c.dtype, generator),
        dcontext({c.extent.batch, c.extent.num_heads, c.extent.q_tokens, c.v_dim}, c.dtype,
                 generator),
        dlse_rows({c.extent.batch, c.extent.num_heads, c.extent.q_tokens, 1}, compute_type(c.dtype),
                  generator) {
    if (c.with_dlse) dlse = dlse_rows.view.select(3, 0);
    if (c.bias_shape.rank() == 0) return;
    const bool narrow = is_16_bit_float(c.dtype) && generator.keeps(0.5);
    added = std::make_shared<const Tensor>(
        Tensor::copy(generator.randn(c.bias_shape), narrow ? c.dtype : DType::f32));
    spec.mask = spec.mask & bias(*added);
    spec.adds.emplace_back([t = added](const MaskSpec::Pair& pair) {
      const dim_t at[] = {pair.b, pair.h, pair.i, pair.j};
      Dims index = t->shape();
      for (int axis = 0; axis < 4; ++axis) index[axis] = index[axis] == 1 ? 0 : at[axis];
      return t->at(index);
    });
  }
  MaskSpec spec;
  std::shared_ptr<const Tensor> added;
  RandomSource q, k, v, dcontext, dlse_rows;
  TensorView dlse;
};

// What one gradient is held against.
struct Compared {
  const char* name;
  const TensorView ours, plain, exact, noise;
};

// How many tensors there were, and how far off.
struct Summary {
  int tensors = 0;
  int beyond_plain = 0;  // 3 × plain and 2⁻²² of the largest gradient are not enough
  double worst = 0.0;    // error beside what is allowed
  std::string worst_case;
};

// Three times the error of plain code in the same precision, plus a floor for where plain is exact
// by luck: 2⁻²² (float64: 2⁻⁵⁰) times what rounding can do, for which see gradient_noise.
void compare(const Compared& c, const std::string& config, Summary& summary) {
  const bool wide = c.ours.dtype() == DType::f64;
  const double unit = wide ? 0x1p-50 : 0x1p-22;
  const double error = largest_difference(c.ours, c.exact);
  const double plain_error = largest_difference(c.plain, c.exact);
  const double magnitude = largest_magnitude(c.exact);
  const double floor = unit * largest_magnitude(c.noise);
  const double bound = 3.0 * plain_error + floor;
  ASSERT_LE(error, bound) << c.name;
  if (wide) {
    ASSERT_LE(error, floor + 1e-10 * magnitude) << c.name;
  }
  ++summary.tensors;
  summary.beyond_plain += error > 3.0 * plain_error + unit * magnitude ? 1 : 0;
  if (error > summary.worst * bound) {
    summary.worst = error / bound;
    summary.worst_case = format_text("{} of {}", c.name, config);
  }
}

// Memory for a gradient of this shape, with its elements apart.
struct Apart {
  explicit Apart(const TensorView& like)
      : memory(Tensor::full({like.dim(3) + 1, like.dim(2), like.dim(1), like.dim(0)}, std::nan(""),
                            like.dtype())) {}
  MutableTensorView view() {
    const Strides& s = memory.strides();
    return {memory.mutable_view().mutable_data(),
            memory.dtype(),
            {memory.dim(3), memory.dim(2), memory.dim(1), memory.dim(0) - 1},
            {s[3], s[2], s[1], s[0]}};
  }
  Tensor memory;
};

// Dense inputs and scattered results: bits do not depend on how anything lies.
void expect_same_bits_for_other_strides(const Inputs& in, const AttendResult& r,
                                        const AttendOptions& options, const AttendGradients& g) {
  const Tensor q = Tensor::copy(in.q.view), k = Tensor::copy(in.k.view);
  const Tensor v = Tensor::copy(in.v.view), dcontext = Tensor::copy(in.dcontext.view);
  const Tensor dlse = Tensor::copy(in.dlse);
  Apart dq(q), dk(k), dv(v);
  attend_backward_into({dq.view(), dk.view(), dv.view()}, {r.context, r.lse, dcontext, dlse}, q, k,
                       v, in.spec.mask, options);
  EXPECT_TRUE(same_bits(dq.view(), g.dq) && same_bits(dk.view(), g.dk) &&
              same_bits(dv.view(), g.dv));
}

// The shape of a bias at rank 4.
Shape with_ones(const Shape& shape) {
  Shape all{1, 1, 1, 1};
  for (int axis = 0; axis < shape.rank(); ++axis) all[4 - shape.rank() + axis] = shape[axis];
  return all;
}

// The same for the brute force; the table is that of the inputs' mask.
PlainPass plain_pass(const Config& c, const Inputs& in, const testing::MaskTable& table) {
  const double scale = c.options.scale.value_or(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  PlainPass pass{in.q.view, in.k.view, in.v.view, in.dcontext.view, in.dlse, table, scale};
  pass.softcap = c.options.softcap.value_or(0.0);
  pass.dropout = c.options.dropout;
  pass.equal_qk = in.q.equal_numbers() && in.k.equal_numbers();
  if (pass.dropout > 0.0) pass.kept = testing::kept_pairs(c.extent, in.spec, c.options);
  return pass;
}

void check(const Config& c, const Inputs& in, Summary& summary) {
  const bool wide = c.dtype == DType::f64;
  const testing::MaskTable table(in.spec, c.extent);
  const PlainPass pass = plain_pass(c, in, table);
  const PlainGradients plain = wide ? plain_backward<double>(pass) : plain_backward<float>(pass);
  const PlainGradients exact =
      wide ? plain_backward<long double>(pass) : plain_backward<double>(pass);
  const PlainGradients noise = testing::gradient_noise(pass);
  const AttendResult r = attend(in.q.view, in.k.view, in.v.view, in.spec.mask, c.options);
  const AttendGradients g =
      attend_backward({r.context, r.lse, in.dcontext.view, in.dlse}, in.q.view, in.k.view,
                      in.v.view, in.spec.mask, c.options, true);
  const std::string config = to_string(c, in.spec);
  ASSERT_NO_FATAL_FAILURE(compare({"dq", g.dq, plain.dq, exact.dq, noise.dq}, config, summary));
  ASSERT_NO_FATAL_FAILURE(compare({"dk", g.dk, plain.dk, exact.dk, noise.dk}, config, summary));
  ASSERT_NO_FATAL_FAILURE(compare({"dv", g.dv, plain.dv, exact.dv, noise.dv}, config, summary));
  for (const Tensor& dbias : g.dbias) {
    const Shape shape = with_ones(dbias.shape());
    const Tensor by_plain =
        wide ? plain_sum_to<double>(plain.dbias, shape) : plain_sum_to<float>(plain.dbias, shape);
    const Tensor in_exact = plain_sum_to<long double>(exact.dbias, shape);
    const Tensor in_noise = plain_sum_to<long double>(noise.dbias, shape);
    ASSERT_NO_FATAL_FAILURE(
        compare({"dbias", view(dbias, shape), by_plain, in_exact, in_noise}, config, summary));
  }
  expect_same_bits_for_other_strides(in, r, c.options, g);
}

TEST_P(RandomConfigBackwardTest, gradients_stay_within_rounding_of_the_brute_force) {
  const int count = testing::rounds(500);
  Summary summary;
  for (int number = 0; number < count; ++number) {
    TorchGenerator generator(static_cast<std::uint64_t>(number));
    Config c = random_config(generator);
    c.options.engine = GetParam();
    const Inputs in(c, generator);
    SCOPED_TRACE(format_text("configuration {}: {}", number, to_string(c, in.spec)));
    ASSERT_NO_FATAL_FAILURE(check(c, in, summary));
  }
  testing::report(format_text(
      "{} engine: {} gradients of {} random configurations; {} of them beyond 3 x plain and 2^-22 "
      "of the largest; worst {:.2f} of what is allowed: {}",
      name(GetParam()), summary.tensors, count, summary.beyond_plain, summary.worst,
      summary.worst_case));
}

// What one 16-bit gradient is held against, number by number.
struct Rounded {
  const char* name;
  const TensorView ours;
  const TensorView wide;  // of the float32 engine, from the same numbers
  const TensorView plain, exact, noise, context_noise;
};

// Half a unit in the last place: relative to the number, and of numbers next to 0.
struct HalfUnit {
  explicit HalfUnit(DType dtype)
      : relative(dtype == DType::bf16 ? 0x1p-8 : 0x1p-11),
        least(dtype == DType::bf16 ? 0x1p-134 : 0x1p-25) {}
  double relative, least;
  double of(double number) const { return std::max(relative * std::abs(number), least); }
};

// Rounded once: as near to float32's gradient as its type allows. The brute force is as far from
// that as float32 may be off, and as the rounding of context makes it.
void compare(const Rounded& g, double& worst) {
  const HalfUnit half(g.ours.dtype());
  const auto ours = testing::dense<double>(g.ours), wide = testing::dense<double>(g.wide);
  const auto exact = testing::dense<double>(g.exact);
  const auto by_context = testing::dense<double>(g.context_noise);
  const double in_float32 =
      3.0 * largest_difference(g.plain, g.exact) + 0x1p-22 * largest_magnitude(g.noise);
  for (std::size_t n = 0; n < ours.size(); ++n) {
    ASSERT_LE(std::abs(ours[n] - wide[n]), half.of(wide[n]) + 0x1p-24 * std::abs(wide[n]))
        << g.name << " " << n;
    const double off = in_float32 + half.relative * by_context[n];
    const double bound = off + half.of(std::abs(exact[n]) + off);
    ASSERT_LE(std::abs(ours[n] - exact[n]), bound) << g.name << " " << n;
    worst = std::max(worst, std::abs(ours[n] - exact[n]) / bound);
  }
}

void check_16_bits(const Config& c, const Inputs& in, double& worst) {
  const auto widened = [](const TensorView& t) { return Tensor::copy(t, DType::f32); };
  const testing::MaskTable table(in.spec, c.extent);
  const PlainPass pass = plain_pass(c, in, table);
  const PlainGradients plain = plain_backward<float>(pass), exact = plain_backward<double>(pass);
  const PlainGradients noise = testing::gradient_noise(pass);
  const PlainGradients by_context = testing::context_noise(pass);
  const AttendResult r = attend(in.q.view, in.k.view, in.v.view, in.spec.mask, c.options);
  const AttendGradients g =
      attend_backward({r.context, r.lse, in.dcontext.view, in.dlse}, in.q.view, in.k.view,
                      in.v.view, in.spec.mask, c.options, true);
  const Tensor q = widened(in.q.view), k = widened(in.k.view), v = widened(in.v.view);
  Mask wide_mask = in.spec.mask;
  for (MaskTensor& part : wide_mask.tensors) {
    if (!is_16_bit_float(part.view.dtype())) continue;
    part.owner = std::make_shared<const Tensor>(widened(part.view));
    part.view = *part.owner;
  }
  const AttendGradients wide =
      attend_backward({widened(r.context), r.lse, widened(in.dcontext.view), in.dlse}, q, k, v,
                      wide_mask, c.options, true);
  ASSERT_EQ(g.dq.dtype(), c.dtype);
  ASSERT_NO_FATAL_FAILURE(
      compare(Rounded{"dq", g.dq, wide.dq, plain.dq, exact.dq, noise.dq, by_context.dq}, worst));
  ASSERT_NO_FATAL_FAILURE(
      compare(Rounded{"dk", g.dk, wide.dk, plain.dk, exact.dk, noise.dk, by_context.dk}, worst));
  ASSERT_NO_FATAL_FAILURE(
      compare(Rounded{"dv", g.dv, wide.dv, plain.dv, exact.dv, noise.dv, by_context.dv}, worst));
  for (std::size_t n = 0; n < g.dbias.size(); ++n) {  // float32, whatever the bias is
    ASSERT_TRUE(same_bits(g.dbias[n], wide.dbias[n])) << n;
  }
  expect_same_bits_for_other_strides(in, r, c.options, g);
}

TEST_P(RandomConfigBackwardTest, gradients_of_16_bits_are_those_of_float32_rounded_once) {
  const int count = testing::rounds(300);
  double worst = 0.0;
  for (int number = 0; number < count; ++number) {
    TorchGenerator generator(static_cast<std::uint64_t>(5000 + number));
    Config c = random_config(generator);
    c.dtype = number % 2 == 0 ? DType::bf16 : DType::f16;
    c.options.engine = GetParam();
    const Inputs in(c, generator);
    SCOPED_TRACE(format_text("configuration {}: {}", number, to_string(c, in.spec)));
    ASSERT_NO_FATAL_FAILURE(check_16_bits(c, in, worst));
  }
  testing::report(
      format_text("{} engine: 16-bit gradients of {} random configurations, worst "
                  "{:.2f} of what is allowed",
                  name(GetParam()), count, worst));
}

}  // namespace
}  // namespace cephalo
