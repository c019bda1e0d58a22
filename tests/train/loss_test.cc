#include "cephalo/train/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::all_zero;
using testing::error_of;
using testing::golden_difference;
using testing::golden_magnitude;
using testing::largest_difference;
using testing::normal;
using testing::same_bits;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor ids_of(const std::vector<std::int64_t>& ids) {
  return Tensor::copy(TensorView(ids.data(), {static_cast<dim_t>(ids.size())}));
}

Tensor random_ids(dim_t rows, dim_t vocab_size) {
  TorchGenerator generator(2);
  Tensor ids = Tensor::empty({rows}, DType::i64);
  for (dim_t i = 0; i < rows; ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

Tensor logits_of(const nlohmann::json& golden, DType dtype) {
  Tensor logits = multiply(normal({golden.at("rows"), golden.at("vocab_size")}, 1),
                           golden.at("scale").get<double>());
  const dim_t hidden = golden.at("hidden_id");
  if (hidden >= 0) logits.mutable_view().slice(1, hidden, hidden + 1).fill(-kInfinity);
  return Tensor::copy(logits, dtype);
}

// Of float64, 1e-12 is a few hundred times the rounding of one sum. Of float32, every exponential
// is off by at most 1.7e-7 and by the rounding of its argument, which is 2^-24 of at most a
// hundred; sums are float64.
TEST(LossTest, cross_entropy_and_its_gradient_are_pytorchs) {
  int cases = 0;
  const auto file = testing::read_golden("train.json");
  for (const auto& golden : file.at("cases")) {
    if (golden.at("case") != "cross_entropy") continue;
    ++cases;
    const Tensor targets = ids_of(golden.at("targets"));
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor logits = logits_of(golden, dtype);
      Tensor dlogits = Tensor::full(logits.shape(), 99.0, dtype);
      const double loss = cross_entropy(logits, targets, dlogits, golden.at("ignore_index"));
      const double wanted = golden.at("loss");
      const double rounding = dtype == DType::f32 ? 1e-6 : 1e-12;
      EXPECT_LE(std::abs(loss - wanted), rounding * std::max(1.0, wanted)) << golden.at("name");
      EXPECT_LE(golden_difference(golden.at("dlogits"), dlogits),
                rounding * golden_magnitude(golden.at("dlogits")))
          << golden.at("name");
      EXPECT_EQ(cross_entropy(logits, targets, {}, golden.at("ignore_index")), loss);
    }
  }
  EXPECT_EQ(cases, 7);
}

TEST(LossTest, the_gradient_is_the_slope_of_the_loss) {
  Tensor logits = normal({3, 5}, 4, DType::f64);
  const Tensor targets = ids_of({4, kIgnoreTarget, 0});
  Tensor dlogits = Tensor::empty({3, 5}, DType::f64);
  cross_entropy(logits, targets, dlogits);
  constexpr double kStep = 1e-6;
  for (dim_t i = 0; i < 3; ++i) {
    for (dim_t id = 0; id < 5; ++id) {
      const double here = logits.at({i, id});
      logits.set({i, id}, here + kStep);
      const double above = cross_entropy(logits, targets);
      logits.set({i, id}, here - kStep);
      const double below = cross_entropy(logits, targets);
      logits.set({i, id}, here);
      EXPECT_NEAR(dlogits.at({i, id}), (above - below) / (2 * kStep), 1e-8);
    }
  }
}

TEST(LossTest, the_gradient_may_overwrite_the_logits_and_lie_anywhere) {
  const Tensor logits = normal({40, 300}, 1);
  const Tensor targets = random_ids(40, 300);
  Tensor expected = Tensor::empty(logits.shape());
  const double loss = cross_entropy(logits, targets, expected);

  Tensor in_place = Tensor::copy(logits);
  EXPECT_EQ(cross_entropy(in_place, targets, in_place), loss);
  EXPECT_TRUE(same_bits(in_place, expected));

  const Tensor wide = Tensor::copy(transpose(logits, 0, 1));  // rows are its columns
  Tensor below = Tensor::full({40, 700}, 7.0);
  const MutableTensorView part = below.mutable_view().slice(1, 100, 400);
  EXPECT_EQ(cross_entropy(transpose(wide, 0, 1), targets, part), loss);
  EXPECT_TRUE(same_bits(part, expected));
  EXPECT_EQ(below.at({20, 99}), 7.0);
  EXPECT_EQ(below.at({20, 400}), 7.0);
}

TEST(LossTest, shares_of_blocks_of_rows_add_up_to_the_mean) {
  const Tensor logits = normal({40, 300}, 1);
  Tensor targets = random_ids(40, 300);
  targets.mutable_data_as<std::int64_t>()[3] = kIgnoreTarget;
  Tensor expected = Tensor::empty(logits.shape());
  const double loss = cross_entropy(logits, targets, expected);
  Tensor found = Tensor::copy(logits);
  double sum = 0.0;
  for (const auto& [begin, end] : {std::pair<dim_t, dim_t>{0, 7}, {7, 39}, {39, 40}}) {
    const MutableTensorView block = found.mutable_view().slice(0, begin, end);
    sum += cross_entropy_share(block, targets.slice(0, begin, end), 39, block);
  }
  EXPECT_NEAR(sum, loss, 1e-12);
  EXPECT_TRUE(same_bits(found, expected));
}

TEST(LossTest, results_do_not_depend_on_the_number_of_threads) {
  const Tensor logits = normal({97, 513}, 1);
  const Tensor targets = random_ids(97, 513);
  Tensor expected = Tensor::empty(logits.shape());
  const UseThreads one(1);
  const double loss = cross_entropy(logits, targets, expected);
  for (const int count : {2, 3, 7, 1000}) {
    const UseThreads limit(count);
    Tensor dlogits = Tensor::empty(logits.shape());
    EXPECT_EQ(cross_entropy(logits, targets, dlogits), loss) << count;
    EXPECT_TRUE(same_bits(dlogits, expected)) << count;
  }
}

TEST(LossTest, where_all_rows_are_ignored_loss_and_gradient_are_zero) {
  const Tensor logits = Tensor::full({2, 3}, std::numeric_limits<double>::quiet_NaN());
  Tensor dlogits = Tensor::full({2, 3}, 7.0);
  EXPECT_EQ(cross_entropy(logits, ids_of({kIgnoreTarget, kIgnoreTarget}), dlogits), 0.0);
  EXPECT_TRUE(all_zero(dlogits));
  EXPECT_EQ(cross_entropy(Tensor::empty({0, 3}), ids_of({})), 0.0);
}

TEST(LossTest, nan_in_an_ignored_row_reaches_nothing) {
  Tensor logits = normal({3, 4}, 1);
  Tensor expected = Tensor::empty({3, 4});
  const Tensor targets = ids_of({1, kIgnoreTarget, 2});
  const double loss = cross_entropy(logits, targets, expected);
  logits.mutable_view()[1].fill(std::numeric_limits<double>::quiet_NaN());
  Tensor dlogits = Tensor::empty({3, 4});
  EXPECT_EQ(cross_entropy(logits, targets, dlogits), loss);
  EXPECT_TRUE(same_bits(dlogits, expected));
}

TEST(LossTest, a_target_that_cannot_come_costs_infinity) {
  const Tensor logits = Tensor::of({{0.0, -kInfinity}});
  Tensor dlogits = Tensor::empty({1, 2});
  EXPECT_EQ(cross_entropy(logits, ids_of({1}), dlogits), kInfinity);
  EXPECT_EQ(largest_difference(dlogits, Tensor::of({{1.0, -1.0}})), 0.0);
}

TEST(LossTest, errors_name_the_position_the_id_and_the_vocabulary) {
  const Tensor logits = normal({3, 4}, 1);
  EXPECT_EQ(
      error_of([&] {
        cross_entropy(logits, ids_of({0, 4, 1}));
      }),
      "cross_entropy: target 4 at position 1 is outside the vocabulary of 4; -100 is ignored");
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, ids_of({0, 3, -1}));
            }),
            "cross_entropy: target -1 at position 2 is outside the vocabulary of 4; -100 is "
            "ignored");
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, ids_of({0, 3}));
            }),
            "cross_entropy: targets [2] must be [3], one for each row");
  EXPECT_EQ(error_of([&] { cross_entropy(logits[0], ids_of({0})); }),
            "cross_entropy: logits [4] must be [rows, vocab_size]");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, Tensor::zeros({3})); }),
            "cross_entropy: targets are float32, int32 or int64 is needed");
  EXPECT_EQ(error_of([&] {
              cross_entropy(normal({3, 4}, 1, DType::bf16), ids_of({0, 1, 2}));
            }),
            "cross_entropy: logits are bfloat16, float32 or float64 is needed");
  Tensor small = Tensor::empty({3, 3});
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, ids_of({0, 1, 2}), small);
            }),
            "cross_entropy: dlogits is [3, 3], logits [3, 4]");
  Tensor wide = Tensor::empty({3, 4}, DType::f64);
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, ids_of({0, 1, 2}), wide);
            }),
            "cross_entropy: dlogits is float64, logits float32");
}

}  // namespace
}  // namespace cephalo
