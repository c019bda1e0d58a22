#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "cephalo/core/format.h"
#include "cli/silence.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr int kReaderGone = 1;

bool silent = false;

// "" where it is not set
std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool wants_colour() {
  static const bool wanted = [] {
    const std::string_view term = environment("TERM");
    return isatty(STDOUT_FILENO) == 1 && environment("NO_COLOR").empty() && !term.empty() &&
           term != "dumb";
  }();
  return wanted;
}

ColourDepth colour_depth() {
  if (!wants_colour()) return ColourDepth::none;
  const std::string_view kind = environment("COLORTERM");
  if (kind == "truecolor" || kind == "24bit") return ColourDepth::direct;
  const std::string_view term = environment("TERM");
  if (term.ends_with("-direct")) return ColourDepth::direct;
  return term.find("256color") != std::string_view::npos ? ColourDepth::indexed : ColourDepth::none;
}

// The first of these that is set decides, as in the C library.
bool shows_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string_view::npos ||
           value.find("utf8") != std::string_view::npos;
  }
  return false;
}

dim_t terminal_width() {
  constexpr dim_t kLeast = 40;
  constexpr dim_t kMost = 400;
  constexpr dim_t kUsual = 80;
  dim_t columns = 0;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (columns == 0) {
    const std::string_view value = environment("COLUMNS");
    std::from_chars(value.data(), value.data() + value.size(), columns);
  }
  return columns <= 0 ? kUsual : std::clamp(columns, kLeast, kMost);
}

}  // namespace

TerminalStyle terminal_style() {
  return {colour_depth(), shows_utf8(), terminal_width()};
}

std::string bold(std::string_view text) {
  return wants_colour() ? format_text("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

void show_progress(std::string_view what, std::int64_t done_bytes, std::int64_t all_bytes) {
  constexpr std::int64_t kMiB = 1 << 20;
  constexpr std::size_t kWidth = 40;
  if (all_bytes < 64 * kMiB || isatty(STDERR_FILENO) != 1) return;
  const double share = static_cast<double>(done_bytes) / static_cast<double>(all_bytes);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kWidth));
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  const std::string line = format_text("\r{} [{}] {} of {} MiB{}", what, bar, done_bytes / kMiB,
                                       all_bytes / kMiB, done_bytes == all_bytes ? "\n" : "");
  static_cast<void>(std::fputs(line.c_str(), stderr));
}

void be_silent() {
  silent = true;
}

void show_status(std::string_view what) {
  if (silent || isatty(STDERR_FILENO) != 1) return;
  static_cast<void>(std::fputs(format_text("\r\x1b[K{}", what).c_str(), stderr));
}

void say(std::string_view text) {
  static_cast<void>(std::fputs(format_text("{}\n", printable(text)).c_str(), stderr));
}

void warn(std::string_view text) {
  if (silent) return;
  static_cast<void>(std::fputs(format_text("warning: {}\n", printable(text)).c_str(), stderr));
}

void print(std::string_view text) {
  if (silent) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return;
  }
  if (errno == EPIPE) throw ExitStatus{kReaderGone};
  throw std::runtime_error("stdout: the output could not be written");
}

void print_bytes(std::string_view bytes) {
  if (isatty(STDOUT_FILENO) != 1) return print(bytes);
  std::string safe;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find_first_of("\n\t"), bytes.size());
    safe += printable(bytes.substr(0, end));
    if (end < bytes.size()) safe += bytes[end];
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  print(safe + "\n");
}

}  // namespace cephalo::cli
