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
  bool open = false, live = false, force = false;
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

void page(const Flags& flags) {
  if (!flags.output.ends_with(".html")) {
    throw UsageError(
        format_text("--output: writes HTML; '{}' does not end in .html", printable(flags.output)));
  }
  PageOptions options{
      .seed = parse_seed("--seed", flags.seed),
      .threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024))};
  if (flags.live) options.most_bytes = std::numeric_limits<std::int64_t>::max();
  const std::string text = flags.input.read();
  const TextModel model = flags.model.load();
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
  if (flags.open) show(flags.output);
}

}  // namespace

Verb add_page(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand(
      "page", "One HTML file in which to see every head, and to type: it runs the model itself");
  flags->input.add_to(verb, "TEXT", "The text it opens with; - reads it from stdin");
  flags->model.add_to(verb);
  verb.add_option("-o,--output", flags->output, "The file to write")
      .type_name("FILE")
      .show_default();
  verb.add_flag("--force", flags->force, "Replace FILE if it exists");
  verb.add_flag("--open", flags->open, "Show it in a browser when it is written");
  verb.add_flag("--live", flags->live, "Even if the parameters take more than 24 MB");
  verb.add_option("--seed", flags->seed, "Seed of the random tokens that probe the heads")
      .type_name("N")
      .show_default();
  verb.add_option("--threads", flags->threads, "0: one per core").type_name("N").show_default();
  verb.footer(
      "The page asks for nothing outside itself: open it with the network off, keep it, send it.\n"
      "Examples:\n"
      "  cephalo page \"The cat sat on the mat\" -o page.html\n"
      "  cephalo page --file poem.txt --model my-model --open");
  return [flags] { page(*flags); };
}

}  // namespace cephalo::cli
