#include "cephalo/train/gradcheck.h"

#include <array>
#include <memory>
#include <string>

#include "cephalo/attention/plan.h"
#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/io/json_value.h"
#include "cli/gradcheck_flags.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Sizes {
  dim_t batch, num_heads, num_kv_heads, q_tokens, kv_tokens, head_dim, v_dim;
};

Sizes parse_sizes(const GradcheckFlags& flags) {
  const dim_t num_heads = parse_size("--num-heads", flags.num_heads);
  const dim_t num_kv_heads = parse_size("--num-kv-heads", flags.num_kv_heads, num_heads);
  if (num_heads % num_kv_heads != 0) {
    throw UsageError(
        format_text("--num-kv-heads: {} does not divide --num-heads {}", num_kv_heads, num_heads));
  }
  const dim_t tokens = parse_size("--tokens", flags.tokens);
  const dim_t head_dim = parse_size("--head-dim", flags.head_dim, 8);
  return {parse_size("--batch", flags.batch),
          num_heads,
          num_kv_heads,
          parse_size("--q-tokens", flags.q_tokens, tokens),
          parse_size("--kv-tokens", flags.kv_tokens, tokens),
          head_dim,
          parse_size("--v-dim", flags.v_dim, head_dim)};
}

// "heads,q,k" -> [1, num_heads, q_tokens, kv_tokens]: the axes that the bias has of its own.
Shape parse_bias(const std::string& text, const Sizes& sizes) {
  const std::array<std::pair<const char*, dim_t>, 4> axes = {{{"batch", sizes.batch},
                                                              {"heads", sizes.num_heads},
                                                              {"q", sizes.q_tokens},
                                                              {"k", sizes.kv_tokens}}};
  Shape shape{1, 1, 1, 1};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    bool known = false;
    for (int axis = 0; axis < 4; ++axis) {
      const auto& [axis_name, full] = axes[static_cast<std::size_t>(axis)];
      if (word != axis_name) continue;
      shape[axis] = full;
      known = true;
    }
    if (!known) {
      throw UsageError(
          format_text("--bias: '{}' is not one of batch, heads, q, k", printable(word)));
    }
    begin = end + 1;
  }
  return shape;
}

// A report and what it is about.
struct Checked {
  std::string title;
  GradcheckReport report;
};

Checked check_attend(const GradcheckFlags& flags) {
  const Sizes s = parse_sizes(flags);
  AttendOptions options;
  options.engine = flags.parse_engine();
  if (!flags.softcap.empty()) options.softcap = parse_positive("--softcap", flags.softcap);
  options.dropout = parse_probability("--dropout", flags.dropout);
  options.seed = parse_seed("--seed", flags.seed);
  const GradcheckOptions check = flags.parse_check();
  Mask mask = flags.parse_mask();
  TorchGenerator generator(options.seed);
  const Tensor q = generator.randn({s.batch, s.num_heads, s.q_tokens, s.head_dim}, DType::f64);
  const Tensor k = generator.randn({s.batch, s.num_kv_heads, s.kv_tokens, s.head_dim}, DType::f64);
  const Tensor v = generator.randn({s.batch, s.num_kv_heads, s.kv_tokens, s.v_dim}, DType::f64);
  if (!flags.bias.empty()) {
    mask = mask & bias(generator.randn(parse_bias(flags.bias, s), DType::f64));
  }
  return {format_text("attend by the {} engine: batch {}, heads {}/{}, tokens {}/{}, width {}/{}",
                      name(plan(q, k, v, mask, options).engine), s.batch, s.num_heads,
                      s.num_kv_heads, s.q_tokens, s.kv_tokens, s.head_dim, s.v_dim),
          gradcheck(q, k, v, mask, options, check)};
}

// The layer of the flags. All that it is made from are flags: a wrong number is wrong usage.
MultiHeadAttention make_layer(const GradcheckFlags& flags, TorchGenerator& generator) {
  MultiHeadAttentionOptions options;
  options.d_in = parse_size("--d-in", flags.d_in, 24);
  options.d_out = parse_size("--d-out", flags.d_out, 24);
  options.num_heads = parse_size("--num-heads", flags.num_heads);
  options.num_kv_heads = parse_size("--num-kv-heads", flags.num_kv_heads, 0);
  options.d_kv = parse_size("--d-kv", flags.d_kv, 0);
  options.v_dim = parse_size("--v-dim", flags.v_dim, 0);
  options.dropout = parse_probability("--dropout", flags.dropout);
  options.qkv_bias = flags.qkv_bias;
  options.out_proj = !flags.no_out_proj;
  options.causal = false;  // the mask says all
  if (flags.rotary) options.rotary = Rotary{};
  options.generator = &generator;
  options.dtype = DType::f64;
  try {
    return MultiHeadAttention(options);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::value) throw;
    throw UsageError(error.what());
  }
}

Checked check_layer(const GradcheckFlags& flags) {
  const GradcheckOptions check = flags.parse_check();
  const dim_t batch = parse_size("--batch", flags.batch);
  const dim_t tokens = parse_size("--tokens", flags.tokens);
  const dim_t kv_tokens = parse_size("--kv-tokens", flags.kv_tokens, 0);
  TorchGenerator generator(check.seed);
  const MultiHeadAttention layer = make_layer(flags, generator);
  const MultiHeadAttentionOptions& o = layer.options();
  const Tensor x = generator.randn({batch, tokens, o.d_in}, DType::f64);
  const Tensor kv = generator.randn({batch, kv_tokens, o.d_kv == 0 ? o.d_in : o.d_kv}, DType::f64);
  const TensorView kv_view = kv;
  CallOptions call;
  call.engine = flags.parse_engine();
  call.mask = flags.parse_mask();
  if (kv_tokens > 0) call.kv = &kv_view;
  const Tensor head = Tensor::zeros({1, layer.head_dim()}, DType::f64);
  const Engine engine = plan(head, head, head, {}, {.engine = call.engine}).engine;
  return {format_text("MultiHeadAttention by the {} engine: {} -> {}, heads {}/{}, batch {}, {}",
                      name(engine), o.d_in, o.d_out, o.num_heads,
                      o.num_kv_heads == 0 ? o.num_heads : o.num_kv_heads, batch,
                      kv_tokens > 0 ? format_text("tokens {}/{}", tokens, kv_tokens)
                                    : format_text("tokens {}", tokens)),
          gradcheck(layer, x, call, check)};
}

std::string as_text(const GradcheckReport& report, const std::string& title, bool fast) {
  return format_text("{}\n{}{}\n", bold(title), report.to_string(),
                     report.passed()
                         ? format_text("passed: every {} agrees", fast ? "projection" : "element")
                         : "failed");
}

std::string as_json(const GradcheckReport& report, const std::string& title, bool fast) {
  Json tensors = Json::array();
  for (const GradcheckTensor& t : report.tensors) {
    const std::vector<dim_t> index(t.worst.index.begin(), t.worst.index.end());
    tensors.push_back({{"name", t.name},
                       {"passed", t.passed()},
                       {"checked", t.checked},
                       {"failed", t.failed},
                       {"worst",
                        {{"index", index},
                         {"analytic", t.worst.analytic},
                         {"numeric", t.worst.numeric},
                         {"error", t.worst.error},
                         {"allowed", t.worst.allowed}}}});
  }
  const Json json = {{"title", title},
                     {"checks", fast ? "projections" : "elements"},
                     {"passed", report.passed()},
                     {"tensors", tensors}};
  return json.dump({.indent = 1}) + "\n";
}

void gradcheck_verb(const GradcheckFlags& flags) {
  flags.refuse_what_does_not_belong();
  const auto [title, report] = flags.layer ? check_layer(flags) : check_attend(flags);
  show_status("");
  print(flags.json ? as_json(report, title, flags.fast) : as_text(report, title, flags.fast));
  if (!report.passed()) {
    throw Error(Error::Kind::value, "gradcheck: gradients and central differences disagree");
  }
}

}  // namespace

Verb add_gradcheck(Command program) {
  auto flags = std::make_shared<GradcheckFlags>();
  Command verb = program.add_subcommand(
      "gradcheck", "Check gradients of attention, or of a layer, on a configuration");
  flags->add_to(verb);
  verb.footer(
      "Exit status 1 when a gradient is wrong.\n"
      "Examples:\n"
      "  cephalo gradcheck\n"
      "  cephalo gradcheck --num-kv-heads 2 --mask 'causal() & window(3, 0)' --softcap 5\n"
      "  cephalo gradcheck --tokens 300 --bias heads,q,k --mask none --fast --engine fused\n"
      "  cephalo gradcheck --layer --num-kv-heads 2 --qkv-bias --rotary");
  return [flags] { gradcheck_verb(*flags); };
}

}  // namespace cephalo::cli
