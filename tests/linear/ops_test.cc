// Ops are computed where their tensors lie: never across two devices, never where there is no
// implementation. What they compute is tested with the layers, losses and optimisers they serve.
#include "cephalo/linear/ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/ops_table.h"
#include "tests/support/fake_device.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::FakeDevice;
using testing::normal;
using testing::same_bits;

constexpr dim_t kRows = 4;
constexpr dim_t kWidth = 6;

// Tensors of every kind that ops take, on one device.
struct Operands {
  explicit Operands(Device device = {})
      : rows(Tensor::empty({kRows, kWidth}, DType::f32, device)),
        square(Tensor::empty({kWidth, kWidth}, DType::f32, device)),
        row(Tensor::empty({kWidth}, DType::f32, device)),
        moments(Tensor::empty({kRows, 2}, DType::f32, device)),
        ids(Tensor::empty({1, kRows}, DType::i64, device)),
        losses(Tensor::empty({kRows}, DType::f64, device)),
        total(Tensor::empty({}, DType::f64, device)),
        heads(Tensor::empty({1, 1, kRows, kWidth}, DType::f32, device)),
        shift(Tensor::empty({1}, DType::i64, device)) {}

  Rotation rotation() {
    Rotation rotation;
    rotation.half = kWidth / 2;
    rotation.parts[0] = {heads, shift};
    rotation.count = 1;
    return rotation;
  }
  ops::Norm norm() { return {rows, rows, row, row, 1e-5, rows, moments}; }
  ops::NormBackward norm_backward() { return {rows, moments, row, rows, rows, row, row}; }
  ops::Embed embed() { return {square, square, ids, 0, rows}; }
  ops::EmbedBackward embed_backward() { return {ids, rows, square, square}; }
  ops::JoinContexts join_contexts() { return {rows, heads, rows, heads}; }
  ops::Drop drop() { return {0.5, 1, 0, 0, rows}; }
  ops::CrossEntropy cross_entropy() { return {rows, view(ids, {kRows}), -100, 1.0, losses, rows}; }
  ops::AdamW adamw() { return {rows, rows, rows, rows, 1, 1, 1, 1, 1, 1, 1, 1}; }
  ops::Sgd sgd() { return {rows, rows, rows, false, 0.1, 0.9, 0.0, false}; }
  Projection projection() { return {rows, square, rows}; }
  ProjectionGradients gradients() { return {rows, square, row}; }

  Tensor rows, square, row, moments, ids, losses, total, heads, shift;
};

struct Call {
  const char* op;
  std::function<void(Operands&)> on_one;             // every tensor on one device
  std::function<void(Operands&, Operands&)> on_two;  // one of them on a second
};

// One tensor of an op's arguments taken from elsewhere.
#define WITH(FIELD, VALUE)       \
  [](Operands& a, Operands& b) { \
    auto given = a.OP();         \
    given.FIELD = b.VALUE;       \
    ops::OP(given);              \
  }

const std::vector<Call>& calls() {
  static const std::vector<Call> all{
      {"linear_backward", [](Operands& a) { ops::linear_backward(a.projection(), a.gradients()); },
       [](Operands& a, Operands& b) { ops::linear_backward(a.projection(), b.gradients()); }},
      {"rotate", [](Operands& a) { ops::rotate(a.rotation()); },
       [](Operands& a, Operands& b) {
         Rotation rotation = a.rotation();
         rotation.parts[0].shift = b.shift;
         ops::rotate(rotation);
       }},
#define OP norm
      {"norm", [](Operands& a) { ops::norm(a.norm()); }, WITH(weight, row)},
#undef OP
#define OP norm_backward
      {"norm_backward", [](Operands& a) { ops::norm_backward(a.norm_backward()); },
       WITH(dbias, row)},
#undef OP
#define OP embed
      {"embed", [](Operands& a) { ops::embed(a.embed()); }, WITH(ids, ids)},
#undef OP
#define OP embed_backward
      {"embed_backward", [](Operands& a) { ops::embed_backward(a.embed_backward()); },
       WITH(position, square)},
#undef OP
#define OP join_contexts
      {"join_contexts", [](Operands& a) { ops::join_contexts(a.join_contexts()); },
       WITH(other_lse, heads)},
#undef OP
      {"drop", [](Operands& a) { ops::drop(a.drop()); }, nullptr},
#define OP cross_entropy
      {"cross_entropy", [](Operands& a) { ops::cross_entropy(a.cross_entropy()); },
       WITH(losses, losses)},
#undef OP
#define OP adamw
      {"adamw", [](Operands& a) { ops::adamw(a.adamw()); }, WITH(mean_square, rows)},
#undef OP
#define OP sgd
      {"sgd", [](Operands& a) { ops::sgd(a.sgd()); }, WITH(direction, rows)},
#undef OP
      {"sum_of_squares", [](Operands& a) { ops::sum_of_squares(a.rows, a.total); },
       [](Operands& a, Operands& b) { ops::sum_of_squares(a.rows, b.total); }},
      {"sums_of_squares", [](Operands& a) { ops::sums_of_squares(a.rows, a.losses); },
       [](Operands& a, Operands& b) { ops::sums_of_squares(a.rows, b.losses); }},
      {"row_norms", [](Operands& a) { ops::row_norms(a.rows, a.losses); },
       [](Operands& a, Operands& b) { ops::row_norms(a.rows, b.losses); }},
      {"scale", [](Operands& a) { ops::scale(a.rows, 2.0); }, nullptr},
      {"add", [](Operands& a) { ops::add(a.rows, a.rows); },
       [](Operands& a, Operands& b) { ops::add(a.rows, b.rows); }},
      {"zero", [](Operands& a) { ops::zero(a.rows); },
       [](Operands& a, Operands& b) {
         const MutableTensorView both[] = {a.rows, b.rows};
         ops::zero(both);
       }},
      {"copy", [](Operands& a) { ops::copy(a.rows, a.rows); }, nullptr},
  };
  return all;
}
#undef WITH

constexpr ops::Table kNothing{};

TEST(OpsTest, a_device_without_an_implementation_is_refused_by_name) {
  const FakeDevice fake;
  const ops::ScopedTable nothing(DeviceKind::cuda, kNothing);
  Operands there(fake.device());
  for (const Call& call : calls()) {
    EXPECT_EQ(error_of([&] { call.on_one(there); }),
              std::string(call.op) + ": there is no implementation for cuda:1");
  }
  EXPECT_EQ(error_of([&] { PackedLinear(there.square, {}, DType::f32); }),
            "linear: weight lies on cuda:1, not on the host");
}

// A device that has one op, which computes nothing and counts how often.
int scaled_elsewhere = 0;
constexpr ops::Table kScale{
    .scale = [](const MutableTensorView&, double) { ++scaled_elsewhere; },
};

TEST(OpsTest, an_op_is_computed_by_the_device_of_its_tensors) {
  const FakeDevice fake;
  const ops::ScopedTable only_scale(DeviceKind::cuda, kScale);
  Operands here;
  Operands there(fake.device());
  scaled_elsewhere = 0;
  ops::scale(there.rows, 2.0);
  EXPECT_EQ(scaled_elsewhere, 1);
  here.rows.mutable_view().fill(3.0);
  ops::scale(here.rows, 2.0);
  EXPECT_EQ(here.rows.at({0, 0}), 6.0);
  EXPECT_EQ(scaled_elsewhere, 1);
  EXPECT_EQ(error_of([&] { ops::zero(there.rows); }),
            "zero: there is no implementation for cuda:1");
}

TEST(OpsTest, two_devices_in_one_op_are_an_error_that_names_both) {
  const FakeDevice fake;
  Operands here;
  Operands there(fake.device());
  for (const Call& call : calls()) {
    if (call.on_two == nullptr) continue;
    for (const bool swapped : {false, true}) {
      const std::string error =
          error_of([&] { call.on_two(swapped ? there : here, swapped ? here : there); });
      EXPECT_EQ(error.find(std::string(call.op) + ": "), 0U) << error;
      EXPECT_NE(error.find(" on cuda:1"), std::string::npos) << error;
      EXPECT_NE(error.find(" on host"), std::string::npos) << error;
    }
  }
}

TEST(OpsTest, a_product_and_its_epilogue_lie_on_one_device) {
  const FakeDevice fake;
  Operands here;
  Operands there(fake.device());
  const PackedLinear weight(normal({kWidth, kWidth}, 1), {}, DType::f32);
  const Tensor x = normal({kRows, kWidth}, 2);
  EXPECT_EQ(error_of([&] { ops::linear(weight, there.rows, here.rows); }),
            "linear: weight lies on host, x on cuda:1");
  EXPECT_EQ(error_of([&] { ops::linear(weight, x, there.rows); }),
            "linear: weight lies on host, out on cuda:1");
  EXPECT_EQ(
      error_of([&] { ops::linear(weight, x, here.rows, Epilogue::gelu(Gelu::tanh, there.rows)); }),
      "linear: weight lies on host, active on cuda:1");
  EXPECT_EQ(error_of([&] {
              ops::linear(weight, x, here.rows, Epilogue::gelu_back(Gelu::tanh, there.rows));
            }),
            "linear: weight lies on host, hidden on cuda:1");
  const Rotation rotation = there.rotation();
  EXPECT_EQ(error_of([&] { ops::linear(weight, x, here.rows, Epilogue::rotate(rotation)); }),
            "linear: out lies on host, heads on cuda:1");
  EXPECT_EQ(error_of([&] { weight.apply(there.rows, here.rows); }),
            "linear: x lies on cuda:1, not on the host");
}

TEST(OpsTest, copies_between_the_host_and_a_device_are_the_devices) {
  const FakeDevice fake;
  const FakeDevice second({DeviceKind::cuda, 0});
  const ops::ScopedTable nothing(DeviceKind::cuda, kNothing);
  Operands here;
  Operands there(fake.device());
  Operands elsewhere(second.device());
  const std::string missing = "copy: there is no implementation for cuda:1";
  EXPECT_EQ(error_of([&] { ops::copy(here.rows, there.rows); }), missing);
  EXPECT_EQ(error_of([&] { ops::copy(there.rows, here.rows); }), missing);
  EXPECT_EQ(error_of([&] { ops::copy(there.rows, elsewhere.rows); }),
            "copy: the source lies on cuda:1, the copy on cuda:0");
  const Tensor x = normal({kRows, kWidth}, 3);
  ops::copy(x, here.rows);
  EXPECT_TRUE(same_bits(x, here.rows));
}

TEST(OpsTest, sums_of_pieces_add_up_to_the_sum_of_squares) {
  const Tensor x = normal({3, 2 * ops::kSquaresPiece - 5}, 7);  // six pieces, the last one shorter
  Tensor sums = Tensor::empty({6}, DType::f64);
  Tensor total = Tensor::empty({}, DType::f64);
  ops::sums_of_squares(x, sums);
  ops::sum_of_squares(x, total);
  double sum = 0.0;
  for (dim_t piece = 0; piece < 6; ++piece) sum += sums.at({piece});
  EXPECT_EQ(total.at({}), sum);
  EXPECT_GT(sums.at({5}), 0.0);
}

TEST(OpsTest, add_adds_every_element) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::copy(normal({3, ops::kSquaresPiece}, 1), dtype);
    Tensor sum = Tensor::full({3, ops::kSquaresPiece}, 0.5, dtype);
    ops::add(x, sum);
    EXPECT_EQ(sum.at({0, 0}), dtype == DType::f32
                                  ? static_cast<double>(0.5F + static_cast<float>(x.at({0, 0})))
                                  : 0.5 + x.at({0, 0}));
    EXPECT_NEAR(sum.at({2, ops::kSquaresPiece - 1}), 0.5 + x.at({2, ops::kSquaresPiece - 1}), 1e-6);
  }
}

TEST(OpsTest, a_layer_of_the_host_refuses_tokens_of_a_device) {
  const FakeDevice fake;
  const MultiHeadAttention layer({.d_in = kWidth, .d_out = kWidth, .num_heads = 2});
  const Tensor x = fake.empty({1, kRows, kWidth});
  EXPECT_NE(error_of([&] { layer(x); }).find("on cuda:1"), std::string::npos);
}

}  // namespace
}  // namespace cephalo
