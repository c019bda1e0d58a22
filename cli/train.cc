
#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "cephalo/core/format.h"
#include "cephalo/io/file.h"
#include "cephalo/model/generate.h"
#include "cephalo/train/best_model.h"
#include "cephalo/train/trainer.h"
#include "cephalo/world/world.h"
#include "cli/gradcheck_flags.h"
#include "cli/numbers.h"
#include "cli/processes.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/train_corpus.h"
#include "cli/train_decision.h"
#include "cli/train_export.h"
#include "cli/train_flags.h"
#include "cli/train_notes.h"
#include "cli/train_report.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// All that a run holds while it goes on.
struct Run {
  World& world;
  RunFolder* folder;  // of process 0
  TrainCorpus corpus;
  TrainNotes notes;
  Gpt model;
  TrainRows rows;
  Trainer trainer;

  Run(World& among, RunFolder* in, TrainCorpus the_corpus, TrainNotes the_notes, Gpt the_model,
      const TrainerOptions& options)
      : world(among),
        folder(in),
        corpus(std::move(the_corpus)),
        notes(std::move(the_notes)),
        model(std::move(the_model)),
        rows(rows_of(corpus, notes.training_tokens, with_seed(model), notes.settings)),
        trainer(model, rows.training, options, &world) {}

  static GptOptions with_seed(const Gpt& model) {
    GptOptions options = model.options();
    options.seed = model.seed();
    return options;
  }
};

void write_curve(const Run& run) {
  const std::string& folder = run.folder->path();
  write_file(folder + "/loss.csv", loss_csv(run.trainer.history()), true);
  write_file(folder + "/loss.svg", loss_svg(run.trainer.history(), "loss of " + folder), true);
}

// How the model writes now: from the prompt, or from the beginning of a text.
std::string sample_text(Run& run) {
  constexpr dim_t kTokens = 48;
  const std::optional<TokenId> first = run.corpus.bpe.find(kEndOfText);
  const std::string& prompt = run.notes.settings.prompt;
  std::vector<std::int64_t> ids;
  if (first.has_value()) ids.push_back(*first);
  for (const TokenId id : run.corpus.bpe.encode(prompt)) ids.push_back(id);
  if (ids.empty()) ids.push_back(0);
  GenerateOptions options;
  options.new_tokens = kTokens;
  options.sampling = {.temperature = 0.8, .top_k = 40};
  if (first.has_value()) options.stop_tokens = {*first};
  run.model.prepare();
  std::vector<TokenId> written;
  for (const std::int64_t id : generate(run.model, ids, options).ids) {
    if (first != id) written.push_back(static_cast<TokenId>(id));
  }
  return prompt + run.corpus.bpe.decode(written);
}

// What every process of a run does in the same way.
RunOptions common_options(const Run& run) {
  const TrainSettings& settings = run.notes.settings;
  RunOptions how;
  how.save_every = settings.save_every;
  how.validation = run.rows.validation;
  how.validation_rows = settings.validation_rows;
  how.validate_every = settings.validate_every;
  how.stop = [] { return StopSignals::caught() != 0; };
  return how;
}

// -> the status that a run ends with: that of a signal to any of its processes, or 0
int status_of(bool finished) {
  if (finished) return 0;
  const int signal = StopSignals::caught();
  return StopSignals::exit_status(signal != 0 ? signal : SIGTERM);
}

// Steps until the end or a signal; then what there is goes into files.
int lead(Run& run, std::int64_t report_every) {
  const TrainSettings& settings = run.notes.settings;
  const TrainerOptions& options = run.trainer.options();
  const std::int64_t steps = options.schedule.steps;
  const std::string& path = run.folder->path();
  TrainReport report(options, run.trainer.history(), report_every);
  BestModel best(path);
  RunOptions how = common_options(run);
  how.folder = run.folder;
  how.on_validation = [&](const ValidationRecord& record) {
    const auto lowest = best_validation(run.trainer.history());
    if (lowest && lowest->step == record.step) best.keep(run.model, record);
    report.validation(record);
  };
  double curve_written = 0.0;
  how.on_saved = [&](std::int64_t) {
    if (const auto lowest = best_validation(run.trainer.history())) {
      best.remove_all_but(lowest->step);
    }
    constexpr double kSeconds = 5.0;  // the checkpoint has the numbers: nothing is lost
    if (report.seconds() - curve_written >= kSeconds) {
      write_curve(run);
      curve_written = report.seconds();
    }
    report.goes_on();
  };
  how.on_step = [&](const StepRecord& record) {
    report.step(record);
    const bool due = settings.sample_every > 0 &&
                     (record.step % settings.sample_every == 0 || record.step == steps);
    if (due) report.sample(sample_text(run));
  };
  const StopSignals signals;
  const bool finished = run.trainer.run(how);
  show_status("");
  write_curve(run);
  const std::int64_t done = run.trainer.steps_done();
  const Exported exported =
      export_model(run.model, run.trainer.history(), done, path, run.corpus.bpe, settings);
  if (finished) {
    print(report.end(path, exported) + what_next(path, settings.prompt));
  } else {
    print(format_text("stopped: {} has step {} of {}; cephalo train --resume --out {} continues\n",
                      printable(run.folder->checkpoint(done)), done, steps, printable(path)));
  }
  return status_of(finished);
}

int follow(Run& run) {
  const StopSignals signals;
  return status_of(run.trainer.run(common_options(run)));
}

std::int64_t lines_of(const TrainFlags& flags) {
  return parse_size("--report-every", flags.report_every, 0);
}

// 0: not said
int threads_of(const TrainFlags& flags) {
  constexpr std::int64_t kMost = 1024;
  if (flags.threads.empty()) return 0;
  return static_cast<int>(parse_integer("--threads", flags.threads, 1, kMost));
}

double timeout_of(const TrainFlags& flags) {
  constexpr double kSeconds = 300.0;
  return flags.timeout.empty() ? kSeconds : parse_positive("--timeout", flags.timeout);
}

int train(const TrainFlags& flags, World& world) {
  require_same_program(world);
  share_cores(world, threads_of(flags));
  Holdings here;
  const Decision decision =
      heard(world.rank() == 0 ? decide(flags, world, here) : Decision(), world);
  // Until here process 0 may have read texts for hours.
  world.set_timeout(timeout_of(flags));
  const CheckpointSummary& summary = decision.summary;
  TrainCorpus corpus = here.corpus ? std::move(*here.corpus) : open_corpus(decision.folder);
  world.require_same("the checksum of tokens.bin", checksum_of(corpus));
  const bool resumes = !decision.checkpoint.empty();
  const auto nothing = [](const std::string&, const MutableTensorView&) {};
  Run run(world, here.folder ? &*here.folder : nullptr, std::move(corpus),
          train_notes_from_json(summary.notes, decision.folder),
          resumes ? Gpt(summary.model, nothing) : Gpt(summary.model), summary.options);
  if (resumes) run.trainer.load(decision.checkpoint);
  run.trainer.set_notes(summary.notes);
  run.trainer.set_steps(summary.options.schedule.steps);
  return world.rank() == 0 ? lead(run, lines_of(flags)) : follow(run);
}

// Wrong usage, before anybody waits for others.
void check_usage(const TrainFlags& flags) {
  if (flags.previous && !flags.resume) throw UsageError("--previous needs --resume");
  if (flags.files.empty() && !flags.resume) {
    throw UsageError("no text given; try: cephalo train FILE");
  }
  static_cast<void>(choose_folder(flags));
  static_cast<void>(threads_of(flags));
  static_cast<void>(timeout_of(flags));
  if (!flags.resume) check_train_flags(flags);
}

}  // namespace

Verb add_train(Command program) {
  auto flags = std::make_shared<TrainFlags>();
  Command verb = program.add_subcommand("train", "Train a small GPT on any text");
  flags->add_to(verb);
  verb.footer(
      "What you do not set is chosen for the text and this machine, and printed first.\n"
      "Ctrl-C finishes the step and saves; --resume continues as if it had never stopped.\n"
      "Examples:\n"
      "  cephalo train book.txt\n"
      "  cephalo train --resume --out book-model\n"
      "  mpirun -n 4 cephalo train book.txt      the same model from four processes\n"
      "  cephalo train a.txt b.txt --out model --d-model 256 --num-layers 4 --num-heads 8");
  return [flags] {
    check_usage(*flags);
    run_in_world([&](World& world) { return train(*flags, world); });
  };
}

}  // namespace cephalo::cli
