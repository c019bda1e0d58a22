#include "cli/trace_model.h"

#include <algorithm>

#include "cephalo/core/format.h"
#include "cephalo/view/head_trace.h"
#include "cli/model_text.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::size_t kMostLines = 256;  // of a batch: a lesson, not a corpus

// The lines that have something in them.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    begin = end + 1;
  }
  if (lines.empty()) throw UsageError("--batch: TEXT has no line with a text in it");
  if (lines.size() > kMostLines) {
    throw UsageError(format_text("--batch: TEXT has {} lines, and at most {} are traced at once",
                                 lines.size(), kMostLines));
  }
  return lines;
}

std::string next_steps(const HeadTrace& trace, dim_t top) {
  std::string text = format_text("next: --head {}", (trace.head + 1) % trace.num_heads);
  text += format_text(" | --layer {}", (trace.layer + 1) % trace.num_layers);
  text += " | --token WORD | --explain | --json";
  const dim_t keys = std::ssize(trace.keys);
  if (keys > top) text += format_text(" | --top {} (every key)", keys);
  if (trace.batch.size() > 1) {
    text += format_text(" | --batch {}", (trace.sequence + 1) % std::ssize(trace.batch));
  }
  return text;
}

}  // namespace

void ModelTraceFlags::add_to(Command verb) {
  input.add_to(verb, "TEXT", "A text for a trained model; - reads it from stdin");
  own_.push_back(model.add_to(verb));
  own_.push_back(
      verb.add_option("--layer", layer, "With TEXT: the layer").type_name("N").show_default());
  own_.push_back(verb.add_option("--token", token,
                                 "With TEXT: the query, a token or its index; default: the last")
                     .type_name("TOKEN"));
  own_.push_back(verb.add_option("--top", top, "With TEXT: how many keys to show, the strongest")
                     .type_name("N")
                     .show_default());
  own_.push_back(verb.add_flag("--no-begin", no_begin,
                               "With TEXT: do not prepend <|endoftext|>, which starts a text"));
  own_.push_back(verb.add_option("--threads", threads, "With TEXT: 0 is one per core")
                     .type_name("N")
                     .show_default());
}

bool ModelTraceFlags::given() const {
  return input.given() ||
         std::any_of(own_.begin(), own_.end(), [](const Flag& flag) { return flag.given(); });
}

void trace_model(const ModelTraceFlags& flags, const SharedTraceFlags& shared) {
  HeadTraceOptions options;
  options.begin = !flags.no_begin;
  options.threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024));
  const dim_t top = parse_integer("--top", flags.top, 1, 1 << 20);
  const std::string text = flags.input.read();
  TextModel model = flags.model.load();
  const GptOptions& sizes = model.gpt.options();
  options.layer = parse_integer("--layer", flags.layer, 0, sizes.num_layers - 1);
  options.head = parse_integer("--head", shared.head, 0, sizes.num_heads - 1);
  const std::vector<std::string> texts =
      shared.batch_given ? lines_of(text) : std::vector<std::string>{text};
  for (const std::string& one : texts) check_text(one, options.begin, model);
  options.sequence = parse_integer("--batch", shared.batch, 0, std::ssize(texts) - 1);
  const LookModel seen = look_model(model);
  if (!flags.token.empty()) {
    const std::string& shown = texts[static_cast<std::size_t>(options.sequence)];
    options.token =
        find_token(look_tokens(seen, look_ids(seen, shown, options.begin)), flags.token);
  }
  const HeadTrace trace = trace_head(seen, texts, options);
  if (shared.json) return print(to_json(trace, seen));
  const TerminalStyle style = terminal_style();
  print(to_text(trace, {.top = top, .explain = shared.explain, .style = style}) + "\n" +
        wrapped(next_steps(trace, top), static_cast<std::size_t>(style.width)));
}

}  // namespace cephalo::cli
