// draw_page: a report's page as a picture.

#include <algorithm>
#include <cmath>

#include "cephalo/core/format.h"
#include "cephalo/view/columns.h"
#include "cephalo/view/picture_page.h"
#include "cephalo/view/report_page.h"

namespace cephalo {
namespace {

constexpr dim_t kCellLetter = 8;  // width of a letter in a table
constexpr dim_t kCellHeight = 24;
constexpr dim_t kLongestCell = 20;  // letters
constexpr dim_t kNarrowest = 72;    // letters of a line of prose
constexpr dim_t kTitleGap = 10;

// Words in lines of at most so many letters.
std::vector<std::string> in_lines(const std::string& text, dim_t letters) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = begin + end_of_word(std::string_view(text).substr(begin));
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && count_letters(line) + 1 + count_letters(word) > letters) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  lines.push_back(line);
  return lines;
}

Colour colour_of(const ReportTable& table, double shade) {
  return table.shades == ReportTable::Shades::changes ? signed_colour(shade) : cividis(shade);
}

// Sizes of a table, in pixels.
struct TableLayout {
  explicit TableLayout(const ReportTable& table) {
    const auto letters = [](const std::string& text) {
      return std::min(count_letters(text), kLongestCell);
    };
    for (const std::string& name : table.rows) {
      names = std::max(names, (letters(name) + 1) * kCellLetter);
    }
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      dim_t widest = letters(table.columns[c]);
      for (const auto& row : table.cells) {
        if (c < row.size()) widest = std::max(widest, letters(row[c].text));
      }
      columns.push_back((widest + 2) * kCellLetter);
    }
    width = names;
    for (const dim_t column : columns) width += column;
    has_header = std::any_of(table.columns.begin(), table.columns.end(),
                             [](const std::string& name) { return !name.empty(); });
    has_legend = !table.most.empty();
  }

  dim_t height(const ReportTable& table) const {
    const dim_t lines = std::ssize(table.rows) + (has_header ? 1 : 0);
    return lines * kCellHeight + (has_legend ? kLine + kTitleGap : 0);
  }

  dim_t names = 0;
  std::vector<dim_t> columns;
  dim_t width = 0;
  bool has_header = false;
  bool has_legend = false;
};

// Goes down a page, drawing; without a picture it only finds how long the page is.
class PageWriter {
 public:
  PageWriter(dim_t width, Picture* picture)
      : picture_(picture), letters_((width - 2 * kMargin) / kLetter) {}

  dim_t height() const { return y_ + kMargin; }

  void paragraph(const std::string& text, const TextStyle& style, dim_t indent = 0) {
    for (const std::string& line : in_lines(text, letters_ - indent)) {
      write(kMargin + indent * kLetter, line, style);
      y_ += kLine;
    }
  }

  void gap() { y_ += kTitleGap; }

  void note(const ReportNote& note) {
    gap();
    if (!note.heading.empty()) paragraph(note.heading, kPlainInk);
    for (const std::string& line : note.lines) {
      paragraph(line, kPlainFaint, note.heading.empty() ? 0 : 2);
    }
  }

  void table(const ReportTable& table) {
    const TableLayout layout(table);
    if (!table.title.empty()) paragraph(table.title, kPlainInk);
    const dim_t top = y_;
    if (picture_ != nullptr) draw_table(table, layout, top);
    y_ = top + layout.height(table);
  }

 private:
  static constexpr dim_t kBelow = 5;  // from the line of a cell's letters to its lower edge

  void write(dim_t x, const std::string& text, const TextStyle& style) {
    if (picture_ == nullptr) return;
    picture_->write(x, y_ + capital_height(kLetter), text, style);
  }

  void draw_table(const ReportTable& table, const TableLayout& layout, dim_t y) {
    const auto text_line = [](dim_t top) { return top + kCellHeight - kBelow - 2; };
    const TextStyle faint{.colour = kFaint, .size = kCellLetter};
    dim_t x = kMargin + layout.names;
    if (layout.has_header) {
      for (std::size_t c = 0; c < table.columns.size(); ++c) {
        picture_->write(x + kCellLetter, text_line(y), fitted(table.columns[c], kLongestCell),
                        faint);
        x += layout.columns[c];
      }
      y += kCellHeight;
    }
    for (std::size_t r = 0; r < table.rows.size(); ++r, y += kCellHeight) {
      picture_->write(kMargin, text_line(y), fitted(table.rows[r], kLongestCell), faint);
      x = kMargin + layout.names;
      for (std::size_t c = 0; c < table.cells[r].size(); ++c) {
        draw_cell(table, table.cells[r][c], x, y, layout.columns[c]);
        x += layout.columns[c];
      }
    }
    if (layout.has_legend) draw_legend(table, y + kTitleGap);
  }

  void draw_cell(const ReportTable& table, const ReportCell& cell, dim_t x, dim_t y, dim_t width) {
    TextStyle style{.colour = kInk, .size = kCellLetter};
    if (!std::isnan(cell.shade)) {
      const Colour ground = colour_of(table, cell.shade);
      picture_->fill(x, y, width - 1, kCellHeight - 1, ground);
      style.colour = ink_on(ground);
    }
    picture_->write(x + kCellLetter, y + kCellHeight - kBelow - 2, fitted(cell.text, kLongestCell),
                    style);
  }

  void draw_legend(const ReportTable& table, dim_t y) {
    const TextStyle faint{.colour = kFaint, .size = kCellLetter};
    const dim_t tall = capital_height(kLetter);
    dim_t x = kMargin;
    picture_->write(x, y + tall, table.least, faint);
    x += text_width(table.least, kCellLetter) + kCellLetter;
    const bool is_signed = table.shades == ReportTable::Shades::changes;
    for (dim_t k = 0; k < kStrip; ++k) {
      const double share = static_cast<double>(k) / static_cast<double>(kStrip - 1);
      picture_->fill(x + k, y, 1, tall, colour_of(table, is_signed ? 2.0 * share - 1.0 : share));
    }
    picture_->write(x + kStrip + kCellLetter, y + tall, table.most, faint);
  }

  Picture* picture_;
  dim_t letters_;
  dim_t y_ = kMargin;
};

void write_page(const ReportPage& page, PageWriter& writer) {
  writer.paragraph(page.title, kPlainInk);
  writer.paragraph(page.model, kPlainFaint);
  for (const std::string& paragraph : page.paragraphs) writer.paragraph(paragraph, kPlainFaint);
  for (const ReportTable& table : page.tables) {
    writer.gap();
    writer.table(table);
    for (const ReportNote& note : table.below) writer.note(note);
  }
  for (const ReportNote& note : page.notes) writer.note(note);
}

}  // namespace

Picture draw_page(const ReportPage& page) {
  dim_t width = kNarrowest * kLetter;
  for (const ReportTable& table : page.tables) width = std::max(width, TableLayout(table).width);
  width += 2 * kMargin;
  PageWriter measured(width, nullptr);
  write_page(page, measured);
  Picture picture(width, measured.height(), kPage);
  PageWriter writer(width, &picture);
  write_page(page, writer);
  return picture;
}

}  // namespace cephalo
