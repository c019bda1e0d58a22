#include "cephalo/learn/exercise.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/learn/exercise_help.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string step;
  int hints = 0;
  bool solution = false, cpp = false;
};

std::size_t width() {
  return static_cast<std::size_t>(terminal_style().width);
}

std::string overview() {
  const Exercise e = exercise();
  std::string out = wrapped(
      format_text("Write multi-head attention yourself, step by step, on one small layer: {} "
                  "sequences of {} tokens, d_in {}, d_out {} = {} heads x {}.",
                  e.batch, e.tokens, e.d_in, e.d_out, e.num_heads, e.head_dim),
      width());
  for (const ExerciseStep& step : exercise_steps()) {
    out += format_text("\n{:<10} {}\n{:<10} gives [{}]\n", step.name, step.task, "", step.axes);
  }
  out += "\n" + wrapped(
                    "docs/exercise.ipynb and examples/exercise.cc have the gaps to fill and check "
                    "every step.",
                    width());
  return out +
         "Stuck: cephalo exercise split --hint         again: --hint --hint\n"
         "       cephalo exercise split --solution     in C++: --cpp\n"
         "Done:  cephalo quiz\n";
}

std::string task_of(const std::string& name) {
  const ExerciseStep& step = exercise_steps()[exercise_step_number(name)];
  return format_text("{}: {}\ngives [{}] = {}\n\nnext: --hint | --solution\n", step.name, step.task,
                     step.axes, to_tuple_string(exercise_answer(name).shape()));
}

// As many as were asked for, the first one first.
std::string hints_of(const std::string& step, int wanted) {
  const std::vector<std::string> hints = exercise_hints(step);
  const auto shown = std::min(hints.size(), static_cast<std::size_t>(wanted));
  std::string out;
  for (std::size_t k = 0; k < shown; ++k) {
    out +=
        wrapped(format_text("{}, hint {} of {}: {}", step, k + 1, hints.size(), hints[k]), width());
  }
  std::string again;
  for (std::size_t k = 0; k <= shown; ++k) again += " --hint";
  return out + (shown < hints.size() ? format_text("next:{} | --solution\n", again)
                                     : "That was the last hint: --solution shows the lines.\n");
}

void check_flags(const Flags& flags) {
  if (flags.step.empty() && (flags.hints > 0 || flags.solution || flags.cpp)) {
    throw UsageError(
        format_text("{}: which step? cephalo exercise lists them", flags.hints > 0  ? "--hint"
                                                                   : flags.solution ? "--solution"
                                                                                    : "--cpp"));
  }
  if (flags.hints > 0 && flags.solution) {
    throw UsageError("--hint: --solution is also given; use only one of them");
  }
  if (flags.cpp && !flags.solution) throw UsageError("--cpp: only with --solution");
  if (flags.step.empty()) return;
  std::vector<std::string> known;
  for (const ExerciseStep& step : exercise_steps()) known.emplace_back(step.name);
  if (std::find(known.begin(), known.end(), flags.step) == known.end()) {
    throw UsageError(
        format_text("STEP: '{}' is not one of {}", printable(flags.step), joined(known, ", ")));
  }
}

void run_exercise(const Flags& flags) {
  check_flags(flags);
  if (flags.step.empty()) return print(overview());
  if (flags.hints > 0) return print(hints_of(flags.step, flags.hints));
  if (!flags.solution) return print(task_of(flags.step));
  print(to_text(flags.step, exercise_solution(flags.step), flags.cpp));
}

}  // namespace

Verb add_exercise(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand("exercise",
                                        "Attention to write yourself: its steps, hints, solutions");
  verb.add_option("STEP", flags->step, "A step; default: the list of them");
  verb.add_counter("--hint", flags->hints,
                   "A hint; the more often it is given, the further it goes");
  verb.add_flag("--solution", flags->solution, "The lines that solve it, and what they give");
  verb.add_flag("--cpp", flags->cpp, "With --solution: in C++; otherwise for NumPy");
  verb.footer(
      "Examples:\n"
      "  cephalo exercise\n"
      "  cephalo exercise split --hint --hint\n"
      "  cephalo exercise softmax --solution");
  return [flags] { run_exercise(*flags); };
}

}  // namespace cephalo::cli
