#include "cli/train_decision.h"

#include <filesystem>

#include "cephalo/core/cpu.h"
#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/train/trainer_json.h"
#include "cli/gradcheck_flags.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/train_notes.h"
#include "cli/train_plan.h"
#include "cli/train_report.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

void check_processes(const TrainerOptions& options, const World& world) {
  if (world.size() <= options.shards) return;
  throw UsageError(
      format_text("mpirun started {} processes, but a run of {} shards has work for "
                  "at most {}; --shards and --batch decide that for a new run",
                  world.size(), options.shards, options.shards));
}

void check_memory(const TrainPlan& plan, const World& world) {
  const std::int64_t each =
      training_memory(plan.model, plan.trainer, threads(), world.size()).total();
  const std::int64_t needed = checked_mul(each, world.processes_here());
  const std::int64_t there = available_memory();
  if (there == 0 || needed <= there) return;
  throw Error(Error::Kind::memory,
              format_text("train: needs {}, but only {} is available; a smaller --batch with a "
                          "larger --accumulate needs less",
                          in_bytes(needed), in_bytes(there)));
}

Decision begin(const TrainFlags& flags, const World& world, Holdings& here) {
  const double validation_share =
      flags.validation_share.empty()
          ? 0.05
          : parse_probability("--validation-share", flags.validation_share);
  const TrainCorpus& corpus = here.corpus.emplace(prepare_corpus(flags, here.folder->path()));
  TrainNotes notes;
  notes.files = flags.files;
  notes.training_tokens = training_tokens(*corpus.tokens, validation_share);
  const dim_t validation_tokens = corpus.tokens->tokens() - notes.training_tokens;
  const TrainPlan plan =
      choose_plan(flags, corpus.bpe.vocab_size(), notes.training_tokens, validation_tokens);
  notes.settings = plan.settings;
  check_processes(plan.trainer, world);
  print(describe(plan, notes.training_tokens, validation_tokens, world.size()));
  check_memory(plan, world);
  return {
      here.folder->path(), "", {0, plan.model, plan.trainer, name(current_isa()), to_json(notes)}};
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

Decision resume(const TrainFlags& flags, const World& world, Holdings& here) {
  RunFolder& folder = *here.folder;
  const std::int64_t step = choose_checkpoint(folder, flags.previous);
  const std::string path = folder.checkpoint(step);
  CheckpointSummary summary = read_checkpoint_summary(path);
  TrainNotes notes = train_notes_from_json(summary.notes, path);
  refuse_other_sizes(flags, summary.model, summary.options, notes.settings);
  apply_to_resumed(flags, notes.settings);
  if (!flags.steps.empty()) summary.options.schedule.steps = parse_size("--steps", flags.steps);
  const TrainPlan plan{summary.model, summary.options, notes.settings, 0.0};
  const TrainCorpus& corpus = here.corpus.emplace(open_corpus(folder.path()));
  check_processes(plan.trainer, world);
  print(describe(plan, notes.training_tokens, corpus.tokens->tokens() - notes.training_tokens,
                 world.size()));
  check_memory(plan, world);
  print(format_text("resumes at step {} of {}\n", step, plan.trainer.schedule.steps));
  if (summary.isa != name(current_isa())) {
    print(
        format_text("the checkpoint was computed with {}, this machine continues with {}: the last "
                    "digits will differ\n",
                    printable(summary.isa), name(current_isa())));
  }
  summary.notes = to_json(notes);
  return {folder.path(), path, summary};
}

}  // namespace

std::string choose_folder(const TrainFlags& flags) {
  if (!flags.out.empty()) return flags.out;
  if (flags.files.empty()) throw UsageError("--resume needs --out, the folder of the run");
  const std::string stem = std::filesystem::path(flags.files.front()).stem().string();
  return stem + "-model";
}

Decision decide(const TrainFlags& flags, const World& world, Holdings& here) {
  const std::string out = choose_folder(flags);
  check_texts(flags);
  const bool there = std::filesystem::exists(out);
  if (flags.resume && !there && flags.files.empty()) {
    throw Error(Error::Kind::io, out + ": does not exist; there is nothing to resume");
  }
  RunFolder& folder = here.folder.emplace(out);
  for (const std::string& repair : folder.repairs()) print(printable(repair) + "\n");
  const bool begun = !folder.steps().empty();
  if (begun && !flags.resume) {
    throw Error(Error::Kind::io, format_text("{}: already has a run, at step {}; --resume "
                                             "continues it, --out chooses another folder",
                                             out, folder.steps().back()));
  }
  if (begun) return resume(flags, world, here);
  if (flags.files.empty()) {
    throw Error(Error::Kind::io,
                out + ": has no checkpoint to resume; give a text to start from the beginning");
  }
  if (flags.resume) print("no checkpoint yet; starting from the beginning\n");
  return begin(flags, world, here);
}

Decision heard(const Decision& mine, World& world) {
  if (world.size() == 1) return mine;
  const bool speaks = world.rank() == 0;
  Decision all;
  all.folder = world.broadcast(mine.folder);
  all.checkpoint = world.broadcast(mine.checkpoint);
  const std::string state = world.broadcast(speaks ? to_json(TrainerState{{}, mine.summary}) : "");
  all.summary = trainer_state_from_json(state, all.folder).summary;
  return all;
}

}  // namespace cephalo::cli
