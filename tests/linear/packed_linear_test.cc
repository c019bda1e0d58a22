// A matrix laid out for the GEMM gives the product, and a layer that uses it the layer.
#include "cephalo/linear/packed_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/format.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::normal;
using testing::same_bits;

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

// A matrix [rows, columns] of some type in some order of memory.
struct Matrix {
  Matrix(dim_t rows, dim_t columns, TorchGenerator& generator)
      : Matrix(rows, columns, kTypes[static_cast<std::size_t>(generator.randint(0, 4))],
               generator) {}
  Matrix(dim_t rows, dim_t columns, DType dtype, TorchGenerator& generator) {
    const auto seed = generator.random64();
    switch (generator.randint(0, 4)) {
      case 0:
        memory = normal({rows, columns}, seed, dtype);
        view = memory;
        break;
      case 1:  // transposed
        memory = normal({columns, rows}, seed, dtype);
        view = transpose(memory, 0, 1);
        break;
      case 2:  // a piece of a larger one
        memory = normal({rows + 3, columns + 5}, seed, dtype);
        view = memory.slice(0, 2, rows + 2).slice(1, 1, columns + 1);
        break;
      default:  // elements lie apart
        memory = normal({rows, columns, 3}, seed, dtype);
        view = memory.select(2, 1);
    }
  }
  Tensor memory;
  TensorView view;
};

struct Product {
  std::vector<double> exact;      // [rows, width]
  std::vector<double> magnitude;  // the same sums of magnitudes
};
Product plain_product(const TensorView& x, const TensorView& weight, const TensorView& bias) {
  const Tensor a = Tensor::copy(x, DType::f64);
  const Tensor b = Tensor::copy(weight, DType::f64);
  Product product;
  for (dim_t r = 0; r < x.dim(0); ++r) {
    for (dim_t c = 0; c < weight.dim(0); ++c) {
      double sum = bias.numel() > 0 ? bias.at({c}) : 0.0;
      double magnitude = std::abs(sum);
      for (dim_t k = 0; k < x.dim(1); ++k) {
        const double term =
            a.data_as<double>()[r * x.dim(1) + k] * b.data_as<double>()[c * x.dim(1) + k];
        sum += term;
        magnitude += std::abs(term);
      }
      product.exact.push_back(sum);
      product.magnitude.push_back(magnitude);
    }
  }
  return product;
}

// One chain of d_in roundings can be off by d_in · 2⁻²⁴ of the sum of magnitudes; rounding errors
// of random sign reach a few times the square root of their number.
double bound_of(dim_t d_in, double magnitude, double value, DType steps, DType out) {
  const double unit = steps == DType::f64 ? 0x1p-53 : 0x1p-24;
  const double last = out == DType::bf16  ? 0x1p-8
                      : out == DType::f16 ? 0x1p-11
                      : out == DType::f32 ? 0x1p-24
                                          : unit;
  const double chain = unit * (4.0 + std::sqrt(static_cast<double>(d_in))) * magnitude;
  return chain + (last + unit) * std::abs(value) * 1.01 + (out == DType::f16 ? 0x1p-25 : 0.0);
}

TEST(PackedLinearTest, equals_a_float64_product_for_any_size_stride_and_type) {
  TorchGenerator generator(1);
  double worst = 0.0;
  for (int round = 0; round < 250; ++round) {
    const dim_t rows = generator.randint(1, 101);
    const dim_t width = generator.randint(1, 131);
    const dim_t d_in =
        generator.keeps(0.2) ? generator.randint(370, 1001) : generator.randint(1, 60);
    const DType steps = generator.keeps(0.3) ? DType::f64 : DType::f32;
    const Matrix x(rows, d_in, generator);
    const Matrix weight(width, d_in, generator);
    const Tensor bias = generator.keeps(0.5) ? normal({width}, 5, DType::f32) : Tensor();
    const DType type = generator.keeps(0.6) ? steps : kTypes[generator.randint(0, 4)];
    SCOPED_TRACE(format_text("round {}: {} x {} x {} {} {} -> {}", round, rows, width, d_in,
                             name(x.view.dtype()), name(weight.view.dtype()), name(type)));
    // float32 arithmetic on float64 inputs rounds them first.
    const TensorView* inputs[] = {&x.view, &weight.view};
    Tensor rounded[2];
    for (int k = 0; k < 2; ++k) rounded[k] = Tensor::copy(*inputs[k], steps);
    const PackedLinear linear(weight.view, bias, steps);
    ASSERT_EQ(linear.width(), width);
    ASSERT_EQ(linear.d_in(), d_in);
    Tensor out = Tensor::full({rows, width}, std::nan(""), type);
    linear.apply(x.view, out.mutable_view());
    const Product plain = plain_product(rounded[0], rounded[1], bias);
    for (dim_t k = 0; k < rows * width; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double ours = out.at({k / width, k % width});
      const double bound = bound_of(d_in, plain.magnitude[at], plain.exact[at], steps, type);
      const double error = std::abs(ours - plain.exact[at]);
      worst = std::max(worst, error / bound);
      ASSERT_LE(error, bound) << "row " << k / width << " column " << k % width;
    }
  }
  testing::report(format_text("packed products: worst {:.2f} of what is allowed", worst));
}

TEST(PackedLinearTest, rows_of_the_result_may_lie_apart_and_nothing_beside_them_is_written) {
  const Tensor x = normal({37, 50}, 1);
  const Tensor weight = normal({29, 50}, 2);
  const PackedLinear linear(weight, {}, DType::f32);
  Tensor dense = Tensor::empty({37, 29});
  linear.apply(x, dense.mutable_view());
  Tensor wide = Tensor::full({39, 64}, 7.0);
  linear.apply(x, wide.mutable_view().slice(0, 1, 38).slice(1, 3, 32));
  EXPECT_TRUE(same_bits(wide.slice(0, 1, 38).slice(1, 3, 32), dense));
  for (dim_t r = 0; r < 39; ++r) {
    for (dim_t c = 0; c < 64; ++c) {
      const bool inside = 1 <= r && r < 38 && 3 <= c && c < 32;
      ASSERT_TRUE(inside || wide.at({r, c}) == 7.0) << r << " " << c;
    }
  }
}

TEST(PackedLinearTest, the_same_bits_for_any_number_of_threads_and_any_rows_beside) {
  const Tensor x = normal({700, 500}, 1);
  const Tensor weight = normal({333, 500}, 2);
  const Tensor bias = normal({333}, 3);
  for (const DType steps : {DType::f32, DType::f64}) {
    Tensor one = Tensor::empty({700, 333}, steps);
    {
      const UseThreads alone(1);
      PackedLinear(weight, bias, steps).apply(x, one.mutable_view());
    }
    for (const int count : {2, 3, 7}) {
      const UseThreads limit(count);
      Tensor many = Tensor::empty({700, 333}, steps);
      PackedLinear(weight, bias, steps).apply(x, many.mutable_view());
      EXPECT_TRUE(same_bits(many, one)) << count;
    }
    const PackedLinear linear(weight, bias, steps);
    for (const dim_t rows : {1, 2, 7, 191, 193}) {
      Tensor few = Tensor::empty({rows, 333}, steps);
      linear.apply(x.slice(0, 400, 400 + rows), few.mutable_view());
      EXPECT_TRUE(same_bits(few, one.slice(0, 400, 400 + rows))) << rows << " rows";
    }
  }
}

// Many rows, so that they are finished in several blocks; few, so that columns could be shared out.
TEST(PackedLinearTest, an_epilogue_works_on_rows_of_the_same_product) {
  for (const DType steps : {DType::f32, DType::f64}) {
    for (const dim_t rows : {450, 3}) {
      const Tensor x = normal({rows, 400}, 1, steps);
      const PackedLinear linear(normal({72, 400}, 2, steps), normal({72}, 3, steps), steps);
      Tensor plain = Tensor::empty({rows, 72}, steps);
      linear.apply(x, plain.mutable_view());
      for (const Gelu form : {Gelu::tanh, Gelu::erf}) {
        Tensor out = Tensor::empty({rows, 72}, steps);
        Tensor active = Tensor::empty({rows, 72}, steps);
        linear.apply(x, out.mutable_view(), Epilogue::gelu(form, active));
        EXPECT_TRUE(same_bits(out, plain));
        Tensor expected = Tensor::empty({rows, 72}, steps);
        finish_rows(Epilogue::gelu(form, expected), plain, 0, rows);
        EXPECT_TRUE(same_bits(active, expected));
        EXPECT_FALSE(same_bits(active, plain));

        const Tensor hidden = normal({rows, 72}, 4, steps);
        linear.apply(x, out.mutable_view(), Epilogue::gelu_back(form, hidden));
        expected = Tensor::copy(plain);
        finish_rows(Epilogue::gelu_back(form, hidden), expected, 0, rows);
        EXPECT_TRUE(same_bits(out, expected));
        EXPECT_FALSE(same_bits(out, plain));
      }
    }
  }
}

TEST(PackedLinearTest, heads_are_turned_in_the_rows_of_the_same_product) {
  const std::int64_t shifts[] = {5, 0};
  const Tensor x = normal({450, 40}, 1);
  const PackedLinear linear(normal({24, 40}, 2), {}, DType::f32);
  Tensor expected = Tensor::empty({450, 24});
  linear.apply(x, expected.mutable_view());
  Tensor out = Tensor::empty({450, 24});
  // Two sequences, and heads of 8 in columns [8, 24).
  const auto turning = [&](Tensor& rows) {
    Rotation rotation;
    rotation.base = 10000.0;
    rotation.half = 4;
    rotation.parts[0] = {
        {rows.mutable_data_as<float>() + 8, DType::f32, {2, 2, 225, 8}, {225 * 24, 8, 24, 1}},
        TensorView(shifts, {2})};
    rotation.count = 1;
    return rotation;
  };
  const Rotation of_out = turning(out);
  linear.apply(x, out.mutable_view(), Epilogue::rotate(of_out));
  turn_rows(turning(expected), 0, 450);
  EXPECT_TRUE(same_bits(out, expected));
  // The first token of the first sequence stands at 5: pair 0 of its first head by 5 radians.
  const Tensor plain = [&] {
    Tensor t = Tensor::empty({450, 24});
    linear.apply(x, t.mutable_view());
    return t;
  }();
  EXPECT_NEAR(out.at({0, 8}), plain.at({0, 8}) * std::cos(5.0) - plain.at({0, 12}) * std::sin(5.0),
              1e-6);
  EXPECT_EQ(out.at({225, 8}), plain.at({225, 8}));  // the second one's at 0
  EXPECT_EQ(out.at({0, 7}), plain.at({0, 7}));
}

TEST(PackedLinearTest, an_epilogue_wants_a_result_of_the_products_type) {
  const PackedLinear linear(normal({8, 4}, 1), {}, DType::f32);
  Tensor out = Tensor::zeros({2, 8}, DType::bf16);
  EXPECT_EQ(error_of([&] {
              linear.apply(normal({2, 4}, 2), out, Epilogue::add());
            }),
            "linear: an epilogue works on a result of float32, not bfloat16");
}

TEST(PackedLinearTest, nan_and_infinity_stay_in_their_row_and_column) {
  Tensor x = normal({40, 30}, 1);
  Tensor weight = normal({50, 30}, 2);
  x.set({7, 3}, std::nan(""));
  weight.set({11, 29}, std::numeric_limits<double>::infinity());
  Tensor out = Tensor::empty({40, 50});
  PackedLinear(weight, {}, DType::f32).apply(x, out.mutable_view());
  for (dim_t r = 0; r < 40; ++r) {
    for (dim_t c = 0; c < 50; ++c) {
      ASSERT_EQ(std::isfinite(out.at({r, c})), r != 7 && c != 11) << r << " " << c;
    }
  }
}

TEST(PackedLinearTest, transposed_views_give_the_bits_of_their_copies) {
  TorchGenerator generator(2);
  for (int round = 0; round < 60; ++round) {
    const dim_t rows = generator.randint(1, 220);
    const dim_t width = generator.randint(1, 131);
    const dim_t d_in =
        generator.keeps(0.3) ? generator.randint(370, 1001) : generator.randint(1, 70);
    const DType steps = generator.keeps(0.3) ? DType::f64 : DType::f32;
    const DType type = kTypes[generator.randint(0, 4)];
    SCOPED_TRACE(format_text("round {}: {} x {} x {} {}", round, rows, width, d_in, name(type)));
    const Tensor x = normal({d_in, rows + 2}, 1, type);
    const Tensor weight = normal({d_in, width + 3}, 2, type);
    const TensorView x_across = transpose(x.slice(1, 1, rows + 1), 0, 1);
    const TensorView weight_across = transpose(weight.slice(1, 2, width + 2), 0, 1);
    Tensor plain = Tensor::empty({rows, width}, steps);
    PackedLinear(Tensor::copy(weight_across), {}, steps)
        .apply(Tensor::copy(x_across), plain.mutable_view());
    Tensor ours = Tensor::full({rows, width}, std::nan(""), steps);
    PackedLinear(weight_across, {}, steps).apply(x_across, ours.mutable_view());
    ASSERT_TRUE(same_bits(ours, plain));
  }
}

TEST(PackedLinearTest, adding_begins_with_what_is_there_for_any_number_of_threads) {
  const Tensor x = normal({900, 210}, 1);
  const Tensor weight = normal({900, 77}, 2);
  const Tensor before = normal({210, 77}, 3);
  for (const DType steps : {DType::f32, DType::f64}) {
    const PackedLinear linear(transpose(weight, 0, 1), {}, steps);
    Tensor one;
    for (const int count : {1, 2, 3, 7}) {
      const UseThreads limit(count);
      Tensor sum = Tensor::copy(before, steps);
      linear.apply(transpose(x, 0, 1), sum.mutable_view(), Epilogue::add());
      if (count == 1) {
        const Product plain = plain_product(transpose(x, 0, 1), transpose(weight, 0, 1), {});
        for (dim_t k = 0; k < sum.numel(); ++k) {
          const auto at = static_cast<std::size_t>(k);
          const double there = before.at({k / 77, k % 77});
          const double expected = plain.exact[at] + there;
          ASSERT_NEAR(sum.at({k / 77, k % 77}), expected,
                      bound_of(901, plain.magnitude[at] + std::abs(there), expected, steps, steps));
        }
        one = std::move(sum);
      } else {
        EXPECT_TRUE(same_bits(sum, one)) << count;
      }
    }
  }
}

TEST(PackedLinearTest, it_tells_whether_dense_columns_are_finite) {
  Tensor x = normal({130, 61}, 1);
  EXPECT_TRUE(PackedLinear(transpose(x, 0, 1), {}, DType::f32).finite());
  for (const double bad : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
    for (const auto& [r, c] : {std::pair{0, 0}, std::pair{129, 60}, std::pair{64, 47}}) {
      const double good = x.at({r, c});
      x.set({r, c}, bad);
      EXPECT_FALSE(PackedLinear(transpose(x, 0, 1), {}, DType::f32).finite()) << r << " " << c;
      EXPECT_FALSE(PackedLinear(transpose(x, 0, 1), {}, DType::f64).finite()) << r << " " << c;
      x.set({r, c}, good);
    }
  }
}

// The layer on it.

struct LayerCase {
  std::string name;
  MultiHeadAttentionOptions options;
  dim_t kv_tokens = 0;  // of a second input
};
std::vector<LayerCase> layer_cases() {
  const MultiHeadAttentionOptions plain{.d_in = 45, .d_out = 48, .num_heads = 4, .seed = 3};
  std::vector<LayerCase> cases;
  const auto add = [&](const std::string& name, auto&& change, dim_t kv_tokens = 0) {
    cases.push_back({name, plain, kv_tokens});
    change(cases.back().options);
  };
  using O = MultiHeadAttentionOptions;
  add("plain", [](O&) {});
  add("biased", [](O& o) { o.qkv_bias = true; });
  add("grouped", [](O& o) { o.num_kv_heads = 2; });
  add("one_kv_head", [](O& o) { o.num_kv_heads = 1, o.v_dim = 7; });
  add("wide_values", [](O& o) { o.v_dim = 31, o.qkv_bias = true; });
  add("no_out_proj", [](O& o) { o.out_proj = false; });
  add("no_out_bias", [](O& o) { o.out_bias = false, o.causal = false; });
  add("rotary", [](O& o) { o.rotary = Rotary{}; });
  add("interleaved", [](O& o) { o.rotary = Rotary{.interleaved = true}, o.num_kv_heads = 2; });
  add(
      "cross", [](O& o) { o.causal = false, o.qkv_bias = true; }, 23);
  add(
      "cross_other_width", [](O& o) { o.d_kv = 33, o.causal = false, o.num_kv_heads = 2; }, 23);
  add(
      "cross_rotary", [](O& o) { o.d_kv = 33, o.rotary = Rotary{}, o.v_dim = 5; }, 40);
  add("bfloat16", [](O& o) { o.dtype = DType::bf16, o.qkv_bias = true; });
  add("float16", [](O& o) { o.dtype = DType::f16; });
  add("float64", [](O& o) { o.dtype = DType::f64, o.rotary = Rotary{}; });
  for (const Form form :
       {Form::raw, Form::heads, Form::linear, Form::joined, Form::torch, Form::gpt2}) {
    add(format_text("form_{}", name(form)), [form](O& o) {
      o.form = form;
      o.qkv_bias = form != Form::raw;
      o.out_proj = form != Form::raw;
      if (form == Form::torch || form == Form::gpt2) o.d_in = 48;
    });
  }
  return cases;
}

// Random weights of order 1 / sqrt(d_in): q, k, v and the output each lose sqrt(d_in) roundings,
// and softmax passes those of the scores on.
double bound_of(DType dtype, double magnitude) {
  const double unit = dtype == DType::f64    ? 0x1p-53
                      : dtype == DType::f32  ? 0x1p-24
                      : dtype == DType::bf16 ? 0x1p-8 * 1.1
                                             : 0x1p-11 * 1.1;
  return (is_16_bit_float(dtype) ? 1.0 : 16.0) * unit * std::max(magnitude, 0.5);
}

template <typename Use>
void for_all_layers(Use&& use) {
  for (const LayerCase& each : layer_cases()) {
    SCOPED_TRACE(each.name);
    MultiHeadAttention layer(each.options);
    layer.eval();
    if (each.options.form == Form::raw) {  // initialised with numbers from 0 to 1: huge scores
      for (const NamedParameter& p : layer.parameters()) {
        layer.update(p.name, multiply(normal(p.value.shape(), 7), 0.1));
      }
    }
    const Tensor x = normal({3, 37, each.options.d_in}, 1, each.options.dtype);
    const dim_t width = each.options.d_kv == 0 ? each.options.d_in : each.options.d_kv;
    const Tensor kv = normal({3, std::max<dim_t>(each.kv_tokens, 1), width}, 2, each.options.dtype);
    const TensorView kv_view = kv;
    CallOptions call;
    if (each.kv_tokens > 0) call.kv = &kv_view;
    use(layer, x, call);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(PackedLayerTest, the_fused_layer_equals_the_reference_layer) {
  double worst = 0.0;
  for_all_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
    call.engine = Engine::reference;
    const Tensor expected = layer(x, call);
    call.engine = Engine::fused;
    const Tensor ours = layer(x, call);
    ASSERT_EQ(ours.dtype(), x.dtype());
    const double bound = bound_of(x.dtype(), largest_magnitude(expected));
    worst = std::max(worst, largest_difference(ours, expected) / bound);
    ASSERT_LE(largest_difference(ours, expected), bound);
    // Without a batch, and a batch that lies apart.
    if (call.kv != nullptr) return;
    ASSERT_LE(largest_difference(layer(x[1], call), expected[1]), bound);
    const Tensor turned = Tensor::copy(transpose(x, 0, 1));
    ASSERT_TRUE(same_bits(layer(transpose(turned, 0, 1), call), ours));
  });
  testing::report(format_text("fused layers: worst {:.2f} of what is allowed", worst));
}

TEST(PackedLayerTest, preparing_changes_no_bit) {
  for_all_layers([&](MultiHeadAttention& layer, const Tensor& x, const CallOptions& call) {
    const Tensor before = layer(x, call);
    EXPECT_FALSE(layer.prepared());
    layer.prepare();
    EXPECT_TRUE(layer.prepared());
    ASSERT_TRUE(same_bits(layer(x, call), before));
  });
}

TEST(PackedLayerTest, threads_change_no_bit) {
  for_all_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
    call.threads = 1;
    const Tensor one = layer(x, call);
    for (const int count : {2, 3, 7}) {
      call.threads = count;
      ASSERT_TRUE(same_bits(layer(x, call), one)) << count;
    }
  });
}

TEST(PackedLayerTest, an_update_drops_what_was_prepared_and_raises_the_version) {
  for_all_layers([&](MultiHeadAttention& layer, const Tensor& x, const CallOptions& call) {
    layer.prepare();
    const Tensor before = layer(x, call);
    for (const NamedParameter& p : layer.parameters()) {
      layer.prepare();
      const std::uint64_t version = layer.version();
      const Tensor old = Tensor::copy(p.value);
      layer.update(p.name, normal(old.shape(), 9, old.dtype()));
      EXPECT_FALSE(layer.prepared()) << p.name;
      EXPECT_GT(layer.version(), version);
      const Tensor fresh = layer(x, call);
      // A key bias adds the same to all scores of a query: softmax does not see it.
      const bool unseen = p.name.find("key.bias") != std::string::npos ||
                          p.name.find("k_linear.bias") != std::string::npos;
      EXPECT_TRUE(unseen || !same_bits(fresh, before)) << p.name;
      layer.prepare();
      ASSERT_TRUE(same_bits(layer(x, call), fresh)) << p.name;
      layer.update(p.name, old);
      ASSERT_TRUE(same_bits(layer(x, call), before)) << p.name;
    }
  });
}

TEST(PackedLayerTest, a_failed_update_leaves_the_layer_prepared) {
  MultiHeadAttention layer({.d_in = 4, .d_out = 4, .num_heads = 2, .seed = 1});
  layer.prepare();
  EXPECT_NE(error_of([&] { layer.update("W_query.weight", Tensor::zeros({3, 4})); }), "");
  EXPECT_NE(error_of([&] { layer.update("nobody", Tensor::zeros({3, 4})); }), "");
  EXPECT_TRUE(layer.prepared());
  EXPECT_EQ(layer.version(), 0U);
}

TEST(PackedLayerTest, a_prepared_layer_serves_cross_attention_too) {
  MultiHeadAttention layer({.d_in = 12, .d_out = 12, .num_heads = 2, .causal = false, .seed = 1});
  layer.eval();
  const Tensor x = normal({2, 9, 12}, 1);
  const Tensor other = normal({2, 6, 12}, 2);
  const TensorView kv = other;
  const Tensor before = layer(x, {.kv = &kv});
  layer.prepare();
  EXPECT_TRUE(same_bits(layer(x, {.kv = &kv}), before));
}

TEST(PackedLayerTest, counts_without_a_cache_are_an_error) {
  MultiHeadAttention layer({.d_in = 4, .d_out = 4, .num_heads = 2, .seed = 1});
  EXPECT_EQ(error_of([&] {
              layer(normal({1, 3, 4}, 1), {.counts = {2}});
            }),
            "MultiHeadAttention: counts belong to the sequences of a cache, and there is none");
}

}  // namespace
}  // namespace cephalo
