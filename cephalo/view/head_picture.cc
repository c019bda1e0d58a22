#include "cephalo/view/head_picture.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/view/picture_page.h"
#include "cephalo/view/terminal.h"

namespace cephalo {
namespace {

constexpr dim_t kSmall = 7;  // width of a letter in a token's name beside a small map
constexpr dim_t kGap = 5;    // between a name and its map
constexpr const char* kCaption = "row = query, looks at → column = key";
constexpr const char* kDisclaimer = "a label is a pattern, not an effect";

// "0 ▁▂▃ 1  // hidden", and below it what a label is not.
constexpr dim_t kFooterHeight = 2 * kLine + kMargin;
dim_t footer_width() {
  return std::max(kStrip + text_width("0 1    hidden") + 2 * kLetter, text_width(kDisclaimer));
}

void draw_footer(Picture& picture) {
  const dim_t tall = capital_height(kLetter);
  const dim_t top = picture.height() - kFooterHeight;
  const dim_t line = top + tall;
  dim_t x = kMargin;
  picture.write(x, line, "0", kPlainFaint);
  x += 2 * kLetter;
  for (dim_t k = 0; k < kStrip; ++k) {
    const double weight = static_cast<double>(k) / static_cast<double>(kStrip - 1);
    picture.fill(x + k, top, 1, tall, cividis(weight));
  }
  x += kStrip + kLetter;
  picture.write(x, line, "1", kPlainFaint);
  x += 3 * kLetter;
  picture.hatch(x, top, 2 * kLetter, tall);
  picture.write(x + 3 * kLetter, line, "hidden", kPlainFaint);
  picture.write(kMargin, line + kLine, kDisclaimer, kPlainFaint);
}

// Lines at the top; the first is the brightest.
void draw_header(Picture& picture, const std::vector<std::string>& lines) {
  const dim_t letters = (picture.width() - 2 * kMargin) / kLetter;
  dim_t y = kMargin + capital_height(kLetter);
  for (const std::string& line : lines) {
    picture.write(kMargin, y, fitted(line, letters),
                  &line == lines.data() ? kPlainInk : kPlainFaint);
    y += kLine;
  }
}

std::string in_words(const LabelScore& label) {
  return format_text("{} {:.2f}", name(label.label), label.score);
}

std::string caption(const Recording& recording, dim_t cells, const MapOptions& maps) {
  std::string out = kCaption;
  if (maps.value_weighted) out += "; times the size of what it moves";
  if (maps.no_first) out += "; without the first token";
  if (cells == recording.tokens()) return out;
  const dim_t pooled = (recording.tokens() + cells - 1) / cells;
  return out + format_text("; a cell is the largest of about {0} x {0}", pooled);
}

// The names of tokens beside a map: of all where there is room, of some where there is not.
struct Axis {
  // cell: pixels of a side of each of `cells`; size: of a letter
  Axis(const std::vector<std::string>& tokens, dim_t cells, dim_t cell, dim_t size, dim_t longest)
      : letter(size) {
    const dim_t line = capital_height(letter) + 3;
    const dim_t step = (line + cell - 1) / cell;
    const auto count = static_cast<dim_t>(tokens.size());
    const bool all = step == 1 && cells == count;
    for (dim_t at = 0; at < cells; at += step) {
      const dim_t first = (at * count + cells - 1) / cells;  // of the tokens that the cell pools
      const std::string& token = tokens[static_cast<std::size_t>(first)];
      names.push_back({at * cell + cell / 2,
                       fitted(all ? token : format_text("{} {}", first, token), longest)});
      room = std::max(room, text_width(names.back().text, letter) + kGap + 3);
    }
  }

  // (x, y): the left top corner of the map
  void draw(Picture& picture, dim_t x, dim_t y) const {
    const dim_t below = capital_height(letter) / 2;
    for (const auto& [middle, text] : names) {
      picture.write(x - kGap, y + middle + below, text, {kFaint, letter, Anchor::end});
      picture.write(x + middle + below, y - kGap, text,
                    {kFaint, letter, Anchor::begin, Direction::upwards});
    }
  }

  struct Name {
    dim_t middle;  // of its cell, from the map's corner
    std::string text;
  };
  std::vector<Name> names;
  dim_t letter;
  dim_t room = 0;  // pixels that they take on either side
};

std::vector<std::string> with_indices(const std::vector<std::string>& tokens) {
  std::vector<std::string> names;
  for (const std::string& token : tokens)
    names.push_back(format_text("{} {}", names.size(), token));
  return names;
}

void write_numbers(Picture& picture, dim_t left, dim_t top, const TensorView& cells, dim_t size) {
  const dim_t below = (size + capital_height(kLetter)) / 2;
  for (dim_t i = 0; i < cells.dim(0); ++i) {
    for (dim_t j = 0; j <= i; ++j) {
      const double weight = cells.at({i, j});
      if (std::isnan(weight)) continue;
      picture.write(left + j * size + size / 2, top + i * size + below, short_weight(weight),
                    {ink_on(cividis(weight)), kLetter, Anchor::middle});
    }
  }
}

// Sizes of the picture of many heads, in pixels.
struct GridLayout {
  static constexpr std::size_t kMostNamed = 256;  // heads: of more only the maps are drawn
  static constexpr dim_t kMostCells = 128;
  static constexpr dim_t kNamedSide = 288;  // of a map, at most
  static constexpr dim_t kBareSide = 128;
  static constexpr dim_t kLargestCell = 16;
  static constexpr dim_t kLongestName = 10;

  GridLayout(const Recording& recording, const std::vector<HeadReport>& reports,
             const PictureText& text)
      : named(reports.size() <= kMostNamed),
        cells(std::min(recording.tokens(), kMostCells)),
        cell(std::clamp<dim_t>((named ? kNamedSide : kBareSide) / cells, 1, kLargestCell)),
        side(cells * cell),
        axis(text.tokens, cells, cell, kSmall, kLongestName),
        room(named ? axis.room : 0) {
    for (const HeadReport& report : reports) {
      labels = std::max<dim_t>(labels, std::ssize(report.labels));
    }
    column = std::max(room + side, room + text_width("induction 0.00")) + kMargin;
    row = kLine + room + side + (labels + 1) * kLine;
  }

  bool named;
  dim_t cells;
  dim_t cell;
  dim_t side;
  Axis axis;
  dim_t room;        // of the names
  dim_t labels = 0;  // lines of them below a map
  dim_t column = 0;
  dim_t row = 0;
};

}  // namespace

Picture draw_heads(const Recording& recording, const std::vector<HeadReport>& reports,
                   const PictureText& text, const MapOptions& maps) {
  require(!reports.empty(), "draw_heads: there are no heads to draw");
  const GridLayout at(recording, reports, text);
  const dim_t top = kMargin + 3 * kLine;
  const dim_t first_layer = reports.front().layer;
  const dim_t layers = reports.back().layer - first_layer + 1;
  const dim_t tall = capital_height(kLetter);

  const dim_t wanted = std::max(recording.num_heads() * at.column, footer_width() + kMargin);
  Picture picture(kMargin + wanted, top + layers * at.row + kFooterHeight, kPage);
  draw_header(picture,
              {text.text, format_text("{}: {}", text.model, caption(recording, at.cells, maps))});
  for (const HeadReport& report : reports) {
    const dim_t x = kMargin + report.head * at.column + at.room;
    const dim_t title = top + (report.layer - first_layer) * at.row + tall;
    const dim_t y = title - tall + kLine + at.room;
    picture.write(x - at.room, title, format_text("L{} H{}", report.layer, report.head), kPlainInk);
    const HeadPlace place{report.layer, report.head};
    picture.draw_map(x, y, weight_map(recording, place, at.cells, maps), at.cell);
    if (at.named) at.axis.draw(picture, x, y);
    dim_t line = y + at.side + tall + 8;
    for (const LabelScore& label : report.labels) {
      picture.write(x, line, in_words(label), kPlainInk);
      line += kLine;
    }
  }
  draw_footer(picture);
  return picture;
}

Picture draw_head(const Recording& recording, const HeadReport& report, const PictureText& text,
                  const MapOptions& maps) {
  constexpr dim_t kNumbers = 24;  // tokens that have room for a number in each cell
  constexpr dim_t kNames = 64;    // and each for its name beside the map
  constexpr dim_t kSide = 1024;   // of a map of more
  constexpr dim_t kLongestName = 16;
  const dim_t cells = std::min(recording.tokens(), kSide);
  const dim_t size = cells <= kNumbers ? 48 : (cells <= kNames ? 20 : kSide / cells);
  const bool all = cells <= kNames;
  const Axis axis(all ? with_indices(text.tokens) : text.tokens, cells, size, kLetter,
                  kLongestName);
  const dim_t left = kMargin + axis.room;
  const dim_t top = kMargin + 3 * kLine + axis.room;
  const dim_t side = cells * size;

  std::string heading = format_text("layer {} head {}", report.layer, report.head);
  for (const LabelScore& label : report.labels) heading += ", " + in_words(label);
  const std::string note = caption(recording, cells, maps);
  const dim_t wanted = std::max({left + side, kMargin + text_width(note), footer_width()});
  Picture picture(wanted + kMargin, top + side + kMargin + kFooterHeight, kPage);
  draw_header(picture, {heading, note, format_text("{}: {}", text.model, text.text)});
  Tensor map = weight_map(recording, {report.layer, report.head}, cells, maps);
  const Tensor numbers = cells <= kNumbers ? Tensor::copy(map) : Tensor();
  picture.draw_map(left, top, std::move(map), size);
  axis.draw(picture, left, top);
  if (cells <= kNumbers) write_numbers(picture, left, top, numbers, size);
  draw_footer(picture);
  return picture;
}

}  // namespace cephalo
