#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/nearest.h"
#include "cephalo/core/version.h"
#include "cephalo/world/world.h"
#include "cli/command.h"
#include "cli/complaint.h"
#include "cli/processes.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// A stream that came closed (`>&-`) would lend its number to the next file that is opened, and what
// is printed would go into that file. It gets /dev/null the wrong way round instead: a place of its
// own, where reading stdin and writing stdout still fail.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one: those below are taken by now. Where even /dev/null cannot
    // be opened, nothing can.
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream) {
      std::_Exit(kBadData);
    }
  }
}

// The names that could stand where `wrong` does.
std::vector<std::string> known_names(Command command, bool flags) {
  if (!flags) return command.subcommands();
  std::vector<std::string> names;
  for (const Flag& flag : command.flags()) {
    for (const std::string& name : flag.long_names()) names.push_back(name);
  }
  return names;
}

// `command`: where it stands
std::string unknown_word(Command command, bool is_program, const std::string& wrong) {
  const bool is_flag = wrong.starts_with("-");
  // Further off is no misspelling: "plan" is not "trace".
  const std::size_t limit = std::min<std::size_t>(4, wrong.size() / 2 + 1);
  const std::string nearest =
      nearest_name(wrong.substr(0, wrong.find('=')), known_names(command, is_flag), limit);
  const bool is_verb = !is_flag && is_program;
  const std::string unknown = format_text("unknown {} '{}'",
                                          is_flag   ? "flag"
                                          : is_verb ? "command"
                                                    : "word",
                                          printable(wrong));
  if (!nearest.empty()) return format_text("{} (did you mean {}?)", unknown, nearest);
  if (!is_verb) return unknown;
  return format_text("{}; the commands are {}", unknown, joined(known_names(command, false), ", "));
}

// "cephalo look The cat" -> how it was meant, where a verb takes one text; "" elsewhere
std::string text_in_quotes(Command command, const std::vector<std::string>& extras) {
  for (const Flag& flag : command.flags()) {
    const bool is_text = flag.name() == "TEXT" || flag.name() == "PROMPT";
    if (!is_text || !flag.given()) continue;
    std::string text = flag.first_word();
    for (const std::string& word : extras) {
      if (word.starts_with("-")) return "";
      text += " " + word;
    }
    return format_text("; a text of several words needs quotes: cephalo {} \"{}\"", command.name(),
                       printable(text));
  }
  return "";
}

// The verb that was chosen and the verbs within it, in the order of their names.
std::vector<Command> chosen_verbs(Command program) {
  std::vector<Command> verbs;
  for (auto verb = program.chosen(); verb; verb = verb->chosen()) verbs.push_back(*verb);
  return verbs;
}

// CLI11's own messages run over several lines: ours is one.
std::string usage_message(Command program, const Wish& wish) {
  const std::vector<Command> verbs = chosen_verbs(program);
  const Command command = verbs.empty() ? program : verbs.back();
  std::vector<std::string> extras = command.unknown_words();
  if (extras.empty()) extras = program.unknown_words_within();
  if (!extras.empty()) {
    return unknown_word(command, verbs.empty(), extras.front()) + text_in_quotes(command, extras);
  }
  if (wish.something_missing && verbs.empty()) {
    return "no command given; try: cephalo look \"The cat sat on the mat\"";
  }
  std::string text = wish.message;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// What every process that mpirun started would say.
int complain_once(const Complaint& complaint) {
  return launch_of_this_process().rank > 0 ? complaint.status : complain(complaint);
}

// What is wrong, and where the right words are.
int complain_of_usage(Command program, const std::string& message) {
  std::string words = "cephalo";
  for (const Command& verb : chosen_verbs(program)) words += " " + verb.name();
  return complain_once({format_text("{}; see {} --help", message, words), kBadUsage});
}

// Help, and help for a command that there is not: the general help would hide that.
int print_help(const Program& program) {
  const Command command = program.command();
  const std::vector<std::string> extras = command.unknown_words();
  if (!command.chosen() && !extras.empty()) {
    return complain_of_usage(command, unknown_word(command, true, extras.front()));
  }
  print(program.help());
  return 0;
}

int run(int argc, char** argv) {
  Program words("cephalo", "Multi-head attention you can use, train and look inside.",
                "cephalo " CEPHALO_VERSION);
  Command program = words.command();
  program.footer(
      "Examples:\n"
      "  cephalo look \"The cat sat on the mat\"    what every head of a trained model looks at\n"
      "  cephalo look \"The cat sat\" --effects    and what each head does to the next token\n"
      "  cephalo lens \"The cat sat on the mat\"    what it would say after each layer\n"
      "  cephalo trace                            the six steps on \"The cat sat on the mat\"\n"
      "  cephalo trace --rung 3 --explain         one causal head, every step explained\n"
      "  cephalo trace \"The cat sat\" --layer 3    a trained head by hand, on your own text\n"
      "  cephalo tour                             why it is built this way, in numbers\n"
      "  cephalo quiz                             ten questions, computed as you answer\n"
      "  cephalo inspect layer.safetensors        names, shapes, form, NaNs\n"
      "  cephalo run layer.safetensors x.npy -o y.npy\n"
      "  cephalo train book.txt                   a small GPT of your own\n"
      "  cephalo gradcheck --mask 'window(3, 0)'  gradients against central differences\n"
      "  cephalo tokenize train book.txt -o vocab  learn a vocabulary\n"
      "  cephalo trace --help                     all that trace can do");
  const std::pair<const char*, Verb> verbs[] = {
      {"look", add_look(program)},         {"page", add_page(program)},
      {"lens", add_lens(program)},         {"patch", add_patch(program)},
      {"trace", add_trace(program)},       {"tour", add_tour(program)},
      {"exercise", add_exercise(program)}, {"quiz", add_quiz(program)},
      {"run", add_run(program)},           {"convert", add_convert(program)},
      {"inspect", add_inspect(program)},   {"gradcheck", add_gradcheck(program)},
      {"bench", add_bench(program)},       {"tokenize", add_tokenize(program)},
      {"generate", add_generate(program)}, {"train", add_train(program)},
      {"presets", add_presets(program)}};
  const Wish wish = words.parse(argc, argv);
  switch (wish.kind) {
    case Wish::Kind::version:
      print("cephalo " CEPHALO_VERSION "\n");
      return 0;
    case Wish::Kind::help:
      return print_help(words);
    case Wish::Kind::wrong:
      return complain_of_usage(program, usage_message(program, wish));
    case Wish::Kind::run:
      break;
  }
  for (const auto& [name, verb] : verbs) {
    if (!program.chose(name)) continue;
    if (std::string_view(name) != "train") refuse_many_processes(name);
    verb();
  }
  return 0;
}

}  // namespace
}  // namespace cephalo::cli

int main(int argc, char** argv) {
  cephalo::cli::occupy_closed_streams();
  // A reader that goes away (`cephalo trace | head -1`) is a failed write, not a signal: files that
  // are being written are cleaned up, and print() ends the program quietly.
  std::signal(SIGPIPE, SIG_IGN);
  // So is a file that grows beyond `ulimit -f`.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return cephalo::cli::run(argc, argv);
  } catch (...) {
    return cephalo::cli::complain_once(cephalo::cli::complaint_of_current_exception());
  }
}
