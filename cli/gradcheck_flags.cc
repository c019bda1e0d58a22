#include "cli/gradcheck_flags.h"

#include <utility>

#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"
#include "cli/mask_words.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::int64_t kLargest = 1 << 20;  // of any size
constexpr int kProjections = 8;             // of --fast, for each tensor

}  // namespace

dim_t parse_size(const char* flag, const std::string& text) {
  return parse_integer(flag, text, 1, kLargest);
}

dim_t parse_size(const char* flag, const std::string& text, dim_t otherwise) {
  return text.empty() ? otherwise : parse_size(flag, text);
}

void GradcheckFlags::add_to(Command verb) {
  const auto number = [&](const char* flag, std::string& to, const char* what) {
    return verb.add_option(flag, to, what).type_name("N");
  };
  number("--batch", batch, "Sequences; default 2");
  number("--tokens", tokens, "Queries and keys; default 6");
  number("--kv-tokens", kv_tokens, "Keys; default: --tokens. With --layer: cross attention");
  number("--num-heads", num_heads, "Query heads; default 4");
  number("--num-kv-heads", num_kv_heads, "Key and value heads; default: --num-heads");
  number("--v-dim", v_dim, "Width of a value; default: that of a query");
  verb.add_option("--mask", mask, "'causal() & window(3, 0)', none; default causal()")
      .type_name("WORDS");
  number("--dropout", dropout, "Probability that a weight is dropped; default 0");
  number("--seed", seed, "Seed of inputs, dropout and directions; default 0");
  verb.add_option("--engine", engine, "automatic, reference or fused").type_name("NAME");
  number("--eps", eps, "Step of the differences; default 1e-6");
  number("--atol", atol, "Error allowed everywhere; default 1e-5");
  number("--rtol", rtol, "Error allowed relative to the gradient; default 1e-3");
  verb.add_flag("--fast", fast, "Random directions instead of every element");
  verb.add_flag("--json", json, "The same as JSON");

  const char* attend = "For attend";
  number("--q-tokens", q_tokens, "Queries; default: --tokens").group(attend);
  number("--head-dim", head_dim, "Width of a query; default 8").group(attend);
  verb.add_option("--bias", bias, "A random bias with these axes: batch,heads,q,k")
      .type_name("AXES")
      .group(attend);
  number("--softcap", softcap, "Scores become c tanh(scores / c)").group(attend);

  const char* layers = "For a layer";
  verb.add_flag("--layer", layer, "A MultiHeadAttention: x and every parameter").group(layers);
  number("--d-in", d_in, "Width into it; default 24").group(layers);
  number("--d-out", d_out, "Width out of it; default 24").group(layers);
  number("--d-kv", d_kv, "Width of the second input; default: --d-in").group(layers);
  verb.add_flag("--qkv-bias", qkv_bias, "Biases in the q, k and v projections").group(layers);
  verb.add_flag("--rotary", rotary, "Rotary positions").group(layers);
  verb.add_flag("--no-out-proj", no_out_proj, "No output projection").group(layers);
}

void GradcheckFlags::refuse_what_does_not_belong() const {
  const auto refuse = [](const char* flag, bool given, const char* why) {
    if (given) throw UsageError(format_text("{}: {}", flag, why));
  };
  for (const auto& [flag, text] :
       {std::pair{"--q-tokens", &q_tokens}, std::pair{"--head-dim", &head_dim},
        std::pair{"--bias", &bias}, std::pair{"--softcap", &softcap}}) {
    refuse(flag, layer && !text->empty(), "a layer has no such option");
  }
  const char* needs_layer = "only with --layer";
  refuse("--d-in", !layer && !d_in.empty(), needs_layer);
  refuse("--d-out", !layer && !d_out.empty(), needs_layer);
  refuse("--d-kv", !layer && !d_kv.empty(), needs_layer);
  refuse("--qkv-bias", !layer && qkv_bias, needs_layer);
  refuse("--rotary", !layer && rotary, needs_layer);
  refuse("--no-out-proj", !layer && no_out_proj, needs_layer);
  refuse("--d-kv", !d_kv.empty() && kv_tokens.empty(), "only with --kv-tokens");
}

Mask GradcheckFlags::parse_mask() const {
  return mask_of_flag(mask);
}

Engine GradcheckFlags::parse_engine() const {
  std::string known = name(Engine::automatic);
  if (engine == known) return Engine::automatic;
  for (const NamedEngine& each : named_engines()) {
    if (engine == each.name) return each.engine;
    append_text(known, ", {}", each.name);
  }
  throw UsageError(format_text("--engine: '{}' is not one of {}", printable(engine), known));
}

GradcheckOptions GradcheckFlags::parse_check() const {
  GradcheckOptions check;
  check.seed = parse_seed("--seed", seed);
  check.projections = fast ? kProjections : 0;
  if (!eps.empty()) check.eps = parse_positive("--eps", eps);
  if (!atol.empty()) check.atol = parse_tolerance("--atol", atol);
  if (!rtol.empty()) check.rtol = parse_tolerance("--rtol", rtol);
  check.progress = [](const std::string& tensor, dim_t done, dim_t all) {
    if (done % 16 == 0) show_status(format_text("checking {}: {} of {}", tensor, done, all));
  };
  return check;
}

}  // namespace cephalo::cli
