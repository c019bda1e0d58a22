#include "cephalo/attention/gradcheck.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cephalo/attention/plan.h"
#include "cephalo/core/error.h"
#include "cli/mask_words.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::int64_t kLargest = 1 << 20;  // of any size
constexpr int kProjections = 8;             // of --fast, for each tensor

struct Flags {
  std::string batch = "2", num_heads = "4", num_kv_heads, tokens = "6", q_tokens, kv_tokens;
  std::string head_dim = "8", v_dim, mask = "causal()", bias, softcap, dropout = "0", seed = "0";
  std::string engine = "automatic", eps, atol, rtol;
  bool fast = false, json = false;
};

struct Sizes {
  dim_t batch, num_heads, num_kv_heads, q_tokens, kv_tokens, head_dim, v_dim;
};

dim_t size(const char* flag, const std::string& text) {
  return parse_integer(flag, text, 1, kLargest);
}

dim_t size_or(const char* flag, const std::string& text, dim_t otherwise) {
  return text.empty() ? otherwise : size(flag, text);
}

Sizes parse_sizes(const Flags& flags) {
  const dim_t num_heads = size("--num-heads", flags.num_heads);
  const dim_t num_kv_heads = size_or("--num-kv-heads", flags.num_kv_heads, num_heads);
  if (num_heads % num_kv_heads != 0) {
    throw UsageError(
        fmt::format("--num-kv-heads: {} does not divide --num-heads {}", num_kv_heads, num_heads));
  }
  const dim_t tokens = size("--tokens", flags.tokens);
  const dim_t head_dim = size("--head-dim", flags.head_dim);
  return {size("--batch", flags.batch),
          num_heads,
          num_kv_heads,
          size_or("--q-tokens", flags.q_tokens, tokens),
          size_or("--kv-tokens", flags.kv_tokens, tokens),
          head_dim,
          size_or("--v-dim", flags.v_dim, head_dim)};
}

Engine parse_engine(const std::string& text) {
  for (const Engine engine : {Engine::automatic, Engine::reference, Engine::fused}) {
    if (text == name(engine)) return engine;
  }
  throw UsageError(
      fmt::format("--engine: '{}' is not one of automatic, reference, fused", printable(text)));
}

AttendOptions parse_options(const Flags& flags) {
  AttendOptions options;
  options.engine = parse_engine(flags.engine);
  if (!flags.softcap.empty()) options.softcap = parse_positive("--softcap", flags.softcap);
  options.dropout = parse_probability("--dropout", flags.dropout);
  options.seed = parse_seed("--seed", flags.seed);
  return options;
}

GradcheckOptions parse_check(const Flags& flags) {
  GradcheckOptions check;
  check.seed = parse_seed("--seed", flags.seed);
  check.projections = flags.fast ? kProjections : 0;
  if (!flags.eps.empty()) check.eps = parse_positive("--eps", flags.eps);
  if (!flags.atol.empty()) check.atol = parse_tolerance("--atol", flags.atol);
  if (!flags.rtol.empty()) check.rtol = parse_tolerance("--rtol", flags.rtol);
  check.progress = [](const std::string& tensor, dim_t done, dim_t all) {
    if (done % 16 == 0) show_status(fmt::format("checking {}: {} of {}", tensor, done, all));
  };
  return check;
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
          fmt::format("--bias: '{}' is not one of batch, heads, q, k", printable(word)));
    }
    begin = end + 1;
  }
  return shape;
}

std::string as_text(const GradcheckReport& report, const std::string& title, bool fast) {
  return fmt::format("{}\n{}{}\n", bold(title), report.to_string(),
                     report.passed()
                         ? fmt::format("passed: every {} agrees", fast ? "projection" : "element")
                         : "failed");
}

std::string as_json(const GradcheckReport& report, const std::string& title, bool fast) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
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
  const nlohmann::ordered_json json = {{"title", title},
                                       {"checks", fast ? "projections" : "elements"},
                                       {"passed", report.passed()},
                                       {"tensors", tensors}};
  return json.dump(1) + "\n";
}

void gradcheck_verb(const Flags& flags) {
  const Sizes s = parse_sizes(flags);
  const AttendOptions options = parse_options(flags);
  const GradcheckOptions check = parse_check(flags);
  Mask mask = flags.mask == "none" ? Mask() : parse_mask(flags.mask);
  TorchGenerator generator(options.seed);
  const Tensor q = generator.randn({s.batch, s.num_heads, s.q_tokens, s.head_dim}, DType::f64);
  const Tensor k = generator.randn({s.batch, s.num_kv_heads, s.kv_tokens, s.head_dim}, DType::f64);
  const Tensor v = generator.randn({s.batch, s.num_kv_heads, s.kv_tokens, s.v_dim}, DType::f64);
  if (!flags.bias.empty()) {
    mask = mask & bias(generator.randn(parse_bias(flags.bias, s), DType::f64));
  }
  const Engine engine = plan(q, k, v, mask, options).engine;
  const std::string title = fmt::format(
      "attend by the {} engine: batch {}, heads {}/{}, tokens {}/{}, width {}/{}", name(engine),
      s.batch, s.num_heads, s.num_kv_heads, s.q_tokens, s.kv_tokens, s.head_dim, s.v_dim);
  const GradcheckReport report = gradcheck(q, k, v, mask, options, check);
  show_status("");
  print(flags.json ? as_json(report, title, flags.fast) : as_text(report, title, flags.fast));
  if (!report.passed()) {
    throw Error(Error::Kind::value, "gradcheck: gradients and central differences disagree");
  }
}

}  // namespace

Verb add_gradcheck(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb =
      program.add_subcommand("gradcheck", "Check attention's gradients on a configuration");
  const auto number = [&](const char* flag, std::string& to, const char* what) {
    verb->add_option(flag, to, what)->type_name("N");
  };
  number("--batch", flags->batch, "Sequences; default 2");
  number("--num-heads", flags->num_heads, "Query heads; default 4");
  number("--num-kv-heads", flags->num_kv_heads, "Key and value heads; default: as many");
  number("--tokens", flags->tokens, "Queries and keys; default 6");
  number("--q-tokens", flags->q_tokens, "Queries; default: --tokens");
  number("--kv-tokens", flags->kv_tokens, "Keys; default: --tokens");
  number("--head-dim", flags->head_dim, "Width of a query; default 8");
  number("--v-dim", flags->v_dim, "Width of a value; default: --head-dim");
  verb->add_option("--mask", flags->mask, "'causal() & window(3, 0)', none; default causal()")
      ->type_name("WORDS");
  verb->add_option("--bias", flags->bias, "A random bias with these axes: batch,heads,q,k")
      ->type_name("AXES");
  number("--softcap", flags->softcap, "Scores become c tanh(scores / c)");
  number("--dropout", flags->dropout, "Probability that a weight is dropped; default 0");
  number("--seed", flags->seed, "Of the inputs, dropout and directions; default 0");
  verb->add_option("--engine", flags->engine, "automatic, reference or fused")->type_name("NAME");
  number("--eps", flags->eps, "Step of the differences; default 1e-6");
  number("--atol", flags->atol, "Error allowed everywhere; default 1e-5");
  number("--rtol", flags->rtol, "Error allowed beside the size of the gradient; default 1e-3");
  verb->add_flag("--fast", flags->fast, "Random directions instead of every element");
  verb->add_flag("--json", flags->json, "The same as JSON");
  verb->footer(
      "Exit status 1 when a gradient is wrong.\n"
      "Examples:\n"
      "  cephalo gradcheck\n"
      "  cephalo gradcheck --num-kv-heads 2 --mask 'causal() & window(3, 0)' --softcap 5\n"
      "  cephalo gradcheck --tokens 300 --bias heads,q,k --mask none --fast --engine fused");
  return [flags] { gradcheck_verb(*flags); };
}

}  // namespace cephalo::cli
