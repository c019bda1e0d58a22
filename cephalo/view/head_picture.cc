#include "cephalo/view/head_picture.h"

#include <algorithm>

#include "cephalo/core/fail.h"
#include "cephalo/view/font.h"
#include "cephalo/view/terminal.h"

namespace cephalo {
namespace {

constexpr Colour kPage{12, 17, 29};
constexpr Colour kInk{226, 229, 234};
constexpr Colour kFaint{150, 158, 172};
constexpr Colour kHatch{44, 53, 71};

constexpr dim_t kScale = 2;                            // pixels for each of the font's
constexpr dim_t kLetter = kScale * (kGlyphWidth + 1);  // from letter to letter
constexpr dim_t kTall = kScale * kGlyphAscent;         // of a capital
constexpr dim_t kLine = kScale * (kGlyphHeight + 2);   // from line to line
constexpr dim_t kMargin = 24;
constexpr dim_t kStrip = 160;  // of the legend
constexpr const char* kCaption = "row = query, looks at -> column = key";
constexpr const char* kDisclaimer = "a label is a pattern, not an effect";

dim_t text_width(std::string_view text) {
  return static_cast<dim_t>(text.size()) * kLetter;
}

// The font has ASCII alone: one box for each other character, and no more than fits.
std::string fitted(std::string_view text, dim_t letters) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) != 0x80U) out += byte < 0x80 ? c : '\x7f';
  }
  if (static_cast<dim_t>(out.size()) <= letters) return out;
  return out.substr(0, static_cast<std::size_t>(std::max<dim_t>(letters - 1, 0))) + "~";
}

// Not a weight of 0: the query may not look there.
void hatch(Picture& picture, dim_t left, dim_t top, dim_t width, dim_t height) {
  for (dim_t y = top; y < top + height; ++y) {
    for (dim_t x = left; x < left + width; ++x) {
      if ((x + y) % 6 == 0) picture.set(x, y, kHatch);
    }
  }
}

// cells: [n, n] of a causal head, each `size` pixels wide
void draw_cells(Picture& picture, dim_t left, dim_t top, const TensorView& cells, dim_t size) {
  for (dim_t y = 0; y < cells.dim(0); ++y) {
    for (dim_t x = 0; x < cells.dim(1); ++x) {
      const dim_t at_x = left + x * size;
      const dim_t at_y = top + y * size;
      if (x > y) {
        hatch(picture, at_x, at_y, size, size);
      } else {
        picture.fill(at_x, at_y, size, size, cividis(cells.at({y, x})));
      }
    }
  }
}

// "0 ▁▂▃ 1  // hidden", and below it what a label is not.
constexpr dim_t kFooterHeight = 2 * kLine + kMargin;
const dim_t kFooterWidth =
    std::max(kStrip + text_width("0 1    hidden") + 2 * kLetter, text_width(kDisclaimer));

void draw_footer(Picture& picture) {
  const dim_t y = picture.height() - kFooterHeight;
  dim_t x = kMargin;
  picture.write(x, y, "0", kFaint);
  x += 2 * kLetter;
  for (dim_t k = 0; k < kStrip; ++k) {
    const double weight = static_cast<double>(k) / static_cast<double>(kStrip - 1);
    picture.fill(x + k, y, 1, kTall, cividis(weight));
  }
  x += kStrip + kLetter;
  picture.write(x, y, "1", kFaint);
  x += 3 * kLetter;
  hatch(picture, x, y, 2 * kLetter, kTall);
  picture.write(x + 3 * kLetter, y, "hidden", kFaint);
  picture.write(kMargin, y + kLine, kDisclaimer, kFaint);
}

// Lines at the top; the first is the brightest.
void draw_header(Picture& picture, const std::vector<std::string>& lines) {
  const dim_t letters = (picture.width() - 2 * kMargin) / kLetter;
  dim_t y = kMargin;
  for (const std::string& line : lines) {
    picture.write(kMargin, y, fitted(line, letters), y == kMargin ? kInk : kFaint);
    y += kLine;
  }
}

std::string in_words(const LabelScore& label) {
  return fmt::format("{} {:.2f}", name(label.label), label.score);
}

std::string caption(const Recording& recording, dim_t cells) {
  if (cells == recording.tokens()) return kCaption;
  return fmt::format("{}; a cell is the largest of about {} x {}", kCaption,
                     (recording.tokens() + cells - 1) / cells,
                     (recording.tokens() + cells - 1) / cells);
}

// Sizes of the picture of one head, in pixels.
struct HeadLayout {
  static constexpr dim_t kNumbers = 24;  // tokens that have room for a number in each cell
  static constexpr dim_t kNames = 64;    // and for their names beside the map
  static constexpr dim_t kSide = 1024;   // of a map of more
  static constexpr dim_t kLongestName = 16;

  HeadLayout(const Recording& recording, const PictureText& text)
      : cells(std::min(recording.tokens(), kSide)),
        size(cells <= kNumbers ? 48 : (cells <= kNames ? 20 : kSide / cells)) {
    for (dim_t k = 0; k < recording.tokens() && cells <= kNames; ++k) {
      const std::string token = text.tokens[static_cast<std::size_t>(k)];
      names.push_back(fitted(fmt::format("{} {}", k, token), kLongestName));
      axis = std::max(axis, text_width(names.back()) + 12);
    }
    left = kMargin + axis;
    top = kMargin + 4 * kLine + axis;
    side = cells * size;
  }

  dim_t cells;
  dim_t size;
  std::vector<std::string> names;
  dim_t axis = 0;  // what names take
  dim_t left = 0;
  dim_t top = 0;
  dim_t side = 0;
};

void write_names(Picture& picture, const HeadLayout& at) {
  dim_t middle = (at.size - kTall) / 2;
  for (const std::string& name : at.names) {
    picture.write(at.left - 8 - text_width(name), at.top + middle, name, kInk);
    picture.write(at.left + middle, at.top - 8, name, kInk, kScale, Picture::Direction::upwards);
    middle += at.size;
  }
}

void write_numbers(Picture& picture, const HeadLayout& at, const TensorView& cells) {
  for (dim_t y = 0; y < at.cells; ++y) {
    for (dim_t x = 0; x <= y; ++x) {
      const double weight = cells.at({y, x});
      picture.write(at.left + x * at.size + (at.size - text_width(".00")) / 2 + 1,
                    at.top + y * at.size + (at.size - kTall) / 2, short_weight(weight),
                    ink_on(cividis(weight)));
    }
  }
}

}  // namespace

Picture draw_heads(const Recording& recording, const std::vector<HeadReport>& reports,
                   const PictureText& text) {
  require(!reports.empty(), "draw_heads: there are no heads to draw");
  constexpr dim_t kMapSide = 128;
  constexpr dim_t kLabels = 2;  // lines of them below a map
  const dim_t cells = std::min(recording.tokens(), kMapSide);
  const dim_t size = kMapSide / cells;
  const dim_t side = cells * size;
  const dim_t column = std::max(side, text_width("induction 0.00")) + 16;
  const dim_t row = side + (1 + kLabels) * kLine;
  const dim_t left = kMargin + text_width("layer 00") + 8;
  const dim_t top = kMargin + 4 * kLine;
  const dim_t first_layer = reports.front().layer;
  const dim_t layers = reports.back().layer - first_layer + 1;

  Picture picture(std::max(left + recording.num_heads() * column, kFooterWidth) + kMargin,
                  top + layers * row + kFooterHeight, kPage);
  draw_header(picture, {text.text, fmt::format("{}: {}", text.model, caption(recording, cells))});
  for (dim_t h = 0; h < recording.num_heads(); ++h) {
    picture.write(left + h * column, top - kLine, fmt::format("head {}", h), kFaint);
  }
  for (const HeadReport& report : reports) {
    const dim_t x = left + report.head * column;
    const dim_t y = top + (report.layer - first_layer) * row;
    if (report.head == 0) picture.write(kMargin, y, fmt::format("layer {}", report.layer), kFaint);
    draw_cells(picture, x, y, recording.pooled(report.layer, report.head, cells).largest, size);
    for (dim_t k = 0; k < std::min<dim_t>(std::ssize(report.labels), kLabels); ++k) {
      const LabelScore& label = report.labels[static_cast<std::size_t>(k)];
      picture.write(x, y + side + 6 + k * kLine, in_words(label), kInk);
    }
  }
  draw_footer(picture);
  return picture;
}

Picture draw_head(const Recording& recording, const HeadReport& report, const PictureText& text) {
  const HeadLayout at(recording, text);
  std::string heading = fmt::format("layer {} head {}", report.layer, report.head);
  for (const LabelScore& label : report.labels) heading += ", " + in_words(label);
  const std::string note = caption(recording, at.cells);
  const dim_t wanted = std::max({at.left + at.side, kMargin + text_width(note), kFooterWidth});
  Picture picture(wanted + kMargin, at.top + at.side + kMargin + kFooterHeight, kPage);
  draw_header(picture, {heading, note, fmt::format("{}: {}", text.model, text.text)});
  const PooledWeights map = recording.pooled(report.layer, report.head, at.cells);
  draw_cells(picture, at.left, at.top, map.largest, at.size);
  write_names(picture, at);
  if (at.cells <= HeadLayout::kNumbers) write_numbers(picture, at, map.largest);
  draw_footer(picture);
  return picture;
}

}  // namespace cephalo
