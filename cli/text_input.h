#pragma once

#include <optional>
#include <string>

#include "cli/command.h"

namespace cephalo::cli {

// The text of a file, without its last line end; an error above 16 MiB.
std::string read_text_file(const std::string& path);

// A text for a model: said on the command line, or read from stdin or a file.
class TextInput {
 public:
  // `name`: of the argument, as TEXT
  void add_to(Command verb, const char* name, const char* help);
  bool given() const;  // a text or a file
  // Of stdin and files the last line end is left out: it ends the file, not the text.
  std::string read() const;

 private:
  std::string text_, file_;
  std::optional<Command> verb_;
  std::optional<Flag> option_;
};

}  // namespace cephalo::cli
