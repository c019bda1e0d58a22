#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cephalo/core/printable.h"  // what is printed goes through it
#include "cephalo/view/columns.h"
#include "cephalo/view/terminal.h"

namespace cephalo::cli {

// Bold where a person looks at a terminal that wants it; plain into a pipe or with NO_COLOR set.
std::string bold(std::string_view text);

// What stdout can show: 24 bits of colour, 256 colours or none, by COLORTERM, TERM and NO_COLOR; no
// colours into a pipe. Columns by the terminal itself or COLUMNS, otherwise 80. UTF-8 by the
// locale.
TerminalStyle terminal_style();

// A bar on stderr, for work on more than 64 MiB and only where a person looks.
void show_progress(std::string_view what, std::int64_t done_bytes, std::int64_t all_bytes);

// What is being done now, on one line of stderr and only where a person looks; "" wipes it out.
void show_status(std::string_view what);

// A line on stderr, of what is going to happen.
void say(std::string_view text);

// A line on stderr that begins with "warning: ".
void warn(std::string_view text);

// Writes to stdout; an error when it cannot be written (a full disk). A reader that has seen enough
// (`| head -3`) ends the program: nothing is said, but its status is not 0.
void print(std::string_view text);

// The same for text that may be any bytes: as it is, and nothing added, unless a person looks; then
// without control characters but line ends and tabs, and a line of its own.
void print_bytes(std::string_view bytes);

}  // namespace cephalo::cli
