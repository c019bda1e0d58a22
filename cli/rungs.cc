#include "cli/rungs.h"

#include <algorithm>
#include <array>

#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct RungName {
  int number;
  std::array<const char*, 3> names;
};
constexpr std::array kRungs = {
    RungName{1, {"simple", "simple_attention", ""}},
    RungName{2, {"self", "SelfAttention", ""}},
    RungName{3, {"causal", "CausalAttention", "CausalSelfAttention"}},
    RungName{4, {"wrapper", "HeadWrapper", ""}},
    RungName{5, {"multi-head", "MultiHeadAttention", ""}},
    RungName{6, {"bidirectional", "EasyMultiHeadAttention", "MultiHeadSelfAttention"}},
    RungName{7, {"fused", "FastMultiHeadAttention", ""}},
    RungName{8, {"pipeline", "", ""}}};

}  // namespace

int parse_rung(const std::string& text) {
  for (const RungName& rung : kRungs) {
    const auto& names = rung.names;
    if (text == std::to_string(rung.number)) return rung.number;
    if (!text.empty() && std::find(names.begin(), names.end(), text) != names.end()) {
      return rung.number;
    }
  }
  throw UsageError(
      format_text("--rung: '{}' is not 1 to 8 or one of simple, self, causal, wrapper, multi-head, "
                  "bidirectional, fused, pipeline",
                  printable(text)));
}

bool has_one_width(int rung) {
  return rung == 6 || rung == 7;
}

std::unique_ptr<MultiHeadAttention> make_rung(int rung, const MultiHeadAttentionOptions& o,
                                              TorchGenerator& generator) {
  switch (rung) {
    case 2:
      return std::make_unique<SelfAttention>(SelfAttentionOptions{.d_in = o.d_in,
                                                                  .d_out = o.d_out,
                                                                  .qkv_bias = o.qkv_bias,
                                                                  .form = o.form,
                                                                  .generator = &generator});
    case 3:
      return std::make_unique<CausalAttention>(
          CausalAttentionOptions{.d_in = o.d_in,
                                 .d_out = o.d_out,
                                 .context_length = o.context_length,
                                 .dropout = o.dropout,
                                 .qkv_bias = o.qkv_bias,
                                 .generator = &generator,
                                 .dropout_stream = o.dropout_stream});
    case 4:
      return std::make_unique<HeadWrapper>(HeadWrapperOptions{.d_in = o.d_in,
                                                              .d_out = o.d_out,
                                                              .context_length = o.context_length,
                                                              .dropout = o.dropout,
                                                              .num_heads = o.num_heads,
                                                              .qkv_bias = o.qkv_bias,
                                                              .generator = &generator,
                                                              .dropout_stream = o.dropout_stream});
    case 6:
      return std::make_unique<EasyMultiHeadAttention>(EasyMultiHeadAttentionOptions{
          .d_model = o.d_in, .num_heads = o.num_heads, .generator = &generator});
    case 7:
      return std::make_unique<FastMultiHeadAttention>(FastMultiHeadAttentionOptions{
          .d_model = o.d_in, .num_heads = o.num_heads, .generator = &generator});
    default: {
      MultiHeadAttentionOptions options = o;
      options.generator = &generator;
      return std::make_unique<MultiHeadAttention>(options);
    }
  }
}

}  // namespace cephalo::cli
