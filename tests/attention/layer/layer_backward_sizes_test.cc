// The layer's backward pass where tiles end somewhere inside, in every element type: engines agree,
// and bits depend on neither threads nor training.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "tests/support/layer_backward.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::kLayerEngines;
using testing::largest_difference;
using testing::largest_magnitude;
using testing::LayerBackward;
using testing::normal;
using testing::same_bits;
using testing::same_bits_of_all;

struct Medium {
  std::string name;
  MultiHeadAttentionOptions options;
  dim_t kv_tokens = 0;
};
std::vector<Medium> medium_cases() {
  const MultiHeadAttentionOptions plain{
      .d_in = 45, .d_out = 48, .num_heads = 4, .qkv_bias = true, .seed = 3};
  std::vector<Medium> cases;
  const auto add = [&](const std::string& name, auto&& change, dim_t kv_tokens = 0) {
    cases.push_back({name, plain, kv_tokens});
    change(cases.back().options);
  };
  using O = MultiHeadAttentionOptions;
  add("plain", [](O&) {});
  add("grouped_rotary", [](O& o) { o.num_kv_heads = 2, o.rotary = Rotary{}, o.v_dim = 7; });
  add("no_out_proj", [](O& o) { o.out_proj = false, o.causal = false; });
  add("dropout", [](O& o) { o.dropout = 0.3; });
  add(
      "cross", [](O& o) { o.causal = false; }, 23);
  add(
      "cross_width", [](O& o) { o.d_kv = 33, o.causal = false; }, 61);
  add("bfloat16", [](O& o) { o.dtype = DType::bf16; });
  add("float16", [](O& o) { o.dtype = DType::f16, o.out_proj = false; });
  add("float64", [](O& o) { o.dtype = DType::f64, o.rotary = Rotary{}; });
  return cases;
}

template <typename Use>
void for_medium_layers(Use&& use) {
  for (const Medium& each : medium_cases()) {
    SCOPED_TRACE(each.name);
    MultiHeadAttention layer(each.options);
    const DType dtype = each.options.dtype;
    const Tensor x = normal({3, 67, each.options.d_in}, 1, dtype);
    const dim_t width = each.options.d_kv == 0 ? each.options.d_in : each.options.d_kv;
    const Tensor kv = normal({3, std::max<dim_t>(each.kv_tokens, 1), width}, 2, dtype);
    const TensorView kv_view = kv;
    CallOptions call{.call = 4};
    if (each.kv_tokens > 0) call.kv = &kv_view;
    use(layer, x, call);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Sums of a few hundred rounded products, of terms whose magnitudes are those of the result.
double bound_of(DType dtype, double magnitude) {
  const double unit = dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
  return (is_16_bit_float(dtype) ? 1.0 : 64.0) * unit * std::max(magnitude, 1.0);
}

TEST(LayerBackwardTest, the_fused_engine_equals_the_reference_engine) {
  double worst = 0.0;
  for_medium_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
    call.engine = Engine::reference;
    const auto [y, saved] = layer.forward_train(x, call);
    const Tensor dy = normal(y.shape(), 3, y.dtype());
    const LayerBackward expected(layer, saved, dy, x, call.kv);
    call.engine = Engine::fused;
    const auto [y_fused, saved_fused] = layer.forward_train(x, call);
    const LayerBackward ours(layer, saved_fused, dy, x, call.kv);
    const auto compare = [&](const TensorView& a, const TensorView& b, const std::string& what) {
      const double bound = bound_of(b.dtype(), largest_magnitude(b));
      worst = std::max(worst, largest_difference(a, b) / bound);
      EXPECT_LE(largest_difference(a, b), bound) << what;
    };
    compare(ours.dx, expected.dx, "dx");
    if (call.kv != nullptr) compare(ours.dkv, expected.dkv, "dkv");
    const auto named = expected.gradients.named();
    for (std::size_t n = 0; n < named.size(); ++n) {
      EXPECT_NE(named[n].value.dtype(), DType::bf16);
      compare(ours.gradients.named()[n].value, named[n].value, named[n].name);
    }
  });
  testing::report(format_text("layer backward: worst {:.2f} of what is allowed", worst));
}

TEST(LayerBackwardTest, y_has_the_bits_of_the_plain_call) {
  for (const Engine engine : kLayerEngines) {
    for_medium_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
      call.engine = engine;
      EXPECT_TRUE(same_bits(layer.forward_train(x, call).y, layer(x, call)));
      layer.eval();
      EXPECT_TRUE(same_bits(layer.forward_train(x, call).y, layer(x, call)));
    });
  }
}

TEST(LayerBackwardTest, threads_change_no_bit) {
  for (const Engine engine : kLayerEngines) {
    for_medium_layers([&](MultiHeadAttention& layer, const Tensor& x, CallOptions call) {
      call.engine = engine;
      std::optional<LayerBackward> one;
      for (const int count : {1, 2, 3, 7}) {
        call.threads = count;
        const auto [y, saved] = layer.forward_train(x, call);
        LayerBackward many(layer, saved, normal(y.shape(), 3, y.dtype()), x, call.kv);
        if (!one) {
          one.emplace(std::move(many));
        } else {
          ASSERT_TRUE(same_bits_of_all(many, *one)) << count;
        }
      }
    });
  }
}

}  // namespace
}  // namespace cephalo
