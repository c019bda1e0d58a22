#include "cephalo/view/report_page.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cephalo/core/format.h"
#include "cephalo/view/columns.h"

namespace cephalo {
namespace {

constexpr std::size_t kLongestName = 16;  // of a row or column, and of a cell's text
constexpr std::size_t kIndent = 2;

std::string without_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string headline(const ReportPage& page, const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(style.width);
  const std::string model = cut(page.model, width, style.utf8);
  const std::string title = cut(page.title, width, style.utf8);
  const std::size_t used = display_width(title) + display_width(model);
  if (used + 2 > width) return bold(title, style) + "\n" + model + "\n";
  return bold(title, style) + std::string(width - used, ' ') + model + "\n";
}

// A sentence whose later lines are indented like a list's.
std::string listed(const std::string& sentence, std::size_t width) {
  std::string lines = wrapped(sentence, width - 2 * kIndent);
  std::string out;
  bool first = true;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin) + 1;
    out += std::string(first ? kIndent : 2 * kIndent, ' ') + lines.substr(begin, end - begin);
    begin = end;
    first = false;
  }
  return out;
}

std::string note_text(const ReportNote& note, const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(style.width);
  std::string out;
  if (!note.heading.empty()) out += "\n" + bold(note.heading, style) + "\n";
  for (const std::string& line : note.lines) {
    out += note.heading.empty() ? wrapped(line, width) : listed(line, width);
  }
  return out;
}

std::string paint(const std::string& text, double shade, ReportTable::Shades kind,
                  const TerminalStyle& style) {
  if (std::isnan(shade)) return text;
  return kind == ReportTable::Shades::changes ? painted_signed(text, shade, style)
                                              : painted(text, shade, style);
}

// What the colours stand for; "" where there are none.
std::string legend_of(const ReportTable& table, const TerminalStyle& style) {
  if (style.colours == ColourDepth::none || table.most.empty()) return "";
  const bool signed_shades = table.shades == ReportTable::Shades::changes;
  std::string strip;
  for (int step = signed_shades ? -5 : 0; step <= (signed_shades ? 5 : 10); ++step) {
    strip += paint(" ", step / (signed_shades ? 5.0 : 10.0), table.shades, style);
  }
  return format_text("{} {} {}\n", table.least, strip, table.most);
}

class TableText {
 public:
  TableText(const ReportTable& table, const TerminalStyle& style) : table_(table), style_(style) {
    for (const std::string& name : table.rows) {
      names_ = std::max(names_, std::min(display_width(name), kLongestName));
    }
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      std::size_t wide = std::min(display_width(table.columns[c]), kLongestName);
      for (const auto& row : table.cells) {
        if (c < row.size()) wide = std::max(wide, shown(row[c].text));
      }
      widths_.push_back(wide + 2);
    }
    // Where a little less room between cells saves a table from being broken.
    const std::size_t whole = std::accumulate(widths_.begin(), widths_.end(), names_ + 1);
    if (width() < whole && whole <= width() + widths_.size()) {
      for (std::size_t& wide : widths_) --wide;
      gap_ = 1;
    }
  }

  std::string draw() const {
    std::string out = table_.title.empty()
                          ? ""
                          : bold(without_newline(wrapped(table_.title, width())), style_) + "\n";
    for (std::size_t begin = 0; begin < widths_.size();) {
      std::size_t end = begin;
      for (std::size_t used = names_ + 1; end < widths_.size(); ++end) {
        used += widths_[end];
        if (end > begin && used > width()) break;
      }
      out += band(begin, end);
      begin = end;
    }
    return out + legend_of(table_, style_);
  }

 private:
  static std::string without_newline(std::string text) {
    text.pop_back();
    return text;
  }
  static std::size_t shown(const std::string& text) {
    return std::min(display_width(text), kLongestName + 4);
  }
  std::size_t width() const { return static_cast<std::size_t>(style_.width); }

  // Columns begin .. end of every row.
  std::string band(std::size_t begin, std::size_t end) const {
    std::string header(names_ + 1, ' ');
    for (std::size_t c = begin; c < end; ++c) {
      header += fit(" " + cut(table_.columns[c], kLongestName, style_.utf8), widths_[c]);
    }
    std::string out = header.find_first_not_of(' ') == header.npos ? "" : without_end(header);
    for (std::size_t r = 0; r < table_.rows.size(); ++r) {
      std::string line =
          fit(cut(table_.rows[r], std::max<std::size_t>(names_, 1), style_.utf8), names_ + 1);
      const std::vector<ReportCell>& cells = table_.cells[r];
      for (std::size_t c = begin; c < std::min(end, cells.size()); ++c) {
        const std::string text =
            fit(" " + cut(cells[c].text, widths_[c] - gap_, style_.utf8), widths_[c]);
        line += paint(text, cells[c].shade, table_.shades, style_);
      }
      out += without_end(line);
    }
    return out;
  }

  const ReportTable& table_;
  const TerminalStyle& style_;
  std::size_t names_ = 0;
  std::vector<std::size_t> widths_;
  std::size_t gap_ = 2;  // columns around the text of a cell
};

}  // namespace

std::string to_text(const ReportPage& page, const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(style.width);
  std::string out = headline(page, style);
  for (const std::string& paragraph : page.paragraphs) out += wrapped(paragraph, width);
  for (const ReportTable& table : page.tables) {
    out += "\n" + TableText(table, style).draw();
    for (const ReportNote& note : table.below) out += note_text(note, style);
  }
  for (const ReportNote& note : page.notes) {
    out += (note.heading.empty() ? "\n" : "") + note_text(note, style);
  }
  return out;
}

}  // namespace cephalo
