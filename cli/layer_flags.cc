#include "cli/layer_flags.h"

#include <filesystem>

#include "cephalo/core/format.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::int64_t kMostHeads = 1 << 20;
constexpr std::int64_t kLongest = std::int64_t{1} << 40;

}  // namespace

void LayerFlags::add_to(Command verb) {
  verb.add_option("--num-heads", num_heads_,
                  "Heads, if neither the file nor config.json gives them")
      .type_name("N");
  verb.add_option("--num-kv-heads", num_kv_heads_, "Key and value heads").type_name("N");
  verb.add_option("--context-length", context_length_, "Longest input").type_name("N");
  verb.add_flag("--causal", causal_, "The future is hidden");
  verb.add_flag("--bidirectional", bidirectional_, "Nothing is hidden");
  verb.add_option("--prefix", prefix_, "One layer of a larger file, such as h.0.")
      .type_name("TEXT");
  verb.add_flag("--strict", strict_, "NaN among the parameters is an error");
  verb.add_flag("--allow-extra", allow_extra_, "Ignore tensors that do not belong to the layer");
}

LoadOptions LayerFlags::parse() const {
  if (causal_ && bidirectional_)
    throw UsageError("--causal and --bidirectional exclude each other");
  LoadOptions options;
  if (!num_heads_.empty()) {
    options.settings.num_heads = parse_integer("--num-heads", num_heads_, 1, kMostHeads);
  }
  if (!num_kv_heads_.empty()) {
    options.settings.num_kv_heads = parse_integer("--num-kv-heads", num_kv_heads_, 1, kMostHeads);
  }
  if (!context_length_.empty()) {
    options.settings.context_length =
        parse_integer("--context-length", context_length_, 1, kLongest);
  }
  if (causal_ || bidirectional_) options.settings.causal = causal_;
  options.prefix = prefix_;
  options.strict = strict_;
  options.allow_extra = allow_extra_;
  return options;
}

Form parse_form(const std::string& flag, const std::string& text) {
  if (text == "fused") return Form::joined;  // its name in 0.1
  std::string known;
  for (const Form form : {Form::separate, Form::raw, Form::heads, Form::linear, Form::joined,
                          Form::torch, Form::gpt2}) {
    if (text == name(form)) return form;
    known += format_text("{}{}", known.empty() ? "" : ", ", name(form));
  }
  throw UsageError(format_text("{}: '{}' is not one of {}", flag, printable(text), known));
}

MultiHeadAttention load_with_warnings(const std::string& path, const LoadOptions& options) {
  std::vector<std::string> warnings;
  LoadOptions shown = options;
  shown.progress = [](std::int64_t done, std::int64_t all) { show_progress("reading", done, all); };
  MultiHeadAttention layer = load_layer(path, shown, &warnings);
  for (const std::string& warning : warnings) warn(warning);
  return layer;
}

void check_output(const std::string& output, const std::string& input) {
  if (output == "-") {
    throw UsageError("'-' is not a file name here; ./- is one");
  }
  std::error_code ignored;
  if (std::filesystem::equivalent(output, input, ignored)) {
    throw UsageError(
        format_text("{}: is also the input; choose another output", printable(output)));
  }
}

}  // namespace cephalo::cli
