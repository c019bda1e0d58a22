#include "tests/support/golden_layer.h"

namespace cephalo::testing {

std::unique_ptr<MultiHeadAttention> golden_layer(const nlohmann::json& c) {
  const auto dim = [&](const char* key) { return c.at(key).get<dim_t>(); };
  const auto seed = c.at("seed").get<std::uint64_t>();
  const bool bias = c.at("qkv_bias");
  const double dropout = c.at("dropout");
  constexpr auto kTorch = DropoutStream::torch;
  switch (c.at("rung").get<int>()) {
    case 2:
      return std::make_unique<SelfAttention>(
          SelfAttentionOptions{.d_in = dim("d_in"),
                               .d_out = dim("d_out"),
                               .qkv_bias = bias,
                               .form = c.at("raw").get<bool>() ? Form::raw : Form::separate,
                               .seed = seed});
    case 3:
      return std::make_unique<CausalAttention>(
          CausalAttentionOptions{.d_in = dim("d_in"),
                                 .d_out = dim("d_out"),
                                 .context_length = dim("context_length"),
                                 .dropout = dropout,
                                 .qkv_bias = bias,
                                 .seed = seed,
                                 .dropout_stream = kTorch});
    case 4:
      return std::make_unique<HeadWrapper>(
          HeadWrapperOptions{.d_in = dim("d_in"),
                             .d_out = dim("d_out"),
                             .context_length = dim("context_length"),
                             .dropout = dropout,
                             .num_heads = dim("num_heads"),
                             .qkv_bias = bias,
                             .seed = seed,
                             .dropout_stream = kTorch});
    case 5:
      return std::make_unique<MultiHeadAttention>(
          MultiHeadAttentionOptions{.d_in = dim("d_in"),
                                    .d_out = dim("d_out"),
                                    .context_length = dim("context_length"),
                                    .dropout = dropout,
                                    .num_heads = dim("num_heads"),
                                    .qkv_bias = bias,
                                    .seed = seed,
                                    .dropout_stream = kTorch});
    case 6:
      return std::make_unique<EasyMultiHeadAttention>(EasyMultiHeadAttentionOptions{
          .d_model = dim("d_out"), .num_heads = dim("num_heads"), .seed = seed});
    default:
      return std::make_unique<FastMultiHeadAttention>(FastMultiHeadAttentionOptions{
          .d_model = dim("d_out"), .num_heads = dim("num_heads"), .seed = seed});
  }
}

std::string headline(nlohmann::json c) {
  for (const char* key : {"output", "parameters", "gradients"}) c.erase(key);
  return c.dump();
}

}  // namespace cephalo::testing
