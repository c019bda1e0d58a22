#include "cli/command.h"

#include <CLI/CLI.hpp>

namespace cephalo::cli {

Flag& Flag::required() {
  option_->required();
  return *this;
}

Flag& Flag::type_name(const char* name) {
  option_->type_name(name);
  return *this;
}

Flag& Flag::show_default() {
  option_->capture_default_str();
  return *this;
}

Flag& Flag::group(const char* title) {
  option_->group(title);
  return *this;
}

Flag& Flag::excludes(Flag other) {
  option_->excludes(other.option_);
  return *this;
}

bool Flag::given() const {
  return option_->count() > 0;
}

std::string Flag::name() const {
  return option_->get_name();
}

std::vector<std::string> Flag::long_names() const {
  std::vector<std::string> names;
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Flag::first_word() const {
  return option_->results().front();
}

Flag Command::add_option(const char* names, std::string& value, const char* help) {
  return Flag(app_->add_option(names, value, help));
}

Flag Command::add_option(const char* names, std::vector<std::string>& values, const char* help) {
  return Flag(app_->add_option(names, values, help));
}

Flag Command::add_flag(const char* names, bool& value, const char* help) {
  return Flag(app_->add_flag(names, value, help));
}

Flag Command::add_counter(const char* names, int& times, const char* help) {
  return Flag(app_->add_flag(names, times, help));
}

Command Command::add_subcommand(const char* name, const char* help) {
  return Command(app_->add_subcommand(name, help));
}

void Command::footer(const char* text) {
  app_->footer(text);
}

std::string Command::name() const {
  return app_->get_name();
}

std::vector<Flag> Command::flags() const {
  std::vector<Flag> all;
  for (CLI::Option* option : app_->get_options()) all.emplace_back(option);
  return all;
}

std::vector<std::string> Command::subcommands() const {
  std::vector<std::string> names;
  for (const CLI::App* each : app_->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(each->get_name());
  }
  return names;
}

bool Command::chose(const char* subcommand) const {
  return app_->got_subcommand(subcommand);
}

std::optional<Command> Command::chosen() const {
  const std::vector<CLI::App*> all = app_->get_subcommands();
  if (all.empty()) return std::nullopt;
  return Command(all.front());
}

std::vector<std::string> Command::unknown_words() const {
  return app_->remaining();
}

std::vector<std::string> Command::unknown_words_within() const {
  return app_->remaining(true);
}

Program::Program(const char* name, const char* help, const char* version)
    : app_(std::make_unique<CLI::App>(help, name)) {
  app_->set_version_flag("--version", std::string(version));
  app_->require_subcommand(1);
}

Program::~Program() = default;

Command Program::command() const {
  return Command(app_.get());
}

std::string Program::help() const {
  return app_->help();
}

Wish Program::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    return {Wish::Kind::version, false, {}};
  } catch (const CLI::CallForHelp&) {
    return {Wish::Kind::help, false, {}};
  } catch (const CLI::RequiredError& error) {
    return {Wish::Kind::wrong, true, error.what()};
  } catch (const CLI::ParseError& error) {
    return {Wish::Kind::wrong, false, error.what()};
  }
  return {};
}

}  // namespace cephalo::cli
