
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/model/generate.h"
#include "cli/model_flags.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kMostTokens = 1'000'000;

// What keeps a small model from going round in circles; the library's own defaults change nothing.
struct Flags {
  TextInput prompt;
  ModelFlags model;
  std::string new_tokens = "100", temperature = "0.8", top_k = "50", top_p = "0.95", seed = "123";
  std::string repetition_penalty = "1.1", repetition_window = "64";
  std::string threads = "0";
  bool greedy = false, past_end = false;
};

// Bytes of tokens on their way to the terminal: a character that is cut between two tokens waits
// for its rest, and of control characters only ends of lines and tabs are let through.
class TextStream {
 public:
  void write(std::string_view bytes) {
    waiting_ += bytes;
    const std::size_t whole = waiting_.size() - unfinished();
    print(shown(waiting_.substr(0, whole)));
    waiting_.erase(0, whole);
  }
  void finish() {
    print(shown(waiting_) + "\n");
    waiting_.clear();
  }

 private:
  // How many bytes at the end begin a character of UTF-8 that is longer.
  std::size_t unfinished() const {
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, waiting_.size()); ++back) {
      const auto byte = static_cast<unsigned char>(waiting_[waiting_.size() - back]);
      if ((byte & 0xC0U) == 0x80U) continue;
      const std::size_t length = byte >= 0xF0 ? 4 : (byte >= 0xE0 ? 3 : (byte >= 0xC0 ? 2 : 1));
      return length > back ? back : 0;
    }
    return 0;
  }

  static std::string shown(const std::string& bytes) {
    std::string out;
    std::size_t at = 0;
    for (std::size_t line = 0; line <= bytes.size(); line = at + 1) {
      at = std::min(bytes.find_first_of("\n\t", line), bytes.size());
      out += printable(std::string_view(bytes).substr(line, at - line));
      if (at < bytes.size()) out += bytes[at];
    }
    return out;
  }

  std::string waiting_;
};

SamplingOptions sampling_of(const Flags& flags) {
  SamplingOptions options;
  if (flags.greedy) return {.temperature = 0.0};
  options.temperature = parse_tolerance("--temperature", flags.temperature);
  options.top_k = parse_integer("--top-k", flags.top_k, 0, kMostTokens);
  options.top_p = parse_positive("--top-p", flags.top_p);
  if (options.top_p > 1.0) {
    throw UsageError(format_text("--top-p: '{}' is not a number above 0 and up to 1", flags.top_p));
  }
  options.repetition_penalty = parse_positive("--repetition-penalty", flags.repetition_penalty);
  options.repetition_window =
      parse_integer("--repetition-window", flags.repetition_window, 0, kMostTokens);
  return options;
}

std::vector<std::int64_t> prompt_ids(const std::string& prompt, const TextModel& model) {
  std::vector<std::int64_t> ids =
      model.encode(prompt, model.config.add_bos_token || prompt.empty());
  if (ids.empty()) {
    throw UsageError("PROMPT: is empty, and the model has no token that begins a text");
  }
  return ids;
}

void say_what_is_cut(const Gpt& model, dim_t prompt_tokens) {
  const dim_t seen = tokens_seen(model.options(), prompt_tokens);
  if (seen == prompt_tokens) return;
  warn(format_text(
      "the prompt has {} tokens and the model's context_length is {}; only the last {} are used",
      prompt_tokens, model.options().context_length, seen));
}

void generate_text(const Flags& flags) {
  GenerateOptions options;
  options.new_tokens = parse_integer("--new-tokens", flags.new_tokens, 1, kMostTokens);
  options.sampling = sampling_of(flags);
  options.seed = parse_seed("--seed", flags.seed);
  options.threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024));
  const std::string text = flags.prompt.read();
  TextModel model = flags.model.load();
  const std::vector<std::int64_t> prompt = prompt_ids(text, model);
  say_what_is_cut(model.gpt, std::ssize(prompt));
  model.gpt.prepare();

  TextStream stream;
  stream.write(text);
  const dim_t end = flags.past_end ? -1 : model.config.eos_token_id.value_or(-1);
  if (end >= 0) options.stop_tokens.push_back(end);
  options.on_token = [&](std::int64_t id) {
    // A model may have more ids than its tokenizer has tokens: nothing to show then.
    if (id != end) stream.write(model.piece(id));
    return true;
  };
  const Generated found = generate(model.gpt, prompt, options);
  stream.finish();
  const std::string line =
      format_text("{} token{} in {:.2f} s, {:.1f} tokens/s after {} of the prompt in {:.2f} s\n",
                  found.ids.size(), found.ids.size() == 1 ? "" : "s", found.seconds,
                  found.tokens_per_second(), prompt.size(), found.prompt_seconds);
  static_cast<void>(std::fputs(line.c_str(), stderr));
}

}  // namespace

Verb add_generate(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand("generate", "Continue a text with a GPT");
  flags->prompt.add_to(verb, "PROMPT", "The text to continue; - reads it from stdin");
  flags->model.add_to(verb);
  verb.add_option("--new-tokens", flags->new_tokens, "At most this many")
      .type_name("N")
      .show_default();
  Flag greedy = verb.add_flag("--greedy", flags->greedy,
                              "Always the likeliest token; not with the next five");
  const auto sampling = [&](const char* name, std::string& value, const char* type,
                            const char* help) {
    verb.add_option(name, value, help).type_name(type).show_default().excludes(greedy);
  };
  sampling("--temperature", flags->temperature, "T", "0: always the likeliest; 1: as trained");
  sampling("--top-k", flags->top_k, "K", "Sample from the K likeliest; 0: from all");
  sampling("--top-p", flags->top_p, "P", "Sample from the likeliest that together reach P");
  sampling("--repetition-penalty", flags->repetition_penalty, "X",
           "Makes recent tokens less likely; 1: no change");
  sampling("--repetition-window", flags->repetition_window, "N",
           "How many recent tokens that covers; 0: all");
  verb.add_option("--seed", flags->seed, "The same seed gives the same text")
      .type_name("N")
      .show_default();
  verb.add_flag("--past-end", flags->past_end, "Continue where the model ends the text");
  verb.add_option("--threads", flags->threads, "0: one per core").type_name("N").show_default();
  verb.footer(
      "Examples:\n"
      "  cephalo generate \"The cat sat on\"\n"
      "  cephalo generate \"Once upon a time\" --model gpt2 --new-tokens 200 --greedy\n"
      "  cephalo generate --file story.txt --model alice");
  return [flags] { generate_text(*flags); };
}

}  // namespace cephalo::cli
