
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cephalo/core/cpu.h"
#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/io/file.h"
#include "cephalo/model/generate.h"
#include "cephalo/train/best_model.h"
#include "cephalo/train/trainer.h"
#include "cli/gradcheck_flags.h"
#include "cli/numbers.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/train_corpus.h"
#include "cli/train_export.h"
#include "cli/train_flags.h"
#include "cli/train_notes.h"
#include "cli/train_plan.h"
#include "cli/train_report.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// All that a run holds while it goes on.
struct Run {
  RunFolder& folder;
  TrainCorpus corpus;
  TrainNotes notes;
  Gpt model;
  TrainRows rows;
  Trainer trainer;

  Run(RunFolder& in, TrainCorpus the_corpus, TrainNotes the_notes, Gpt the_model,
      const TrainerOptions& options)
      : folder(in),
        corpus(std::move(the_corpus)),
        notes(std::move(the_notes)),
        model(std::move(the_model)),
        rows(rows_of(corpus, notes.training_tokens, with_seed(model), notes.settings)),
        trainer(model, rows.training, options) {}

  static GptOptions with_seed(const Gpt& model) {
    GptOptions options = model.options();
    options.seed = model.seed();
    return options;
  }
};

void write_curve(const Run& run) {
  const std::string& folder = run.folder.path();
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

void check_memory(const TrainPlan& plan) {
  const std::int64_t needed =
      memory_bytes(plan.model, plan.trainer.batch, plan.trainer.context_length).total();
  const std::int64_t there = available_memory();
  if (there == 0 || needed <= there) return;
  throw Error(Error::Kind::memory,
              format_text("train: needs {}, but only {} is available; a smaller --batch with a "
                          "larger --accumulate needs less",
                          in_bytes(needed), in_bytes(there)));
}

// Steps until the end or a signal; then what there is goes into files.
void go_on(Run& run, std::int64_t report_every) {
  const TrainSettings& settings = run.notes.settings;
  const TrainerOptions& options = run.trainer.options();
  const std::int64_t steps = options.schedule.steps;
  TrainReport report(options, run.trainer.history(), report_every);
  BestModel best(run.folder.path());
  RunOptions how;
  how.folder = &run.folder;
  how.save_every = settings.save_every;
  how.validation = run.rows.validation;
  how.validation_rows = settings.validation_rows;
  how.validate_every = settings.validate_every;
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
  how.stop = [] { return StopSignals::caught() != 0; };
  const StopSignals signals;
  const bool finished = run.trainer.run(how);
  show_status("");
  write_curve(run);
  const std::int64_t done = run.trainer.steps_done();
  const std::string& path = run.folder.path();
  const Exported exported =
      export_model(run.model, run.trainer.history(), done, path, run.corpus.bpe, settings);
  if (finished) {
    print(report.end(path, exported) + what_next(path, settings.prompt));
    return;
  }
  const int signal = StopSignals::caught();
  print(format_text("stopped: {} has step {} of {}; cephalo train --resume --out {} continues\n",
                    printable(run.folder.checkpoint(done)), done, steps, printable(path)));
  throw ExitStatus{StopSignals::exit_status(signal)};
}

std::int64_t lines_of(const TrainFlags& flags) {
  return parse_size("--report-every", flags.report_every, 0);
}

void begin(const TrainFlags& flags, RunFolder& folder) {
  const double validation_share =
      flags.validation_share.empty()
          ? 0.05
          : parse_probability("--validation-share", flags.validation_share);
  TrainCorpus corpus = prepare_corpus(flags, folder.path());
  TrainNotes notes;
  notes.files = flags.files;
  notes.training_tokens = training_tokens(*corpus.tokens, validation_share);
  const dim_t validation_tokens = corpus.tokens->tokens() - notes.training_tokens;
  const TrainPlan plan =
      choose_plan(flags, corpus.bpe.vocab_size(), notes.training_tokens, validation_tokens);
  notes.settings = plan.settings;
  print(describe(plan, notes.training_tokens, validation_tokens));
  check_memory(plan);
  Run run(folder, std::move(corpus), std::move(notes), Gpt(plan.model), plan.trainer);
  run.trainer.set_notes(to_json(run.notes));
  go_on(run, lines_of(flags));
}

// The newest checkpoint that can be read. A damaged one is passed over only when told to.
std::int64_t choose_checkpoint(RunFolder& folder, bool previous) {
  std::vector<std::int64_t> steps = folder.steps();
  while (!steps.empty()) {
    const std::int64_t step = steps.back();
    steps.pop_back();
    try {
      read_checkpoint_summary(folder.checkpoint(step));
      return step;
    } catch (const Error& error) {
      if (!previous) {
        const std::string way_out =
            steps.empty() ? "" : format_text("; --previous continues from step {}", steps.back());
        throw Error(error.kind(), error.what() + way_out);
      }
      print(format_text("{}\n", printable(error.what())));
      if (steps.empty()) throw Error(error.kind(), folder.path() + ": no checkpoint can be read");
      folder.set_aside(step);
      print(format_text("continuing from step {} instead\n", steps.back()));
    }
  }
  throw Error(Error::Kind::io, folder.path() + ": has no checkpoint");
}

void resume(const TrainFlags& flags, RunFolder& folder) {
  const std::int64_t step = choose_checkpoint(folder, flags.previous);
  const std::string path = folder.checkpoint(step);
  const CheckpointSummary summary = read_checkpoint_summary(path);
  TrainNotes notes = train_notes_from_json(summary.notes, path);
  refuse_other_sizes(flags, summary.model, summary.options, notes.settings);
  apply_to_resumed(flags, notes.settings);
  TrainPlan plan{summary.model, summary.options, notes.settings, 0.0};
  if (!flags.steps.empty()) plan.trainer.schedule.steps = parse_size("--steps", flags.steps);
  TrainCorpus corpus = open_corpus(folder.path());
  print(describe(plan, notes.training_tokens, corpus.tokens->tokens() - notes.training_tokens));
  check_memory(plan);
  const auto nothing = [](const std::string&, const MutableTensorView&) {};
  Run run(folder, std::move(corpus), std::move(notes), Gpt(summary.model, nothing),
          summary.options);
  run.trainer.load(path);
  run.trainer.set_notes(to_json(run.notes));
  run.trainer.set_steps(plan.trainer.schedule.steps);
  print(format_text("resumes at step {} of {}\n", step, plan.trainer.schedule.steps));
  if (summary.isa != name(current_isa())) {
    print(
        format_text("the checkpoint was computed with {}, this machine continues with {}: the last "
                    "digits will differ\n",
                    printable(summary.isa), name(current_isa())));
  }
  go_on(run, lines_of(flags));
}

std::string choose_folder(const TrainFlags& flags) {
  if (!flags.out.empty()) return flags.out;
  if (flags.files.empty()) throw UsageError("--resume needs --out, the folder of the run");
  const std::string stem = std::filesystem::path(flags.files.front()).stem().string();
  return stem + "-model";
}

void train(const TrainFlags& flags) {
  constexpr std::int64_t kMostThreads = 1024;
  if (!flags.threads.empty()) {
    set_threads(static_cast<int>(parse_integer("--threads", flags.threads, 1, kMostThreads)));
  }
  if (flags.previous && !flags.resume) throw UsageError("--previous needs --resume");
  if (flags.files.empty() && !flags.resume) {
    throw UsageError("no text given; try: cephalo train FILE");
  }
  const std::string out = choose_folder(flags);
  if (!flags.resume) check_train_flags(flags);
  check_texts(flags);
  const bool there = std::filesystem::exists(out);
  if (flags.resume && !there && flags.files.empty()) {
    throw Error(Error::Kind::io, out + ": does not exist; there is nothing to resume");
  }
  RunFolder folder(out);
  for (const std::string& repair : folder.repairs()) print(printable(repair) + "\n");
  const bool begun = !folder.steps().empty();
  if (begun && !flags.resume) {
    throw Error(Error::Kind::io, format_text("{}: already has a run, at step {}; --resume "
                                             "continues it, --out chooses another folder",
                                             out, folder.steps().back()));
  }
  if (begun) {
    resume(flags, folder);
  } else if (flags.files.empty()) {
    throw Error(Error::Kind::io,
                out + ": has no checkpoint to resume; give a text to start from the beginning");
  } else {
    if (flags.resume) print("no checkpoint yet; starting from the beginning\n");
    begin(flags, folder);
  }
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
      "  cephalo train a.txt b.txt --out model --d-model 256 --num-layers 4 --num-heads 8");
  return [flags] { train(*flags); };
}

}  // namespace cephalo::cli
