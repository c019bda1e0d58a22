
#include <memory>
#include <string>

#include "cephalo/view/lens_report.h"
#include "cli/model_flags.h"
#include "cli/model_text.h"
#include "cli/numbers.h"
#include "cli/report_output.h"
#include "cli/text_input.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  TextInput input;
  ModelFlags model;
  ReportOutput output;
  std::string top = "5", threads = "0";
  bool frozen_norm = false, no_norm = false, no_begin = false;
};

LensNorm norm_of(const Flags& flags) {
  if (flags.frozen_norm && flags.no_norm) {
    throw UsageError("--frozen-norm and --no-norm exclude each other");
  }
  return flags.frozen_norm ? LensNorm::frozen : flags.no_norm ? LensNorm::none : LensNorm::fresh;
}

void lens(const Flags& flags) {
  flags.output.check();
  const LensReportOptions options{
      .begin = !flags.no_begin,
      .norm = norm_of(flags),
      .top = parse_integer("--top", flags.top, 1, 100),
      .threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024))};
  const std::string text = flags.input.read();
  const TextModel model = flags.model.load();
  check_text(text, options.begin, model);
  const LensReport report = lens_of(look_model(model), text, options);
  flags.output.show([&](std::size_t rows) { return page_of(report, rows); },
                    [&] { return to_json(report); });
}

}  // namespace

Verb add_lens(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand("lens", "What a model would say after each of its layers");
  flags->input.add_to(verb, "TEXT", "The text to run through the model; - reads it from stdin");
  flags->model.add_to(verb);
  verb.add_flag("--frozen-norm", flags->frozen_norm,
                "The last norm with the scale that it has in the end, not that of each layer");
  verb.add_flag("--no-norm", flags->no_norm, "Without the last norm");
  flags->output.add_to(verb, "A picture of the table");
  verb.add_option("--top", flags->top, "How many next tokens --json has of each cell")
      .type_name("N")
      .show_default();
  verb.add_flag("--no-begin", flags->no_begin,
                "Do not prepend <|endoftext|>, the token that starts a text");
  verb.add_option("--threads", flags->threads, "0: one per core").type_name("N").show_default();
  verb.footer(
      "A row is a token, a column a layer: what the model would say next if it ended there.\n"
      "Examples:\n"
      "  cephalo lens \"The cat sat on the mat. The cat sat on the\"\n"
      "  cephalo lens \"The cat sat on the mat. The cat sat on the\" --frozen-norm\n"
      "  cephalo lens --file page.txt --png lens.png");
  return [flags] { lens(*flags); };
}

}  // namespace cephalo::cli
