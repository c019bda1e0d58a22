
#include <memory>
#include <string>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/view/patch_report.h"
#include "cli/model_flags.h"
#include "cli/numbers.h"
#include "cli/progress_bar.h"
#include "cli/report_output.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string clean, corrupt, answer, wrong;
  ModelFlags model;
  ReportOutput output;
  std::string threads = "0";
  bool no_begin = false;
};

void patch(const Flags& flags) {
  flags.output.check();
  const TextModel model = flags.model.load();
  const StopSignals signals;
  PatchOptions options{
      .answer = flags.answer,
      .wrong = flags.wrong,
      .begin = !flags.no_begin,
      .threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024))};
  options.progress = [bar = ProgressBar("parts")](std::size_t done, std::size_t all) mutable {
    bar.show(done, all);
    return StopSignals::caught() == 0;
  };
  const PatchReport report = patch_texts(look_model(model), flags.clean, flags.corrupt, options);
  if (StopSignals::caught() != 0) show_status("");  // the bar that was there
  flags.output.show([&](std::size_t rows) { return page_of(report, rows); },
                    [&] { return to_json(report); });
  if (const int signal = StopSignals::caught(); signal != 0) {
    warn("stopped early; parts that are not done are left empty");
    throw ExitStatus{StopSignals::exit_status(signal)};
  }
}

}  // namespace

Verb add_patch(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb =
      program.add_subcommand("patch", "Which parts of a run bring its answer back into another");
  verb.add_option("CLEAN", flags->clean, "A text that leads to the answer").required();
  verb.add_option("CORRUPT", flags->corrupt,
                  "The same with something changed, as many tokens, that leads elsewhere")
      .required();
  verb.add_option("--answer", flags->answer, "What comes after CLEAN; one token, often \" Word\"")
      .type_name("TOKEN")
      .required();
  verb.add_option("--wrong", flags->wrong, "What comes after CORRUPT instead; one token")
      .type_name("TOKEN")
      .required();
  flags->model.add_to(verb);
  flags->output.add_to(verb, "A picture of the tables");
  verb.add_flag("--no-begin", flags->no_begin,
                "Do not prepend <|endoftext|>, the token that starts a text");
  verb.add_option("--threads", flags->threads, "0: one per core").type_name("N").show_default();
  verb.footer(
      "CORRUPT runs once for each part, with that part taken from the run of CLEAN. The number\n"
      "is how much of the difference logit(answer) - logit(wrong) comes back: 0 none, 1 all.\n"
      "Example:\n"
      "  cephalo patch \"Mary met John. Mary met\" \"Mary met Tom. Mary met\" --answer \" John\" "
      "--wrong \" Tom\"");
  return [flags] { patch(*flags); };
}

}  // namespace cephalo::cli
