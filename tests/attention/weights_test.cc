// Weights on demand are the weights that attend used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "tests/support/mask_spec.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::make_mask_spec;
using testing::MaskSpec;
using testing::normal;
using testing::same_bits;

constexpr double kClose = 2e-6;  // what the contract promises for weights computed again

struct Inputs {
  MaskExtent extent;
  MaskSpec mask;
  Tensor q, k, v;
  AttendOptions options;
  AttendResult fused;      // context and lse
  AttendResult reference;  // context, lse and weights
};

// Sizes that fill no tile, and the named parts of a mask.
Inputs make_inputs(const std::vector<std::string>& parts, std::uint64_t seed,
                   DType dtype = DType::f32) {
  TorchGenerator generator(seed);
  Inputs in;
  in.extent = {2, 4, generator.randint(60, 90), generator.randint(100, 150)};
  const MaskExtent& e = in.extent;
  in.mask = make_mask_spec(parts, e, generator);
  in.q = normal({e.batch, e.num_heads, e.q_tokens, 19}, seed, dtype);
  in.k = normal({e.batch, 2, e.kv_tokens, 19}, seed + 1, dtype);
  in.v = normal({e.batch, 2, e.kv_tokens, 23}, seed + 2, dtype);
  in.options = {.dropout = 0.2, .seed = seed, .return_lse = true, .engine = Engine::fused};
  in.fused = attend(in.q, in.k, in.v, in.mask.mask, in.options);
  AttendOptions all = in.options;
  all.engine = Engine::reference;
  all.return_weights = true;
  in.reference = attend(in.q, in.k, in.v, in.mask.mask, all);
  return in;
}

template <typename Use>
void for_all_masks(Use&& use, DType dtype = DType::f32) {
  std::uint64_t seed = 100;
  for (const std::string& part : testing::mask_part_names()) {
    for (const std::vector<std::string>& parts :
         {std::vector<std::string>{part}, std::vector<std::string>{part, "causal"}}) {
      SCOPED_TRACE(part + (parts.size() > 1 ? " & causal" : ""));
      use(make_inputs(parts, seed += 10, dtype));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// What dropout of the counter stream multiplies a weight by.
double kept_scale(const AttendOptions& options, dim_t b, dim_t h, dim_t p, dim_t j) {
  const PhiloxCounter words =
      philox(options.seed, {static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(p),
                            static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)});
  const double word = words[static_cast<std::size_t>(j % 4)];
  return word >= options.dropout * 0x1p32 ? 1.0 / (1.0 - options.dropout) : 0.0;
}

TEST(WeightsTest, all_of_them_equal_those_of_the_reference_engine) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    double worst = 0.0;
    for_all_masks(
        [&](const Inputs& in) {
          const Tensor ours = weights(in.q, in.k, in.fused.lse, in.mask.mask, in.options);
          ASSERT_EQ(ours.dtype(), dtype);
          const double error = largest_difference(ours, in.reference.weights);
          worst = std::max(worst, error);
          ASSERT_LE(error, dtype == DType::f64 ? 1e-14 : kClose);
        },
        dtype);
    testing::report(format_text("weights on demand, {}: worst {:.1e}", name(dtype), worst));
  }
}

TEST(WeightsTest, a_selection_has_heads_and_rows_in_the_order_asked_for) {
  for_all_masks([&](const Inputs& in) {
    const std::vector<dim_t> heads{3, 0, 3};
    const dim_t last = in.extent.q_tokens - 1;
    const std::vector<dim_t> rows{last, 0, 7, 8, 9, 3, 3, last - 1, last, 1};
    const Tensor whole = weights(in.q, in.k, in.fused.lse, in.mask.mask, in.options);
    const Tensor some =
        weights(in.q, in.k, in.fused.lse, in.mask.mask, in.options, {.heads = heads, .rows = rows});
    ASSERT_EQ(some.shape(), (Shape{2, 3, 10, in.extent.kv_tokens}));
    for (dim_t b = 0; b < 2; ++b) {
      for (std::size_t h = 0; h < heads.size(); ++h) {
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const TensorView row = some[b][static_cast<dim_t>(h)][static_cast<dim_t>(r)];
          ASSERT_LE(largest_difference(row, in.reference.weights[b][heads[h]][rows[r]]), kClose);
          ASSERT_TRUE(same_bits(row, whole[b][heads[h]][rows[r]])) << "row " << rows[r];
        }
      }
    }
  });
}

TEST(WeightsTest, times_v_they_are_the_context_of_the_fused_engine) {
  double worst = 0.0;
  for_all_masks([&](const Inputs& in) {
    const Tensor w = weights(in.q, in.k, in.fused.lse, in.mask.mask, in.options, {.dropped = true});
    const MaskExtent& e = in.extent;
    Tensor product = Tensor::zeros(in.fused.context.shape(), DType::f64);
    for (dim_t b = 0; b < e.batch; ++b) {
      for (dim_t h = 0; h < e.num_heads; ++h) {
        for (dim_t i = 0; i < e.q_tokens; ++i) {
          const float* row =
              w.data_as<float>() + ((b * e.num_heads + h) * e.q_tokens + i) * e.kv_tokens;
          double* to = product.mutable_data_as<double>() +
                       ((b * e.num_heads + h) * e.q_tokens + i) * in.v.dim(3);
          for (dim_t j = 0; j < e.kv_tokens; ++j) {
            const float* value =
                in.v.data_as<float>() + ((b * 2 + h / 2) * e.kv_tokens + j) * in.v.dim(3);
            for (dim_t d = 0; d < in.v.dim(3); ++d) {
              to[d] += static_cast<double>(row[j]) * static_cast<double>(value[d]);
            }
          }
        }
      }
    }
    const double error = largest_difference(product, in.fused.context) / largest_magnitude(in.v);
    worst = std::max(worst, error);
    ASSERT_LE(error, kClose);
  });
  testing::report(format_text("weights times v against context: worst {:.1e} of max |v|", worst));
}

TEST(WeightsTest, dropped_ones_are_those_that_the_counter_stream_keeps_scaled) {
  for_all_masks([&](const Inputs& in) {
    const MaskExtent& e = in.extent;
    const std::vector<dim_t> rows{0, e.q_tokens / 2, e.q_tokens - 1};
    const Tensor w = weights(in.q, in.k, in.fused.lse, in.mask.mask, in.options,
                             {.heads = {2}, .rows = rows, .dropped = true});
    for (dim_t b = 0; b < e.batch; ++b) {
      for (dim_t r = 0; r < 3; ++r) {
        const dim_t i = rows[static_cast<std::size_t>(r)];
        const dim_t p = in.mask.position(b, i);
        for (dim_t j = 0; j < e.kv_tokens; ++j) {
          const double expected =
              in.reference.weights.at({b, 2, i, j}) * kept_scale(in.options, b, 2, p, j);
          ASSERT_NEAR(w.at({b, 0, r, j}), expected, 1.25 * kClose) << "row " << i << " key " << j;
        }
      }
    }
  });
}

TEST(WeightsTest, pooled_ones_are_the_pools_of_all) {
  for_all_masks([&](const Inputs& in) {
    const MaskExtent& e = in.extent;
    for (const dim_t cells : {1, 7, 64, 1000}) {
      const dim_t head = cells % 4;
      const PooledWeights pooled =
          pooled_weights(in.q, in.k, in.fused.lse, cells, head, 1, in.mask.mask, in.options);
      const dim_t cells_q = std::min(cells, e.q_tokens);
      const dim_t cells_k = std::min(cells, e.kv_tokens);
      ASSERT_EQ(pooled.largest.shape(), (Shape{cells_q, cells_k}));
      ASSERT_EQ(pooled.mean.shape(), (Shape{cells_q, cells_k}));
      Tensor largest = Tensor::zeros({cells_q, cells_k}, DType::f64);
      Tensor sum = Tensor::zeros({cells_q, cells_k}, DType::f64);
      Tensor count = Tensor::zeros({cells_q, cells_k}, DType::f64);
      const TensorView w = in.reference.weights[1][head];
      for (dim_t i = 0; i < e.q_tokens; ++i) {
        for (dim_t j = 0; j < e.kv_tokens; ++j) {
          const Dims cell{i * cells_q / e.q_tokens, j * cells_k / e.kv_tokens};
          largest.set(cell, std::max(largest.at(cell), w.at({i, j})));
          sum.set(cell, sum.at(cell) + w.at({i, j}));
          count.set(cell, count.at(cell) + 1.0);
        }
      }
      ASSERT_LE(largest_difference(pooled.largest, largest), kClose) << cells;
      for (dim_t cell = 0; cell < sum.numel(); ++cell) {
        ASSERT_NEAR(pooled.mean.data_as<float>()[cell],
                    sum.data_as<double>()[cell] / count.data_as<double>()[cell], kClose);
      }
    }
  });
}

// The sums of one row written out: [kRowSums].
std::vector<double> plain_sums(const Inputs& in, dim_t b, dim_t h, dim_t i, const Tensor& tokens) {
  std::vector<double> sums(static_cast<std::size_t>(kRowSums), 0.0);
  const auto at = [&](RowSum sum) -> double& { return sums[static_cast<std::size_t>(sum)]; };
  const dim_t p = in.mask.position(b, i);
  const std::int64_t* ids = tokens.numel() > 0 ? tokens.data_as<std::int64_t>() : nullptr;
  const bool known = ids != nullptr && 0 <= p && p < in.extent.kv_tokens;
  for (dim_t j = 0; j < in.extent.kv_tokens; ++j) {
    if (!in.mask.visible(b, h, i, j)) continue;
    const double w = in.reference.weights.at({b, h, i, j});
    at(RowSum::visible) += 1.0;
    at(RowSum::entropy) -= w > 0.0 ? w * std::log(w) : 0.0;
    at(RowSum::largest) = std::max(at(RowSum::largest), w);
    at(RowSum::distance) += w * static_cast<double>(std::abs(p - j));
    if (j == p - 1) at(RowSum::previous) = w;
    if (j == 0) at(RowSum::first) = w;
    if (j == p) at(RowSum::current) = w;
    if (known && j < p && ids[j] == ids[p]) {
      at(RowSum::duplicate) += w;
      at(RowSum::has_duplicate) = 1.0;
    }
    if (known && j < p && j > 0 && ids[j - 1] == ids[p]) {
      at(RowSum::induction) += w;
      at(RowSum::has_induction) = 1.0;
    }
  }
  return sums;
}

TEST(WeightsTest, row_sums_equal_those_written_out) {
  for_all_masks([&](const Inputs& in) {
    const MaskExtent& e = in.extent;
    Tensor tokens = Tensor::empty({e.kv_tokens}, DType::i64);
    TorchGenerator generator(4);
    for (dim_t j = 0; j < e.kv_tokens; ++j) {
      tokens.mutable_data_as<std::int64_t>()[j] = generator.randint(0, 9);
    }
    for (const bool with_tokens : {true, false}) {
      const Tensor none = Tensor::zeros({0}, DType::i64);
      const Tensor& ids = with_tokens ? tokens : none;
      const Tensor sums = row_sums(in.q, in.k, in.fused.lse, ids, in.mask.mask, in.options);
      ASSERT_EQ(sums.shape(), (Shape{e.batch, e.num_heads, e.q_tokens, kRowSums}));
      for (dim_t b = 0; b < e.batch; ++b) {
        for (dim_t h = 0; h < e.num_heads; h += 3) {
          for (dim_t i = 0; i < e.q_tokens; i += 5) {
            const std::vector<double> plain = plain_sums(in, b, h, i, ids);
            for (dim_t s = 0; s < kRowSums; ++s) {
              // Weights are off by 2e-6 of 1 at most, their sums weighted by a distance by more.
              const double factor = s == static_cast<dim_t>(RowSum::distance)  ? 150.0
                                    : s == static_cast<dim_t>(RowSum::entropy) ? 10.0
                                                                               : 1.0;
              ASSERT_NEAR(sums.at({b, h, i, s}), plain[static_cast<std::size_t>(s)],
                          factor * kClose)
                  << "sum " << s << " of row " << i << " head " << h;
            }
          }
        }
      }
    }
  });
}

TEST(WeightsTest, asking_for_more_changes_no_bit_of_context) {
  for_all_masks([&](const Inputs& in) {
    AttendOptions bare = in.options;
    bare.return_lse = false;
    const Tensor context = attend(in.q, in.k, in.v, in.mask.mask, bare).context;
    for (const ScoresTap tap :
         {ScoresTap::none, ScoresTap::scaled, ScoresTap::softcapped, ScoresTap::masked}) {
      for (const bool wanted : {false, true}) {
        AttendOptions more = bare;
        more.return_scores = tap;
        more.return_lse = wanted;
        more.return_weights = wanted;
        const AttendResult r = attend(in.q, in.k, in.v, in.mask.mask, more);
        ASSERT_TRUE(same_bits(r.context, context));
        ASSERT_EQ(r.lse.numel() > 0, wanted);
        ASSERT_EQ(r.weights.numel() > 0, wanted);
        ASSERT_EQ(r.scores.numel() > 0, tap != ScoresTap::none);
      }
    }
  });
}

TEST(WeightsTest, the_same_bits_for_any_number_of_threads) {
  const Inputs in = make_inputs({"causal", "alibi"}, 5);
  const auto with = [&](int threads) {
    AttendOptions options = in.options;
    options.threads = threads;
    return options;
  };
  const Mask& mask = in.mask.mask;
  const Tensor w = weights(in.q, in.k, in.fused.lse, mask, with(1));
  const PooledWeights pooled = pooled_weights(in.q, in.k, in.fused.lse, 9, 1, 0, mask, with(1));
  const Tensor sums = row_sums(in.q, in.k, in.fused.lse, {}, mask, with(1));
  for (const int count : {2, 3, 7}) {
    EXPECT_TRUE(same_bits(weights(in.q, in.k, in.fused.lse, mask, with(count)), w));
    const PooledWeights many = pooled_weights(in.q, in.k, in.fused.lse, 9, 1, 0, mask, with(count));
    EXPECT_TRUE(same_bits(many.largest, pooled.largest));
    EXPECT_TRUE(same_bits(many.mean, pooled.mean));
    EXPECT_TRUE(same_bits(row_sums(in.q, in.k, in.fused.lse, {}, mask, with(count)), sums));
  }
}

TEST(WeightsTest, softcap_scale_and_sixteen_bit_types_are_honoured) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor q = normal({1, 2, 33, 20}, 1, dtype);
    const Tensor k = normal({1, 2, 70, 20}, 2, dtype);
    AttendOptions options{.scale = 0.7, .softcap = 3.0, .return_lse = true};
    const AttendResult fused = attend(q, k, k, causal(), options);
    const Tensor ours = weights(q, k, fused.lse, causal(), options);
    options.engine = Engine::reference;
    options.return_weights = true;
    const AttendResult reference = attend(q, k, k, causal(), options);
    EXPECT_LE(largest_difference(ours, reference.weights), kClose) << name(dtype);
    EXPECT_EQ(ours.dtype(), DType::f32);
  }
}

TEST(WeightsTest, errors_name_the_function_the_rule_and_the_numbers) {
  const Tensor q = normal({1, 2, 5, 4}, 1);
  const Tensor lse = Tensor::zeros({1, 2, 5});
  const auto select = [&](const WeightsSelection& selection, const AttendOptions& options = {}) {
    return error_of([&] { weights(q, q, lse, {}, options, selection); });
  };
  EXPECT_EQ(select({.heads = {2}}), "weights: head 2 is not in [0, 2)");
  EXPECT_EQ(select({.rows = {0, -1}}), "weights: row -1 is not in [0, 5)");
  TorchGenerator generator(1);
  EXPECT_EQ(
      select({.dropped = true},
             {.dropout = 0.1, .dropout_stream = DropoutStream::torch, .generator = &generator}),
      "weights: only the counter stream of dropout can be drawn again");
  const std::string wrong = error_of([&] { weights(q, q, Tensor::zeros({1, 2, 4})); });
  EXPECT_NE(wrong.find("weights: lse is [1, 2, 4], q needs [1, 2, 5]"), std::string::npos) << wrong;
  const std::string type = error_of([&] { weights(q, q, Tensor::zeros({1, 2, 5}, DType::f64)); });
  EXPECT_NE(type.find("float64"), std::string::npos) << type;
  EXPECT_EQ(error_of([&] { pooled_weights(q, q, lse, 0, 0); }),
            "pooled_weights: cells (0) must be > 0");
  EXPECT_EQ(error_of([&] { pooled_weights(q, q, lse, 3, 2); }),
            "pooled_weights: head 2 is not in [0, 2)");
  EXPECT_EQ(error_of([&] { pooled_weights(q, q, lse, 3, 0, 1); }),
            "pooled_weights: batch 1 is not in [0, 1)");
  EXPECT_EQ(error_of([&] { row_sums(q, q, lse, Tensor::zeros({5}, DType::i32)); }),
            "row_sums: tokens are int32, int64 is needed");
  EXPECT_EQ(error_of([&] { row_sums(q, q, lse, Tensor::zeros({4}, DType::i64)); }),
            "row_sums: tokens [4] must be dense [5 (kv_tokens)]");
}

TEST(WeightsTest, nothing_selected_from_nothing_is_empty) {
  const Tensor q = normal({1, 2, 0, 4}, 1);
  const Tensor k = normal({1, 2, 3, 4}, 1);
  EXPECT_EQ(weights(q, k, Tensor::zeros({1, 2, 0})).shape(), (Shape{1, 2, 0, 3}));
  EXPECT_EQ(weights(k, q, Tensor::zeros({1, 2, 3})).shape(), (Shape{1, 2, 3, 0}));
  EXPECT_EQ(row_sums(k, q, Tensor::zeros({1, 2, 3})).shape(), (Shape{1, 2, 3, kRowSums}));
}

}  // namespace
}  // namespace cephalo
