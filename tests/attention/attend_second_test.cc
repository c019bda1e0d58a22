// What attend_tangent and attend_second take, give and refuse; conformance_second_test.cc has the
// numbers.
#include "cephalo/attention/attend_second.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/second_pass.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::error_of;
using testing::largest_difference;
using testing::normal;
using testing::same_bits;
using testing::SecondPass;

struct AttendSecondTest : ::testing::Test {
  SecondPass pass{{2, 4, 5, 7}, 2, 6, 3, 1, DType::f32};
  AttendResult r = pass.forward({}, {});
  AttendPass given{r.context, r.lse, pass.dcontext, {}};

  AttendSecond second(const AttendDirection& along) const {
    return attend_second(given, pass.q, pass.k, pass.v, along);
  }
  std::string refusal(const AttendPass& of, const AttendDirection& along, const Mask& mask = {},
                      const AttendOptions& options = {}) const {
    return error_of([&] { attend_second(of, pass.q, pass.k, pass.v, along, mask, options); });
  }
};

TEST_F(AttendSecondTest, results_have_the_shapes_of_what_they_belong_to) {
  const AttendSecond h = second(pass.along());
  EXPECT_EQ(h.hq.shape(), pass.q.shape());
  EXPECT_EQ(h.hk.shape(), pass.k.shape());
  EXPECT_EQ(h.hv.shape(), pass.v.shape());
  EXPECT_EQ(h.hdcontext.shape(), r.context.shape());
  EXPECT_EQ(h.hdlse.shape(), r.lse.shape());
  EXPECT_TRUE(h.hbias.empty());
}

TEST_F(AttendSecondTest, one_head_and_no_batch_are_the_same_numbers) {
  const AttendSecond whole = second({pass.uq, pass.uk, pass.uv});
  const auto part = [](const TensorView& t) { return t[1][1]; };
  const Tensor k = Tensor::copy(pass.k[1][0]), v = Tensor::copy(pass.v[1][0]);
  const AttendSecond one =
      attend_second({part(r.context), part(r.lse), part(pass.dcontext)}, part(pass.q), k, v,
                    {part(pass.uq), pass.uk[1][0], pass.uv[1][0]});
  EXPECT_EQ(one.hq.rank(), 2);
  EXPECT_EQ(one.hdlse.rank(), 1);
  EXPECT_LE(largest_difference(one.hq, part(whole.hq)), 1e-5);
  EXPECT_LE(largest_difference(one.hdcontext, part(whole.hdcontext)), 1e-5);
}

TEST_F(AttendSecondTest, what_is_left_out_of_a_direction_stands_still) {
  const Tensor zero_q = Tensor::zeros(pass.q.shape()), zero_v = Tensor::zeros(pass.v.shape());
  const AttendSecond left_out = second({{}, pass.uk, {}}),
                     zeros = second({zero_q, pass.uk, zero_v});
  EXPECT_TRUE(same_bits(left_out.hq, zeros.hq) && same_bits(left_out.hk, zeros.hk) &&
              same_bits(left_out.hv, zeros.hv) && same_bits(left_out.hdcontext, zeros.hdcontext));
  const AttendSecond nowhere = second({});
  EXPECT_TRUE(all_zero(nowhere.hq) && all_zero(nowhere.hk) && all_zero(nowhere.hv));
  EXPECT_TRUE(all_zero(nowhere.hdcontext) && all_zero(nowhere.hdlse));
}

// Along v alone the context moves as attention to uv, and lse not at all.
TEST_F(AttendSecondTest, context_moves_along_v_as_attention_itself_does) {
  const AttendTangents t = attend_tangent(given, pass.q, pass.k, pass.v, {{}, {}, pass.uv});
  EXPECT_LE(largest_difference(t.tcontext, attend(pass.q, pass.k, pass.uv).context), 2e-6);
  EXPECT_TRUE(all_zero(t.tlse));
}

// A number added to all scores of a row changes no weight, and moves lse by itself.
TEST_F(AttendSecondTest, a_bias_that_moves_as_a_whole_moves_lse_alone) {
  const Tensor added = normal({5, 7}, 3), one = Tensor::full({5, 7}, 1.0);
  const Mask mask = bias(added);
  const AttendResult biased = pass.forward(mask, {});
  const AttendTangents t = attend_tangent({biased.context, biased.lse, {}}, pass.q, pass.k, pass.v,
                                          {{}, {}, {}, {one}}, mask);
  EXPECT_LE(testing::largest_magnitude(t.tcontext), 1e-6);
  EXPECT_LE(largest_difference(t.tlse, Tensor::full(t.tlse.shape(), 1.0)), 1e-6);
}

TEST_F(AttendSecondTest, results_go_where_the_caller_wants_them) {
  const AttendSecond expected = second(pass.along());
  Tensor memory = Tensor::full({2, 5, 4, 6}, 77.0);  // heads beside each other
  const MutableTensorView hq{
      memory.mutable_view().mutable_data(), DType::f32, {2, 4, 5, 6}, {120, 6, 24, 1}};
  Tensor hk = Tensor::empty(pass.k.shape()), hv = Tensor::empty(pass.v.shape());
  Tensor hdcontext = Tensor::empty(r.context.shape()), hdlse = Tensor::empty(r.lse.shape());
  attend_second_into({hq, hk, hv, hdcontext, hdlse}, given, pass.q, pass.k, pass.v, pass.along());
  EXPECT_TRUE(same_bits(hq, expected.hq) && same_bits(hk, expected.hk) &&
              same_bits(hv, expected.hv) && same_bits(hdcontext, expected.hdcontext));
}

TEST_F(AttendSecondTest, mistakes_are_named) {
  const AttendDirection along = pass.along();
  AttendPass wrong = given;
  wrong.dcontext = pass.q;
  EXPECT_EQ(refusal(wrong, along),
            "attend_second: dcontext is [2, 4, 5, 6], expected [2, 4, 5, 3]");
  EXPECT_EQ(refusal(given, {pass.k, {}, {}}),
            "attend_second: the direction of q is [2, 2, 7, 6], expected [2, 4, 5, 6]");
  const Tensor wide = Tensor::copy(pass.uq, DType::f64);
  EXPECT_EQ(refusal(given, {wide, {}, {}}),
            "attend_second: the direction of q is float64, float32 is needed");
  EXPECT_EQ(refusal(given, {{}, {}, {}, {pass.uq}}),
            "attend_second: 1 directions for the 0 biases of the mask; pass one for each, or none");
  EXPECT_EQ(error_of([&] {
              attend_tangent({r.context, pass.dlse[0], {}}, pass.q, pass.k, pass.v, along);
            }),
            "attend_tangent: lse is [4, 5], expected [2, 4, 5]");
}

TEST_F(AttendSecondTest, what_lies_on_another_device_is_named) {
  const TensorView there(pass.uq.data(), DType::f32, pass.uq.shape(), pass.uq.strides(),
                         Device{DeviceKind::cuda, 1});
  EXPECT_EQ(refusal(given, {there, {}, {}}),
            "attend_second: q lies on host, the direction of q on cuda:1");
  EXPECT_EQ(error_of([&] {
              attend_tangent(given, pass.q, pass.k, pass.v, {there, {}, {}});
            }),
            "attend_tangent: q lies on host, the direction of q on cuda:1");
}

TEST_F(AttendSecondTest, a_pass_of_another_type_is_refused_by_name) {
  const Tensor q = Tensor::copy(pass.q, DType::bf16), k = Tensor::copy(pass.k, DType::bf16);
  const Tensor v = Tensor::copy(pass.v, DType::bf16);
  EXPECT_EQ(error_of([&] { attend_tangent(given, q, k, v, {}); }),
            "attend_tangent: context is float32, q is bfloat16; they must be the same");
}

// Weights of a rectangle without all keys add up to less, and their movement is unknown.
TEST_F(AttendSecondTest, a_rectangle_has_all_keys_of_its_whole) {
  AttendOptions options;
  options.place.kv_tokens = {0, 14};
  EXPECT_EQ(refusal(given, pass.along(), {}, options),
            "attend_second: a rectangle of a larger problem needs all of its keys: place may not "
            "cut kv_tokens");
  options.place = {.heads = {2, 8}};
  EXPECT_EQ(refusal(given, pass.along(), {}, options), "");
}

TEST_F(AttendSecondTest, an_engine_without_the_job_is_passed_over_or_refuses) {
  const EngineEntry forward_only{
      .engine = static_cast<Engine>(77),
      .name = "forward",
      .refuses = [](const AttendProblem&, Job) -> const char* { return nullptr; },
      .attend = [](const AttendProblem&, const AttendOutput&) {}};
  const ScopedEngine scope(forward_only);
  const AttendSecond h = second(pass.along());  // by another engine
  EXPECT_FALSE(all_zero(h.hq));
  EXPECT_EQ(refusal(given, pass.along(), {}, {.engine = forward_only.engine}),
            "attend_second: the forward engine refuses: it does not do this job");
  EXPECT_EQ(error_of([&] {
              attend_tangent(given, pass.q, pass.k, pass.v, {}, {},
                             {.require = forward_only.engine});
            }).find("attend_tangent: forward is required, but it refuses: it does not do this job"),
            0U);
  EXPECT_EQ(std::string(name(Job::tangent)), "tangent");
  EXPECT_EQ(std::string(name(Job::second)), "second");
}

// The textbook draws dropout from any stream, given a generator that stands where attend's stood.
TEST_F(AttendSecondTest, a_torch_stream_goes_to_the_reference_engine) {
  TorchGenerator first(5), again(5);
  AttendOptions options{.dropout = 0.3,
                        .dropout_stream = DropoutStream::torch,
                        .generator = &first,
                        .return_lse = true};
  const AttendResult dropped = attend(pass.q, pass.k, pass.v, {}, options);
  options.generator = &again;
  const AttendTangents t = attend_tangent({dropped.context, dropped.lse, {}}, pass.q, pass.k,
                                          pass.v, {{}, {}, pass.v}, {}, options);
  EXPECT_LE(largest_difference(t.tcontext, dropped.context), 1e-6);
}

}  // namespace
}  // namespace cephalo
