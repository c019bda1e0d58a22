#pragma once

#include <limits>
#include <string>
#include <vector>

#include "cephalo/view/picture.h"
#include "cephalo/view/terminal.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a report says and draws, before it is known where: on a terminal, in a picture, in a
// notebook. All of its words are here; what draws it adds none.

// A place in a table: what is written there, and the colour below it. NaN: none.
struct ReportCell {
  std::string text;
  double shade = std::numeric_limits<double>::quiet_NaN();
};

// Lines under a heading, or without one.
struct ReportNote {
  std::string heading = {};
  std::vector<std::string> lines = {};
};

// Numbers in rows and columns, on colours.
struct ReportTable {
  enum class Shades { weights, changes };  // from 0 to 1; from −1 to 1, which is signed_colour's
  std::string title = {};
  Shades shades = Shades::changes;
  std::string least = {}, most = {};                // what the ends of the colours stand for
  std::vector<std::string> rows = {};               // their names
  std::vector<std::string> columns = {};            // and theirs
  std::vector<std::vector<ReportCell>> cells = {};  // [row][column]; a row may be shorter
  std::vector<ReportNote> below = {};
};

// All of a report, in the order in which it is read.
struct ReportPage {
  std::string title = {};
  std::string model = {};                    // its name and sizes
  std::vector<std::string> paragraphs = {};  // before the tables
  std::vector<ReportTable> tables = {};
  std::vector<ReportNote> notes = {};  // after them
};

// As lines that fit the width; tables that do not are continued below.
std::string to_text(const ReportPage& page, const TerminalStyle& style);
Picture draw_page(const ReportPage& page);

}  // namespace cephalo
#pragma GCC visibility pop
