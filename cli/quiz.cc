#include "cephalo/learn/quiz.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::size_t kLongest = 200;  // letters of an answer: "b", and what else people type

// A line of stdin without its end; nothing when there is none left.
std::optional<std::string> next_line() {
  std::string line;
  for (int c = std::getchar(); c != '\n'; c = std::getchar()) {
    if (c == EOF && line.empty()) return std::nullopt;
    if (c == EOF) break;
    if (line.size() < kLongest) line += static_cast<char>(c);
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

// Lines that fit, each of those that were there; drawings stay as they are.
std::string fitted(const std::string& text) {
  const auto width = static_cast<std::size_t>(terminal_style().width);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += wrapped(text.substr(begin, end - begin), width);
    begin = end + 1;
  }
  return out;
}

std::string in_letters(const QuizQuestion& question, std::size_t number, std::size_t count) {
  std::string out =
      fitted(format_text("{} of {}, {}: {}", number, count, question.topic, question.text));
  for (std::size_t k = 0; k < question.choices.size(); ++k) {
    out += format_text("  {}) {}\n", quiz_letter(k), question.choices[k].text);
  }
  return out;
}

// The choice; nothing at the end of stdin. Who sits at a terminal may try again.
std::optional<std::size_t> ask(const QuizQuestion& question, std::size_t number) {
  const bool person = isatty(STDIN_FILENO) == 1;
  while (true) {
    if (person) print("> ");
    const std::optional<std::string> line = next_line();
    if (!line) return std::nullopt;
    try {
      return quiz_choice(question, *line);
    } catch (const Error& error) {
      if (!person) throw UsageError(format_text("answer {}: {}", number, error.what()));
      print(format_text("{}\n", printable(error.what())));
    }
  }
}

void hold_quiz(const std::vector<QuizQuestion>& questions, std::uint64_t seed) {
  std::size_t asked = 0;
  std::size_t right = 0;
  for (const QuizQuestion& question : questions) {
    print((asked > 0 ? "\n" : "") + in_letters(question, asked + 1, questions.size()));
    const std::optional<std::size_t> choice = ask(question, asked + 1);
    if (!choice) break;
    ++asked;
    const QuizReply reply = quiz_reply(question, *choice);
    right += reply.right ? 1 : 0;
    print(fitted(format_text("{}) {}", quiz_letter(*choice), reply.text)));
  }
  std::string end = format_text("\n{} of {} right", right, asked);
  if (asked < questions.size()) end += format_text(", {} not answered", questions.size() - asked);
  print(end + format_text(". Other numbers: cephalo quiz --seed {}\n", seed + 1));
}

void list_quiz(const std::vector<QuizQuestion>& questions) {
  std::string out;
  for (std::size_t k = 0; k < questions.size(); ++k) {
    out += (k > 0 ? "\n" : "") + in_letters(questions[k], k + 1, questions.size());
  }
  print(out);
}

}  // namespace

Verb add_quiz(Command program) {
  struct Flags {
    std::string seed = "123";
    bool list = false;
  };
  auto flags = std::make_shared<Flags>();
  Command verb =
      program.add_subcommand("quiz", "Ten questions on attention, answered by computing");
  verb.add_option("--seed", flags->seed, "Seed of the numbers and of the order of the choices")
      .type_name("N")
      .show_default();
  verb.add_flag("--list", flags->list, "The questions alone");
  verb.footer(
      "Type the letter of a choice. Nothing is stored: what is right is computed as you play.\n"
      "Examples:\n"
      "  cephalo quiz\n"
      "  cephalo quiz --list --seed 7\n"
      "  printf 'a\\nb\\nc\\n' | cephalo quiz         answers from a file, one in each line");
  return [flags] {
    const std::uint64_t seed = parse_seed("--seed", flags->seed);
    const std::vector<QuizQuestion> questions = quiz(seed);
    return flags->list ? list_quiz(questions) : hold_quiz(questions, seed);
  };
}

}  // namespace cephalo::cli
