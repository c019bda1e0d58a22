#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

// The words of a command line. CLI11 is behind this: a source that includes it takes seconds more
// to compile, so command.cc alone does.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cephalo::cli {

// One flag or argument of a command; a copy is the same one.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag& required();
  Flag& type_name(const char* name);  // behind it in the help: N, FILE
  Flag& show_default();               // and behind that, what the variable holds now
  Flag& group(const char* title);     // under this title in the help
  Flag& excludes(Flag other);

  bool given() const;
  std::string name() const;                     // without dashes where it is an argument
  std::vector<std::string> long_names() const;  // with their dashes
  std::string first_word() const;               // that was given

 private:
  CLI::Option* option_;
};

// The program, a verb, or a verb within a verb; a copy is the same one. Variables must live until
// the words are read.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `names` as "-o,--output"; without dashes it is an argument, in the order of these calls.
  Flag add_option(const char* names, std::string& value, const char* help);
  Flag add_option(const char* names, std::vector<std::string>& values, const char* help);
  Flag add_flag(const char* names, bool& value, const char* help);
  Flag add_counter(const char* names, int& times, const char* help);  // how often it is given
  Command add_subcommand(const char* name, const char* help);
  void footer(const char* text);

  std::string name() const;
  std::vector<Flag> flags() const;
  std::vector<std::string> subcommands() const;  // the names of all

  bool chose(const char* subcommand) const;
  std::optional<Command> chosen() const;
  // Words that nothing took, here or in what was chosen within it.
  std::vector<std::string> unknown_words() const;
  std::vector<std::string> unknown_words_within() const;

 private:
  CLI::App* app_;
};

// What the words of a command line ask for.
struct Wish {
  enum class Kind { run, help, version, wrong };
  Kind kind = Kind::run;
  bool something_missing = false;  // what is wrong: a required word
  std::string message;             // what is wrong, in CLI11's words
};

class Program {
 public:
  Program(const char* name, const char* help, const char* version);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Command command() const;
  std::string help() const;  // of what was chosen
  Wish parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace cephalo::cli
