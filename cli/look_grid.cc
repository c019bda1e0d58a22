#include "cli/look_grid.h"

#include <algorithm>

#include "cephalo/core/format.h"
#include "cli/look_words.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kNarrowestColumn = 14;  // "induction .50" and a gap
constexpr dim_t kWidestColumn = 20;     // a longer text is pooled rather than drawn larger

// The columns of one head in the grid.
struct GridCell {
  std::string name;
  std::vector<std::string> labels;
  std::vector<std::string> map;
};

GridCell grid_cell(const LookReport& report, const HeadReport& head, dim_t cells,
                   const TerminalStyle& style) {
  GridCell cell{place_name(head), {}, {}};
  for (const LabelScore& label : head.labels) {
    cell.labels.push_back(format_text("{} {}", name(label.label), short_weight(label.score)));
  }
  cell.map =
      draw_map(weight_map(*report.recording, {head.layer, head.head}, cells, report.maps), style);
  return cell;
}

std::string draw_grid_row(const std::vector<GridCell>& row, const GridShape& shape,
                          const TerminalStyle& style) {
  const auto width = static_cast<std::size_t>(shape.column);
  std::size_t labels = 0;
  for (const GridCell& cell : row) labels = std::max(labels, cell.labels.size());
  std::string out;
  std::string line;
  for (const GridCell& cell : row) line += padded(cell.name, width);
  out += without_end(line);
  for (std::size_t k = 0; k < labels; ++k) {
    line.clear();
    for (const GridCell& cell : row) {
      const std::string label = k < cell.labels.size() ? cell.labels[k] : "";
      line += padded(bold(label, style), label.size(), width);
    }
    out += without_end(line);
  }
  for (std::size_t k = 0; k < row[0].map.size(); ++k) {
    line.clear();
    for (const GridCell& cell : row) {
      line += padded(cell.map[k], static_cast<std::size_t>(shape.cells), width);
    }
    out += without_end(line);
  }
  return out;
}

std::string letters_of(const HeadReport& head, const TerminalStyle& style) {
  std::string letters;
  for (const LabelScore& label : head.labels) letters += letter_of(label.label, style);
  return letters.empty() ? (style.utf8 ? "·" : ".") : letters;
}

}  // namespace

GridShape grid_shape(dim_t heads, dim_t tokens, dim_t width) {
  const dim_t wanted = std::clamp(tokens + 1, kNarrowestColumn, kWidestColumn);
  const dim_t fitting = std::clamp<dim_t>(width / wanted, 1, heads);
  const dim_t rows = (heads + fitting - 1) / fitting;
  const dim_t per_row = (heads + rows - 1) / rows;
  const dim_t column = std::min(width / per_row, std::max(tokens, kNarrowestColumn) + 2);
  return {per_row, column, std::min(tokens, column - 1)};
}

std::size_t maps_in_a_row(const LookReport& report, dim_t width) {
  return static_cast<std::size_t>(
      grid_shape(std::ssize(report.heads), report.recording->tokens(), width).per_row);
}

std::string map_caption(const LookReport& report, dim_t heads, const TerminalStyle& style) {
  const dim_t tokens = report.recording->tokens();
  const dim_t cells = grid_shape(heads, tokens, style.width).cells;
  std::string out = format_text("row = query, looks at {} column = key", style.utf8 ? "→" : "->");
  out += (style.width < 70 ? "\n" : "   ") + legend(style) + "\n";
  if (cells == tokens) return out;
  return out + wrapped(format_text("a cell shows the largest weight of about {0} x {0}",
                                   (tokens + cells - 1) / cells),
                       static_cast<std::size_t>(style.width));
}

std::string draw_maps(const LookReport& report, const std::vector<const HeadReport*>& heads,
                      const TerminalStyle& style) {
  const GridShape shape = grid_shape(std::ssize(heads), report.recording->tokens(), style.width);
  std::string out;
  std::vector<GridCell> row;
  for (const HeadReport* head : heads) {
    row.push_back(grid_cell(report, *head, shape.cells, style));
    if (std::ssize(row) < shape.per_row && head != heads.back()) continue;
    out += draw_grid_row(row, shape, style) + "\n";
    row.clear();
  }
  return out;
}

std::string letter_table(const LookReport& report, const TerminalStyle& style) {
  constexpr std::size_t kNames = 10;  // "layer 11  "
  std::size_t column = 4;
  for (const HeadReport& head : report.heads) {
    column = std::max(column, display_width(letters_of(head, style)) + 1);
  }
  const dim_t num_heads = report.recording->num_heads();
  const auto room = static_cast<std::size_t>(style.width) - kNames;
  const auto band = std::max<dim_t>(static_cast<dim_t>(room / column), 1);
  std::string out;
  for (dim_t begin = 0; begin < num_heads; begin += band) {
    const dim_t end = std::min(begin + band, num_heads);
    std::string line(kNames, ' ');
    for (dim_t h = begin; h < end; ++h) line += padded(format_text("H{}", h), column);
    out += without_end(line);
    for (dim_t l = 0; l < report.recording->num_layers(); ++l) {
      line = padded(format_text("layer {}", l), kNames);
      for (dim_t h = begin; h < end; ++h)
        line += padded(letters_of(report.at({l, h}), style), column);
      out += without_end(line);
    }
  }
  return out;
}

}  // namespace cephalo::cli
