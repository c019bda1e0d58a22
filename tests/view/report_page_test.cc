#include "cephalo/view/report_page.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "cephalo/view/columns.h"

namespace cephalo {
namespace {

const TerminalStyle kPlain{ColourDepth::none, true, 60};
const TerminalStyle kDirect{ColourDepth::direct, true, 60};

ReportPage some_page() {
  return {.title = "a text",
          .model = "a model",
          .paragraphs = {"What comes before the tables, in words that take more than one line."},
          .tables = {{.title = "changes",
                      .least = "-1",
                      .most = "+1",
                      .rows = {"first", "second"},
                      .columns = {"A", "B"},
                      .cells = {{{"-1.0", -1.0}, {"+0.5", 0.5}}, {{"none"}}},
                      .below = {{"", {"below it"}}}}},
          .notes = {{"a heading", {"one line", "another"}}}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ReportPageTest, a_page_as_text) {
  EXPECT_EQ(to_text(some_page(), kPlain),
            "a text                                               a model\n"
            "What comes before the tables, in words that take more than\n"
            "one line.\n"
            "\n"
            "changes\n"
            "        A     B\n"
            "first   -1.0  +0.5\n"
            "second  none\n"
            "below it\n"
            "\n"
            "a heading\n"
            "  one line\n"
            "  another\n");
}

TEST(ReportPageTest, with_colours_the_ends_are_named_and_a_cell_without_a_shade_stays_plain) {
  const std::string text = to_text(some_page(), kDirect);
  EXPECT_NE(text.find("-1 \x1b[48;2;106;168;255m"), std::string::npos);
  EXPECT_NE(text.find(" none\n"), std::string::npos);
}

TEST(ReportPageTest, a_table_too_wide_is_continued_below) {
  ReportPage page = some_page();
  ReportTable& table = page.tables[0];
  table.rows = {"row"};
  table.columns.clear();
  table.cells = {{}};
  for (int c = 0; c < 20; ++c) {
    table.columns.push_back("c" + std::to_string(c));
    table.cells[0].push_back({"+0.25", 0.25});
  }
  const std::vector<std::string> lines = lines_of(to_text(page, kPlain));
  int rows = 0;
  for (const std::string& line : lines) {
    EXPECT_LE(display_width(line), 60U) << line;
    rows += line.starts_with("row ") ? 1 : 0;
  }
  EXPECT_EQ(rows, 3);
}

TEST(ReportPageTest, a_little_less_room_saves_a_table_from_being_broken) {
  ReportPage page = some_page();
  ReportTable& table = page.tables[0];
  table.rows = {"row"};
  table.columns.assign(8, "c");
  table.cells = {std::vector<ReportCell>(8, {"+0.25", 0.25})};
  // 3 + 1 + 8 · 7 = 60 with two columns between cells
  table.cells[0][0].text = "+10.25";
  const std::vector<std::string> lines = lines_of(to_text(page, kPlain));
  for (const std::string& line : lines) EXPECT_LE(display_width(line), 60U) << line;
  EXPECT_NE(to_text(page, kPlain).find("row  +10.25 +0.25 +0.25 +0.25 +0.25 +0.25 +0.25 +0.25\n"),
            std::string::npos);
}

TEST(ReportPageTest, no_line_is_broken_inside_of_a_piece) {
  EXPECT_EQ(wrapped("it copies what followed \" Peter\" before", 26),
            "it copies what followed\n\" Peter\" before\n");
  EXPECT_EQ(end_of_word("\" cat\" sat"), 6U);
  EXPECT_EQ(end_of_word("\"cat\" sat"), 5U);
  EXPECT_EQ(end_of_word("\" "), 2U);
}

TEST(ReportPageTest, the_picture_has_every_word_and_number) {
  const Picture picture = draw_page(some_page());
  const std::string svg = picture.svg();
  for (const char* text : {"a text", "a model", "changes", "first", "second", ">A<", "-1.0", "+0.5",
                           "none", "below it", "a heading", "another"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_NE(svg.find("#6aa8ff"), std::string::npos);  // −1
  EXPECT_TRUE(picture.png().starts_with("\x89PNG"));
  for (const Picture::Shape& shape : picture.shapes()) {  // nothing is outside of it
    if (const auto* box = std::get_if<Picture::Box>(&shape)) {
      EXPECT_LE(box->x + box->width, picture.width());
      EXPECT_LE(box->y + box->height, picture.height());
    }
    if (const auto* words = std::get_if<Picture::Words>(&shape)) {
      EXPECT_LE(words->y, picture.height());
    }
  }
}

}  // namespace
}  // namespace cephalo
