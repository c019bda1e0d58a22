// Combinations that nobody thought of, on a GPU: sizes, types, parts of a mask, options, layouts
// and groups of heads, forward and backward, against the reference of the CPU in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/attention/cuda/pass.h"
#include "tests/support/bounds.h"
#include "tests/support/dense.h"
#include "tests/support/mask_spec.h"
#include "tests/support/plain_backward.h"
#include "tests/support/random_config.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

constexpr int kCombinations = 2000, kSlices = 16;  // of a test each, so that they can run at once

class CudaTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU";
  }
};
INSTANTIATE_TEST_SUITE_P(Slices, CudaTest, ::testing::Range(0, kSlices));

// ---- what is asked ------------------------------------------------------------------------------
struct Config {
  MaskExtent extent;
  dim_t num_kv_heads, head_dim, v_dim;
  DType dtype;
  std::vector<std::string> parts;
  Shape bias_shape;  // of a bias beside those of the parts; rank 0: none
  bool narrow_bias;  // of q's type, where that has 16 bits
  bool with_dlse;
  bool seed_is_there;  // in device memory
  int result_layout;
  AttendOptions options;
};

dim_t random_width(TorchGenerator& generator) {
  switch (generator.randint(0, 5)) {
    case 0:
      return 64;
    case 1:
      return 128;
    case 2:
      return generator.randint(1, 257);
    default:
      return generator.randint(1, 131);
  }
}

Config random_config(TorchGenerator& generator) {
  constexpr DType kTypes[] = {DType::bf16, DType::bf16, DType::f16, DType::f16,
                              DType::f32,  DType::f32,  DType::f64};
  Config c;
  c.num_kv_heads = generator.randint(1, 4);
  do {  // the reference is slow
    c.extent = {generator.randint(1, 4), c.num_kv_heads * generator.randint(1, 4),
                random_tokens(generator), random_tokens(generator)};
    if (generator.keeps(0.4)) c.extent.kv_tokens = (c.extent.kv_tokens + 7) / 8 * 8;
    c.head_dim = random_width(generator);
    c.v_dim = generator.keeps(0.5) ? c.head_dim : random_width(generator);
  } while (c.extent.batch * c.extent.num_heads * c.extent.q_tokens * c.extent.kv_tokens *
               (c.head_dim + c.v_dim + 20) >
           3'000'000);
  const MaskExtent& e = c.extent;
  c.dtype = kTypes[generator.randint(0, 7)];
  c.parts = random_mask_parts(generator);
  if (generator.keeps(0.4)) {
    const auto or_one = [&](dim_t dim, double share) { return generator.keeps(share) ? dim : 1; };
    c.bias_shape = {or_one(e.batch, 0.5), or_one(e.num_heads, 0.5), or_one(e.q_tokens, 0.8),
                    or_one(e.kv_tokens, 0.8)};
  }
  c.narrow_bias = is_16_bit_float(c.dtype) && generator.keeps(0.6);
  c.with_dlse = generator.keeps(0.5);
  c.result_layout = static_cast<int>(generator.randint(0, 4));
  if (generator.keeps(0.3)) c.options.softcap = 0.5 + 5.0 * generator.uniform53();
  if (generator.keeps(0.25)) c.options.scale = 2.0 * generator.uniform53() - 0.5;
  if (generator.keeps(0.3)) c.options.dropout = 0.9 * generator.uniform53();
  if (generator.keeps(0.3)) c.options.arithmetic = Arithmetic::bf16x3;
  c.seed_is_there = c.options.dropout > 0.0 && generator.keeps(0.3);
  c.options.deterministic = generator.keeps(0.6);
  c.options.seed = generator.random64();
  c.options.return_lse = true;
  return c;
}

// What `plan` is to say: everything but these goes to the tensor cores, however much at once.
bool is_for_tensor_cores(const Config& c) {
  if (!is_hopper()) return false;
  const bool fits = c.dtype != DType::f32 || std::max(c.head_dim, c.v_dim) <= 128;
  return c.dtype != DType::f64 && fits && c.options.scale.value_or(1.0) > 1e-30;
}

struct Inputs {
  Inputs(const Config& c, TorchGenerator& generator)
      : spec(make_mask_spec(c.parts, c.extent, generator)),
        q({c.extent.batch, c.extent.num_heads, c.extent.q_tokens, c.head_dim}, c.dtype, generator),
        k({c.extent.batch, c.num_kv_heads, c.extent.kv_tokens, c.head_dim}, c.dtype, generator),
        v({c.extent.batch, c.num_kv_heads, c.extent.kv_tokens, c.v_dim}, c.dtype, generator),
        dcontext({c.extent.batch, c.extent.num_heads, c.extent.q_tokens, c.v_dim}, c.dtype,
                 generator),
        wide_mask(spec.mask) {
    if (c.with_dlse) {
      const Shape rows{c.extent.batch, c.extent.num_heads, c.extent.q_tokens};
      dlse = normal(rows, generator.random64(), compute_type(c.dtype));
    }
    if (c.bias_shape.rank() == 0) return;
    const Tensor narrow =
        Tensor::copy(generator.randn(c.bias_shape), c.narrow_bias ? c.dtype : DType::f32);
    added = std::make_shared<const Tensor>(Tensor::copy(narrow, DType::f32));
    wide_mask = spec.mask & bias(*added);
    spec.mask = spec.mask & bias(Tensor::copy(narrow));
    spec.adds.emplace_back([t = added](const MaskSpec::Pair& pair) {
      const dim_t at[] = {pair.b, pair.h, pair.i, pair.j};
      Dims index = t->shape();
      for (int axis = 0; axis < 4; ++axis) index[axis] = index[axis] == 1 ? 0 : at[axis];
      return t->at(index);
    });
  }
  MaskSpec spec;
  RandomSource q, k, v, dcontext;
  Tensor dlse;
  Mask wide_mask;  // the same numbers in float32
  std::shared_ptr<const Tensor> added;
};

// ---- what is right ------------------------------------------------------------------------------
struct Expected {
  AttendResult forward;
  AttendGradients gradients;
  Tensor context_sizes;         // Σ weights · |v|
  PlainGradients sizes, noise;  // of the terms of gradients
  double score_noise;           // of a weight, in units of 2⁻²²
};

void add_to(Tensor& sum, const Tensor& more) {
  for (dim_t n = 0; n < sum.numel(); ++n) {
    sum.mutable_data_as<double>()[n] += more.data_as<double>()[n];
  }
}

Expected expected_of(const Config& c, const Inputs& in) {
  const auto widened = [](const TensorView& t) { return Tensor::copy(t, DType::f64); };
  const Tensor q = widened(in.q.view), k = widened(in.k.view), v = widened(in.v.view);
  const Tensor dcontext = widened(in.dcontext.view), dlse = widened(in.dlse);
  Tensor sizes_of_v = Tensor::copy(v);
  for (dim_t n = 0; n < v.numel(); ++n) {
    sizes_of_v.mutable_data_as<double>()[n] = std::abs(v.data_as<double>()[n]);
  }
  AttendOptions options = c.options;
  options.engine = Engine::reference;
  Expected result;
  result.forward = attend(q, k, v, in.wide_mask, options);
  result.context_sizes = attend(q, k, sizes_of_v, in.wide_mask, options).context;
  const AttendResult& r = result.forward;
  result.gradients =
      attend_backward({r.context, r.lse, dcontext, dlse}, q, k, v, in.wide_mask, options, true);
  const MaskTable table(in.spec, c.extent);
  const double scale = c.options.scale.value_or(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  PlainPass pass{q, k, v, dcontext, dlse, table, scale};
  pass.softcap = c.options.softcap.value_or(0.0);
  pass.dropout = c.options.dropout;
  pass.equal_qk = in.q.equal_numbers() && in.k.equal_numbers();
  if (pass.dropout > 0.0) pass.kept = kept_pairs(c.extent, in.spec, c.options);
  result.sizes = gradient_sizes(pass);
  result.noise = gradient_noise(pass);
  if (pass.softcap > 0.0) {
    const PlainGradients more = softcap_noise(pass);
    add_to(result.noise.dq, more.dq);
    add_to(result.noise.dk, more.dk);
  }
  result.score_noise = 1.0 + score_noise(in.q, in.k, scale) + largest_finite_magnitude(r.lse);
  return result;
}

// How far a number may be off: of_type times the sizes of its terms, of_sums times what rounding
// sums and scores to float32 (float64) does to them, and of_term for each of them.
struct Rounding {
  double of_type, of_sums, of_term;
};
// of_type: results are rounded once, and gradients meet the forward pass's context, which was. On
// tensor cores weights and gradients of scores are rounded before they are multiplied. of_sums: the
// noise is in units of 2⁻²² or 2⁻⁵⁰; tensor cores cut off what does not fit 24 bits beside the
// largest product. bf16x3 has 16 bits of 24. of_term: what float16 makes of numbers below 2⁻¹⁴.
Rounding rounding_of(const Config& c, bool on_tensor_cores) {
  const double roundings = on_tensor_cores ? 4.0 : 2.0, units = on_tensor_cores ? 16.0 : 4.0;
  switch (c.dtype) {
    case DType::bf16:
      return {roundings * 0x1p-8, units * 0x1p-22, 0.0};
    case DType::f16:
      return {roundings * 0x1p-11, units * 0x1p-22, 0x1p-24};
    case DType::f32: {
      const bool is_short = on_tensor_cores && c.options.arithmetic == Arithmetic::bf16x3;
      return {0.0, is_short ? 4.0 * 0x1p-16 : 4.0 * 0x1p-22, 0.0};
    }
    default:
      return {0.0, 16.0 * 0x1p-50, 0.0};
  }
}

// ---- what comes out -----------------------------------------------------------------------------
// The same memory and view on the GPU.
struct SourceThere {
  explicit SourceThere(const RandomSource& source)
      : memory(there(source.memory)),
        view(static_cast<const std::byte*>(memory.data()) +
                 (static_cast<const std::byte*>(source.view.data()) -
                  static_cast<const std::byte*>(source.memory.data())),
             source.view.dtype(), source.view.shape(), source.view.strides(), kGpu) {}
  Tensor memory;
  TensorView view;
};

// Memory on the GPU for a result [batch, heads, tokens, dim], in some order.
class ResultThere {
 public:
  ResultThere(const Shape& s, DType dtype, int layout) : shape_(s) {
    const Shape orders[] = {
        s, s, {s[0], s[2], s[1], s[3] + 2}, {s[3] + 1, s[2], s[1], s[0]}};  // as they lie
    memory_ = there(Tensor::full(orders[layout], kNan, dtype));
    const Strides& t = memory_.strides();
    strides_ = layout < 2    ? t
               : layout == 2 ? Strides{t[0], t[2], t[1], t[3]}
                             : Strides{t[3], t[2], t[1], t[0]};
  }
  MutableTensorView view() {
    return {memory_.mutable_view().mutable_data(), memory_.dtype(), shape_, strides_, kGpu};
  }
  Tensor fetched() const {
    const Tensor here = back(memory_);
    return Tensor::copy(TensorView(here.data(), here.dtype(), shape_, strides_));
  }

 private:
  Shape shape_;
  Strides strides_;
  Tensor memory_;
};

PassNumbers run_there(const Config& c, const Inputs& in, Engine engine) {
  const SourceThere q(in.q), k(in.k), v(in.v), dcontext(in.dcontext);
  const Tensor dlse = in.dlse.numel() > 0 ? there(in.dlse) : Tensor();
  const Mask mask = mask_on_gpu(in.spec.mask);
  AttendOptions options = c.options;
  options.engine = engine;
  Tensor seed = Tensor::zeros({1}, DType::i64);
  *seed.mutable_data_as<std::int64_t>() = static_cast<std::int64_t>(options.seed);
  seed = there(seed);
  if (c.seed_is_there) {
    options.device_seed = static_cast<const std::uint64_t*>(seed.data());
    options.seed = 1;
  }
  ResultThere context(in.dcontext.view.shape(), c.dtype, c.result_layout);
  Tensor lse =
      Tensor::empty({q.view.dim(0), q.view.dim(1), q.view.dim(2)}, compute_type(c.dtype), kGpu);
  attend_into({context.view(), lse}, q.view, k.view, v.view, mask, options);
  const AttendPass pass{context.view(), lse, dcontext.view, dlse};
  PassNumbers numbers{context.fetched(), back(lse), {}, {}, {}, {}};
  if (c.result_layout == 0) {
    const AttendGradients g = attend_backward(pass, q.view, k.view, v.view, mask, options, true);
    numbers.dq = back(g.dq);
    numbers.dk = back(g.dk);
    numbers.dv = back(g.dv);
    for (const Tensor& dbias : g.dbias) numbers.dbias.push_back(back(dbias));
    return numbers;
  }
  ResultThere dq(q.view.shape(), c.dtype, c.result_layout);
  ResultThere dk(k.view.shape(), c.dtype, c.result_layout);
  ResultThere dv(v.view.shape(), c.dtype, c.result_layout);
  attend_backward_into({dq.view(), dk.view(), dv.view()}, pass, q.view, k.view, v.view, mask,
                       options);
  numbers.dq = dq.fetched();
  numbers.dk = dk.fetched();
  numbers.dv = dv.fetched();
  return numbers;
}

// ---- how far apart they are ---------------------------------------------------------------------
struct Compared {
  const char* name;
  const TensorView ours, exact, sizes, noise;
  double in_terms;  // their number times the largest of what they are multiplied by
};

void compare(const Compared& x, const Rounding& by, double& worst) {
  const auto ours = dense<double>(x.ours), exact = dense<double>(x.exact);
  const auto sizes = dense<double>(x.sizes), noise = dense<double>(x.noise);
  ASSERT_EQ(ours.size(), exact.size()) << x.name;
  for (std::size_t n = 0; n < ours.size(); ++n) {
    if (ours[n] == exact[n]) continue;  // −inf too
    const double allowed =
        by.of_type * sizes[n] + by.of_sums * noise[n] + by.of_term * (1.0 + x.in_terms) + 1e-37;
    ASSERT_LE(std::abs(ours[n] - exact[n]), allowed)
        << x.name << " " << n << ": " << ours[n] << " instead of " << exact[n];
    worst = std::max(worst, std::abs(ours[n] - exact[n]) / allowed);
  }
}

void check(const Config& c, const Inputs& in, const Expected& e, const PassNumbers& ours,
           bool on_tensor_cores, double& worst) {
  const Rounding by = rounding_of(c, on_tensor_cores);
  const Rounding of_context{by.of_type, by.of_sums * e.score_noise, by.of_term};
  const Tensor units = Tensor::full(e.forward.lse.shape(), e.score_noise, DType::f64);
  const auto size = [](const RandomSource& t) { return largest_magnitude(t.view); };
  const double grown = 1.0 / (1.0 - c.options.dropout);
  const double scale = std::abs(c.options.scale.value_or(1.0));
  const auto queries = static_cast<double>(c.extent.q_tokens * c.extent.num_heads);
  const auto keys = static_cast<double>(c.extent.kv_tokens);
  // Of delta = Σ dcontext · context, where context is rounded to a multiple of 2⁻²⁴.
  const double of_delta = static_cast<double>(c.v_dim) * size(in.dcontext);
  const double in_dq = (keys * grown + of_delta) * scale * size(in.k);
  const double in_dk = queries * (grown + of_delta) * scale * size(in.q);
  const double in_dv = queries * grown * size(in.dcontext);
  const AttendGradients& g = e.gradients;
  // An error of a score moves the slope of softcap too, by 2 / softcap times itself.
  Rounding of_scores = by;
  if (c.options.softcap) of_scores.of_sums *= 1.0 + 2.0 / *c.options.softcap;
  const auto expect = [&](const Compared& x, const Rounding& rounding) {
    ASSERT_NO_FATAL_FAILURE(compare(x, rounding, worst));
  };
  expect({"lse", ours.lse, e.forward.lse, units, units, 0.0}, {0.0, by.of_sums, 0.0});
  expect({"context", ours.context, e.forward.context, e.context_sizes, e.context_sizes,
          keys * grown * size(in.v)},
         of_context);
  expect({"dq", ours.dq, g.dq, e.sizes.dq, e.noise.dq, in_dq}, of_scores);
  expect({"dk", ours.dk, g.dk, e.sizes.dk, e.noise.dk, in_dk}, of_scores);
  expect({"dv", ours.dv, g.dv, e.sizes.dv, e.noise.dv, in_dv}, by);
  if (c.result_layout != 0) return;
  ASSERT_EQ(ours.dbias.size(), g.dbias.size());
  for (std::size_t n = 0; n < g.dbias.size(); ++n) {
    Shape shape{1, 1, 1, 1};
    const Shape& own = g.dbias[n].shape();
    for (int axis = 0; axis < own.rank(); ++axis) shape[4 - own.rank() + axis] = own[axis];
    const Tensor sizes = plain_sum_to<double>(e.sizes.dbias, shape);
    const Tensor noise = plain_sum_to<double>(e.noise.dbias, shape);
    expect({"dbias", ours.dbias[n], g.dbias[n], sizes, noise, queries * keys}, by);
  }
}

std::string to_string(const Config& c, const Inputs& in) {
  return format_text(
      "batch {} heads {}/{} tokens {}/{} width {}/{} {} mask '{}' bias {} {} dlse {} softcap {} "
      "scale {} dropout {} seed there {} same bits {} short {} layouts {} {} {} {} {}",
      c.extent.batch, c.extent.num_heads, c.num_kv_heads, c.extent.q_tokens, c.extent.kv_tokens,
      c.head_dim, c.v_dim, name(c.dtype), in.spec.name, to_string(c.bias_shape), c.narrow_bias,
      c.with_dlse, c.options.softcap.value_or(0.0), c.options.scale.value_or(0.0),
      c.options.dropout, c.seed_is_there, c.options.deterministic,
      c.options.arithmetic == Arithmetic::bf16x3, in.q.layout, in.k.layout, in.v.layout,
      in.dcontext.layout, c.result_layout);
}

TEST_P(CudaTest, combinations_are_as_near_to_the_reference_as_their_type_allows) {
  double worst_of[2] = {0.0, 0.0};
  int on_tensor_cores = 0, checked = 0;
  for (int number = GetParam(); number < kCombinations; number += kSlices, ++checked) {
    TorchGenerator generator(static_cast<std::uint64_t>(number));
    const Config c = random_config(generator);
    const Inputs in(c, generator);
    SCOPED_TRACE(format_text("combination {}: {}", number, to_string(c, in)));
    const SourceThere q(in.q), k(in.k), v(in.v);
    const Plan made = plan(q.view, k.view, v.view, mask_on_gpu(in.spec.mask), c.options);
    const bool is_fast = made.engine == Engine::cuda;
    ASSERT_EQ(is_fast, is_for_tensor_cores(c)) << made.to_string();
    const Expected expected = expected_of(c, in);
    if (is_fast) {
      const PassNumbers ours = run_there(c, in, Engine::cuda);
      ASSERT_NO_FATAL_FAILURE(check(c, in, expected, ours, true, worst_of[0])) << "cuda";
      ++on_tensor_cores;
    }
    const PassNumbers ours = run_there(c, in, Engine::cuda_simple);
    ASSERT_NO_FATAL_FAILURE(check(c, in, expected, ours, false, worst_of[1])) << "cuda_simple";
  }
  report(
      format_text("{} combinations on cuda_simple, worst {:.2f} of what is allowed; {} of them "
                  "on cuda, worst {:.2f}",
                  checked, worst_of[1], on_tensor_cores, worst_of[0]));
  EXPECT_GE(checked, kCombinations / kSlices);
}

}  // namespace
}  // namespace cephalo
