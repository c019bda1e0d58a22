#include <spawn.h>
#include <sys/wait.h>

#include <limits>
#include <memory>
#include <string>

#include "cephalo/core/format.h"
#include "cephalo/io/file.h"
#include "cephalo/view/page.h"
#include "cli/model_flags.h"
#include "cli/numbers.h"
#include "cli/recorded_flags.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"

extern char** environ;  // NOLINT: its name is the system's

namespace cephalo::cli {
namespace {

struct Flags {
  TextInput input;
  std::string output = "page.html", seed = "123", threads = "0";
  ModelFlags model;
  RecordedFlags recording;
  bool open = false, live = false, recorded = false, force = false;
};

#if defined(__APPLE__)
constexpr const char* kOpener = "open";
#else
constexpr const char* kOpener = "xdg-open";
#endif

// Whatever shows HTML here; where nothing does, the path says all there is to say.
void show(const std::string& path) {
  std::string program = kOpener;
  std::string argument = path;
  char* words[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  const bool started = posix_spawnp(&child, kOpener, nullptr, nullptr, words, environ) == 0;
  if (!started || waitpid(child, &status, 0) != child || status != 0) {
    warn(format_text("{} could not be opened by {}; open it in a browser", path, kOpener));
  }
}

// Why this text is recorded though nobody asked for it; "" where it is live.
std::string why_recorded(const Flags& flags, const TextModel& model, dim_t tokens,
                         const PageOptions& options) {
  const std::string& folder = flags.model.folder;
  if (!folder.empty() && !gpt_parameters_path(folder).ends_with(".safetensors")) {
    return format_text("the parameters of {} are in several files", model.name);
  }
  const std::int64_t bytes =
      folder.empty() ? std::ssize(builtin_page_model().parameters) : stored_parameter_bytes(folder);
  return why_not_live(model, bytes, tokens, options);
}

void write_live(const Flags& flags, const TextModel& model, const std::string& text,
                const PageOptions& options) {
  const PageModel files =
      flags.model.folder.empty() ? builtin_page_model() : load_page_model(flags.model.folder);
  const std::string html = page_html(model, files, text, options);
  write_file(flags.output, html, flags.force);
  const GptOptions& o = model.gpt.options();
  print(
      format_text("{}: {:.1f} MB, live: {} layers of {} heads, for this text ({} tokens) and "
                  "whatever you type\n",
                  printable(flags.output), static_cast<double>(html.size()) / 1e6, o.num_layers,
                  o.num_heads, model.encode(text, true).size()));
}

void write_recorded(const Flags& flags, TextModel& model, const std::string& text,
                    const PageOptions& options) {
  model.gpt.prepare();
  flags.recording.write(
      look_at(look_model(model), text, {.seed = options.seed, .threads = options.threads}),
      flags.output, flags.force);
}

void check_flags(const Flags& flags) {
  if (!flags.output.ends_with(".html")) {
    throw UsageError(
        format_text("--output: writes HTML; '{}' does not end in .html", printable(flags.output)));
  }
  if (flags.live && flags.recorded) {
    throw UsageError("--live: a page runs the model or keeps a recording; omit --recorded");
  }
  if (flags.live && flags.recording.given()) {
    throw UsageError("--live: has every head in full; omit --max-size and --heads");
  }
  flags.recording.options();
}

void page(const Flags& flags) {
  check_flags(flags);
  PageOptions options{
      .seed = parse_seed("--seed", flags.seed),
      .threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024))};
  if (flags.live) options.most_bytes = std::numeric_limits<std::int64_t>::max();
  const std::string text = flags.input.read();
  TextModel model = flags.model.load();
  const auto tokens = std::ssize(look_ids(look_model(model), text, true, "page"));
  std::string why;
  if (!flags.live && !flags.recorded) {
    why = why_recorded(flags, model, tokens, options);
    if (!why.empty()) say(format_text("{}: recorded instead", why));
  }
  if (flags.recorded || !why.empty()) {
    write_recorded(flags, model, text, options);
  } else if (flags.recording.given()) {
    throw UsageError("--max-size and --heads: are for a recorded page; pass --recorded");
  } else {
    write_live(flags, model, text, options);
  }
  if (flags.open) show(flags.output);
}

}  // namespace

Verb add_page(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand(
      "page",
      "One HTML file in which to see every head; it runs the model itself, if that is small");
  flags->input.add_to(verb, "TEXT", "The text it opens with; - reads it from stdin");
  flags->model.add_to(verb);
  verb.add_option("-o,--output", flags->output, "The file to write")
      .type_name("FILE")
      .show_default();
  verb.add_flag("--force", flags->force, "Replace FILE if it exists");
  verb.add_flag("--open", flags->open, "Show it in a browser when it is written");
  verb.add_flag("--live", flags->live, "It runs the model, even if that takes more than 24 MB");
  verb.add_flag("--recorded", flags->recorded,
                "It keeps this text alone: smaller for a large model, and for long texts");
  flags->recording.add_to(verb);
  verb.add_option("--seed", flags->seed, "Seed of the random tokens that probe the heads")
      .type_name("N")
      .show_default();
  verb.add_option("--threads", flags->threads, "0: one per core").type_name("N").show_default();
  verb.footer(
      "The page asks for nothing outside itself: open it with the network off, keep it, send it.\n"
      "Up to 24 MB of parameters it is live: type, and every head follows. For larger models and\n"
      "texts of more than 512 tokens it keeps a recording of this text.\n"
      "Examples:\n"
      "  cephalo page \"The cat sat on the mat\" -o page.html\n"
      "  cephalo page --file poem.txt --model my-model --open\n"
      "  cephalo page --file book.txt --recorded --max-size 20MB --heads L3H1,L2H3");
  return [flags] { page(*flags); };
}

}  // namespace cephalo::cli
