
#include <algorithm>

#include "cephalo/core/format.h"
#include "cephalo/view/split_shapes.h"

namespace cephalo {
namespace {

constexpr dim_t kNarrowest = 60;
constexpr dim_t kWidest = 100;
constexpr dim_t kTokens = 3;    // bars for the first of them say it all
constexpr dim_t kName = 6;      // columns of a token's name
constexpr dim_t kIndent = 3;    // before every drawing
constexpr dim_t kGroups = 5;    // heads drawn as matrices of their own
constexpr dim_t kGroupGap = 2;  // columns between them

struct Lines {
  const char *wall, *bar, *left, *right, *corner, *end, *down, *up, *cross, *more;
};
constexpr Lines kUtf8 = {"│", "─", "├", "┤", "└", "┘", "╲", "╱", "╳", "…"};
constexpr Lines kAscii = {"|", "-", "|", "|", "`", "'", "\\", "/", "X", "..."};

std::string spaces(dim_t count) {
  return std::string(static_cast<std::size_t>(std::max<dim_t>(count, 0)), ' ');
}

std::string repeated(const char* text, dim_t count) {
  std::string all;
  for (dim_t k = 0; k < count; ++k) all += text;
  return all;
}

// The first characters of UTF-8 text, to the right of `width` columns.
std::string right_aligned(const std::string& text, dim_t width) {
  std::string kept;
  dim_t used = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    if (begins && used == width) break;
    used += begins ? 1 : 0;
    kept += c;
  }
  return spaces(width - used) + kept;
}

// (1, 12, 6, 64), and where the entry of an axis ends; it and the next one are `width` wide.
struct Tuple {
  std::string text;
  dim_t end;  // the column of its last digit
};
Tuple tuple_of(const Shape& shape, int axis, dim_t width = 1) {
  Tuple tuple{"(", 0};
  for (int k = 0; k < shape.rank(); ++k) {
    const bool padded = k == axis || k == axis + 1;
    tuple.text += format_text("{}{:>{}}", k > 0 ? ", " : "", shape[k], padded ? width : 1);
    if (k == axis) tuple.end = std::ssize(tuple.text) - 1;
  }
  tuple.text += ")";
  return tuple;
}

class SplitText {
 public:
  SplitText(const HeadSplit& split, const TerminalStyle& style)
      : split_(split),
        shapes_(shapes_of(split)),
        steps_(steps_of(split)),
        style_(style),
        lines_(style.utf8 ? kUtf8 : kAscii),
        room_(std::clamp(style.width, kNarrowest, kWidest) - kIndent - kName - 1) {}

  std::string draw() {
    out_ = format_text("{} = {} heads x {}\n", shapes_.q[-1], split_.num_heads, split_.head_dim);
    heading(steps_.project);
    for_tokens([&](dim_t) { return whole_bar(shapes_.q[-1]); });
    heading(steps_.split);
    for_tokens([&](dim_t) { return cut_bar(); });
    heading(steps_.transpose);
    heads_as_groups();
    axes_that_swap();
    heading(steps_.scores);
    product(shapes_.heads, shapes_.keys, shapes_.scores);
    heading(steps_.values);
    product(shapes_.scores, shapes_.values, shapes_.context_heads);
    heading(steps_.concat);
    for_tokens([&](dim_t) { return cut_bar(); });
    return out_;
  }

 private:
  void heading(const SplitStep& step) {
    const std::string name = format_text("{} {}", step.number, step.name);
    out_ += format_text("\n{}{} {}: {}\n", bold(name, style_), spaces(12 - std::ssize(name)),
                        step.formula, step.what);
  }

  void line(const std::string& text) { out_ += spaces(kIndent) + text + "\n"; }

  template <typename Bar>
  void for_tokens(const Bar& bar) {
    const dim_t shown = std::min(split_.q_tokens, kTokens);
    for (dim_t i = 0; i < shown; ++i) {
      line(right_aligned(token_name(split_, i), kName) + " " + bar(i));
    }
    if (shown < split_.q_tokens) line(more_tokens());
  }

  std::string more_tokens() const {
    return format_text("{}{} {} more", spaces(kName - 1 - (style_.utf8 ? 0 : 2)), lines_.more,
                       split_.q_tokens - kTokens);
  }

  // Which heads are drawn side by side, and how wide each may be.
  dim_t narrowest_piece() const { return std::ssize(format_text("{}", split_.num_heads - 1)) + 2; }
  std::vector<std::optional<dim_t>> pieces() const {
    return shown_of(split_.num_heads, std::max<dim_t>(3, (room_ - 1) / (narrowest_piece() + 1)));
  }
  dim_t piece_width() const {
    return std::max(narrowest_piece(), (room_ - 1) / std::ssize(pieces()) - 1);
  }
  dim_t bar_width() const { return std::ssize(pieces()) * (piece_width() + 1) + 1; }

  std::string whole_bar(dim_t width) const {
    const std::string number = format_text(" {} ", width);
    const dim_t rest = bar_width() - 2 - std::ssize(number);
    return lines_.left + repeated(lines_.bar, rest / 2) + number +
           repeated(lines_.bar, rest - rest / 2) + lines_.right;
  }

  // A head keeps its colour wherever it goes.
  std::string piece(dim_t head, dim_t width) const {
    const double shade = split_.num_heads == 1 ? 0.5
                                               : static_cast<double>(head) /
                                                     static_cast<double>(split_.num_heads - 1);
    return painted(format_text("{:^{}}", head, width), shade, style_);
  }

  std::string cut_bar() const {
    std::string bar = lines_.wall;
    for (const std::optional<dim_t>& head : pieces()) {
      const dim_t width = piece_width();
      bar += head ? piece(*head, width) : centred_more(width);
      bar += lines_.wall;
    }
    return bar;
  }

  std::string centred_more(dim_t width) const {
    const dim_t used = style_.utf8 ? 1 : 3;
    const dim_t before = std::max<dim_t>(0, (width - used) / 2);
    return spaces(before) + lines_.more + spaces(width - used - before);
  }

  // Each head as a matrix of tokens by head_dim.
  void heads_as_groups() {
    const dim_t width = narrowest_piece();
    const dim_t column = kName + 1 + width + 2 + kGroupGap;
    const dim_t fitting = (kName + 1 + room_ + kGroupGap) / column;
    const auto groups = shown_of(split_.num_heads, std::clamp<dim_t>(fitting, 3, kGroups));
    std::string titles;
    for (const auto& head : groups) {
      const std::string title = head ? format_text("head {}", *head) : "";
      titles += spaces(kName + 1) + title + spaces(column - kName - 1 - std::ssize(title));
    }
    line(titles.erase(titles.find_last_not_of(' ') + 1));
    for (dim_t i = 0; i < std::min(split_.q_tokens, kTokens); ++i) {
      std::string row;
      for (const auto& head : groups) {
        row += head ? right_aligned(token_name(split_, i), kName) + " " + lines_.wall +
                          piece(*head, width) + lines_.wall
                    : spaces(kName) + centred_more(column - kName - kGroupGap);
        row += spaces(kGroupGap);
      }
      line(row.erase(row.find_last_not_of(' ') + 1));
    }
    if (kTokens < split_.q_tokens) line(more_tokens());
  }

  void axes_that_swap() {
    const int axis = shapes_.tokens_axis;
    const dim_t width = std::max(std::ssize(format_text("{}", split_.q_tokens)),
                                 std::ssize(format_text("{}", split_.num_heads)));
    const Tuple before = tuple_of(shapes_.split, axis, width);
    const Tuple after = tuple_of(shapes_.heads, axis, width);
    const dim_t middle = before.end + 1 + width / 2;  // between the two entries
    const char* batch = split_.batch > 0 ? "batch, " : "";
    out_ += "\n";
    line(format_text("{}  {}tokens, heads, head_dim", before.text, batch));
    line(spaces(middle - 1) + lines_.down + " " + lines_.up);
    line(spaces(middle) + lines_.cross + spaces(std::ssize(before.text) + 1 - middle) +
         format_text("axes {} and {} change places; nothing moves in memory", axis, axis + 1));
    line(spaces(middle - 1) + lines_.up + " " + lines_.down);
    line(format_text("{}  {}heads, tokens, head_dim", after.text, batch));
  }

  // left: [..., rows, inner], right: [..., inner, columns]
  void product(const Shape& left, const Shape& right, const Shape& result) {
    const Tuple a = tuple_of(left, left.rank() - 1);
    const Tuple b = tuple_of(right, right.rank() - 2);
    const dim_t from = a.end;
    const dim_t to = std::ssize(a.text) + 3 + b.end;
    line(format_text("{} @ {} = {}", a.text, b.text, to_tuple_string(result)));
    line(spaces(from) + lines_.corner + repeated(lines_.bar, to - from - 1) + lines_.end +
         format_text("  inner axis {}: summed over, it cancels", left[-1]));
  }

  const HeadSplit& split_;
  SplitShapes shapes_;
  SplitSteps steps_;
  TerminalStyle style_;
  Lines lines_;
  dim_t room_;  // columns for a bar
  std::string out_;
};

}  // namespace

std::string draw_split(const HeadSplit& split, const TerminalStyle& style) {
  return SplitText(split, style).draw();
}

}  // namespace cephalo
