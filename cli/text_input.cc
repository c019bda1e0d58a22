#include "cli/text_input.h"

#include <cstdint>
#include <cstdio>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/io/file.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// No model looks at so much at once; what has no end (`yes | cephalo look -`) is refused in time.
constexpr std::int64_t kMostBytes = 16 << 20;

[[noreturn]] void refuse_size(const std::string& from) {
  throw Error(Error::Kind::value, format_text("{}: is longer than the {} MiB that a text may have",
                                              from, kMostBytes >> 20));
}

std::string all_of_stdin() {
  std::string text;
  char block[4096];
  while (const std::size_t count = std::fread(block, 1, sizeof block, stdin)) {
    text.append(block, count);
    if (std::ssize(text) > kMostBytes) refuse_size("stdin");
  }
  if (std::ferror(stdin) != 0) throw Error(Error::Kind::io, "stdin: could not be read");
  return text;
}

std::string all_of_file(const std::string& path) {
  const InputFile file(path);
  if (file.size() > kMostBytes) refuse_size(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

std::string without_last_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  return without_last_line_end(all_of_file(path));
}

void TextInput::add_to(Command verb, const char* name, const char* help) {
  verb_ = verb;
  option_ = verb.add_option(name, text_, help);
  verb.add_option("--file", file_, "Read it from this file").type_name("FILE");
}

bool TextInput::given() const {
  return option_->given() || !file_.empty();
}

std::string TextInput::read() const {
  const bool given = option_->given();
  if (given && !file_.empty()) {
    throw UsageError(
        format_text("--file: {} is also given; use only one of them", option_->name()));
  }
  if (!given && file_.empty()) {
    throw UsageError(
        format_text("no {} given; pass one, - for stdin, or --file FILE; see cephalo {} --help",
                    option_->name(), verb_->name()));
  }
  if (!given) return read_text_file(file_);
  return text_ == "-" ? without_last_line_end(all_of_stdin()) : text_;
}

}  // namespace cephalo::cli
