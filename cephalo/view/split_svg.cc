
#include <algorithm>
#include <iterator>

#include "cephalo/core/format.h"
#include "cephalo/view/colour.h"
#include "cephalo/view/font.h"
#include "cephalo/view/split_shapes.h"

namespace cephalo {
namespace {

constexpr dim_t kWidth = 760;
constexpr dim_t kMargin = 20;
constexpr dim_t kNames = 70;  // where bars begin: names stand before them
constexpr dim_t kBar = kWidth - kMargin - kNames;
constexpr dim_t kBarHeight = 18;
constexpr dim_t kRow = 22;     // from one token's bar to the next
constexpr dim_t kTokens = 3;   // bars for the first of them say it all
constexpr dim_t kPieces = 32;  // heads side by side whose numbers can be read
constexpr dim_t kGroups = 5;   // heads drawn as matrices of their own
constexpr const char* kInk = "#222";
constexpr const char* kPale = "#dfe3ea";
constexpr const char* kAccent = "#b3261e";  // axes that swap or cancel
constexpr const char* kStruck =
    "fill=\"#b3261e\" font-weight=\"bold\" text-decoration=\"line-through\"";

std::string hex(Colour c) {
  return format_text("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
}

// Where text stands relative to its x.
enum class Anchor { start, middle, end };

struct Box {
  dim_t x, y, width, height;
};

class SplitSvg {
 public:
  explicit SplitSvg(const HeadSplit& split)
      : split_(split), shapes_(shapes_of(split)), steps_(steps_of(split)) {}

  std::string draw(SvgPlace place) {
    const std::string title =
        format_text("{} = {} heads x {}", shapes_.q[-1], split_.num_heads, split_.head_dim);
    y_ = 30;
    text(kMargin, y_, title, Anchor::start, "font-size=\"17\" font-weight=\"bold\"");
    project();
    cut(steps_.split);
    transpose();
    product(steps_.scores, {"q", "kᵀ", "scores", false}, shapes_.heads, shapes_.keys,
            shapes_.scores);
    product(steps_.values, {"weights", "v", "context", true}, shapes_.scores, shapes_.values,
            shapes_.context_heads);
    cut(steps_.concat);
    y_ += kMargin;
    const char* space = place == SvgPlace::file ? "xmlns=\"http://www.w3.org/2000/svg\" " : "";
    return format_text(
        "<svg {}role=\"img\" aria-label=\"{}\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
        "font-family=\"sans-serif\" font-size=\"13\" fill=\"{}\">"
        "<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>{}</svg>\n",
        space, title, kWidth, y_, kWidth, y_, kInk, kWidth, y_, out_);
  }

 private:
  template <typename... Arguments>
  void add(Pattern<Arguments...> pattern, const Arguments&... arguments) {
    append_text(out_, pattern, arguments...);
  }

  void text(dim_t x, dim_t y, std::string_view words, Anchor anchor = Anchor::middle,
            const char* style = "") {
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    add("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" {}>{}</text>", x, y,
        kAnchors[static_cast<int>(anchor)], style, as_xml(words));
  }

  void box(const Box& b, std::string_view fill) {
    add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\"/>", b.x,
        b.y, b.width, b.height, fill);
  }

  void line(dim_t x1, dim_t y1, dim_t x2, dim_t y2, const char* colour) {
    add("<path d=\"M{} {}L{} {}\" stroke=\"{}\" stroke-width=\"2\"/>", x1, y1, x2, y2, colour);
  }

  void heading(const SplitStep& step) {
    y_ += 42;
    add("<text x=\"{}\" y=\"{}\"><tspan font-weight=\"bold\">{} {}</tspan><tspan dx=\"10\" "
        "font-family=\"monospace\">{}</tspan><tspan dx=\"10\">{}</tspan></text>",
        kMargin, y_, step.number, step.name, as_xml(step.formula), as_xml(step.what));
    y_ += 12;
  }

  // A head keeps its colour wherever it goes; the ends of the map are too dark and too bright.
  Colour colour_of(dim_t head) const {
    const dim_t last = std::max<dim_t>(1, split_.num_heads - 1);
    return cividis(0.15 + 0.8 * static_cast<double>(head) / static_cast<double>(last));
  }

  void piece(const Box& b, dim_t head) {
    const Colour ground = colour_of(head);
    box(b, hex(ground));
    add("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" fill=\"{}\">{}</text>",
        b.x + b.width / 2, b.y + b.height / 2 + 4, hex(ink_on(ground)), head);
  }

  template <typename Bar>
  void for_tokens(const Bar& bar) {
    for (dim_t i = 0; i < std::min(split_.q_tokens, kTokens); ++i) {
      text(kNames - 8, y_ + 13, short_name(i), Anchor::end);
      bar(y_);
      y_ += kRow;
    }
    more_tokens(kNames);
  }

  void more_tokens(dim_t x) {
    if (split_.q_tokens <= kTokens) return;
    text(x, y_ + 12, format_text("… {} more", split_.q_tokens - kTokens), Anchor::start,
         "fill=\"#666\"");
    y_ += 18;
  }

  std::string short_name(dim_t i) const {
    constexpr dim_t kLetters = 8;
    return fitted(token_name(split_, i), kLetters);
  }

  void project() {
    heading(steps_.project);
    for_tokens([&](dim_t y) {
      box({kNames, y, kBar, kBarHeight}, kPale);
      text(kNames + kBar / 2, y + 13, format_text("{}", shapes_.q[-1]));
    });
  }

  // The same bars in pieces, one for each head.
  void cut(const SplitStep& step) {
    heading(step);
    const auto pieces = shown_of(split_.num_heads, kPieces);
    const dim_t count = std::ssize(pieces);
    for_tokens([&](dim_t y) {
      for (dim_t k = 0; k < count; ++k) {
        const dim_t begin = kNames + kBar * k / count;
        const Box place{begin, y, kNames + kBar * (k + 1) / count - begin, kBarHeight};
        const std::optional<dim_t> head = pieces[static_cast<std::size_t>(k)];
        if (head) {
          piece(place, *head);
        } else {
          text(place.x + place.width / 2, y + 13, "…");
        }
      }
    });
  }

  void transpose() {
    heading(steps_.transpose);
    const dim_t top = y_;
    axes_that_swap(top);
    const dim_t bottom = y_;
    y_ = top;
    heads_as_groups();
    y_ = std::max(y_, bottom);
  }

  // Two rows of boxes, an axis each; lines lead to where each axis goes.
  void axes_that_swap(dim_t top) {
    constexpr dim_t kCell = 62;
    constexpr dim_t kHigh = 38;
    const int rank = shapes_.split.rank();
    const int swapped = shapes_.tokens_axis;
    const dim_t below = top + kHigh + 44;
    const auto x_of = [&](int axis) { return kMargin + kCell * axis; };
    const auto row = [&](dim_t y, const Shape& shape, bool after) {
      for (int axis = 0; axis < rank; ++axis) {
        const bool moves = axis == swapped || axis == swapped + 1;
        const char* name = axis < swapped               ? "batch"
                           : axis == rank - 1           ? "head_dim"
                           : (axis == swapped) != after ? "tokens"
                                                        : "heads";
        box({x_of(axis), y, kCell - 4, kHigh}, moves ? "#f3d9d7" : kPale);
        const dim_t middle = x_of(axis) + (kCell - 4) / 2;
        text(middle, y + 17, format_text("{}", shape[axis]), Anchor::middle,
             "font-weight=\"bold\"");
        text(middle, y + 32, name, Anchor::middle, "font-size=\"11\"");
      }
    };
    row(top, shapes_.split, false);
    row(below, shapes_.heads, true);
    for (int axis = 0; axis < rank; ++axis) {
      const int to = axis == swapped ? axis + 1 : axis == swapped + 1 ? axis - 1 : axis;
      line(x_of(axis) + kCell / 2 - 2, top + kHigh + 2, x_of(to) + kCell / 2 - 2, below - 2,
           to == axis ? "#aab" : kAccent);
    }
    text(kMargin, below + kHigh + 18,
         format_text("axes {} and {} change places; nothing moves", swapped, swapped + 1),
         Anchor::start);
    y_ = below + kHigh + 24;
  }

  // Each head as a matrix of tokens by head_dim.
  void heads_as_groups() {
    constexpr dim_t kLeft = 330;
    const auto groups = shown_of(split_.num_heads, kGroups);
    const dim_t column = (kWidth - kMargin - kLeft) / std::ssize(groups);
    const dim_t width = std::min<dim_t>(column - 14, 64);
    const dim_t top = y_;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const dim_t x = kLeft + column * static_cast<dim_t>(g) + (column - width) / 2;
      y_ = top;
      if (!groups[g]) {
        text(x + width / 2, y_ + 48, "…");
        continue;
      }
      text(x + width / 2, y_ + 13, format_text("head {}", *groups[g]));
      y_ += kRow;
      for (dim_t i = 0; i < std::min(split_.q_tokens, kTokens); ++i) {
        if (g == 0) text(x - 8, y_ + 13, short_name(i), Anchor::end);
        piece({x, y_, width, kBarHeight}, *groups[g]);
        y_ += kRow;
      }
    }
    more_tokens(kLeft + (column - width) / 2);
    text(kLeft + (column - width) / 2, y_ + 14,
         format_text("each {} tokens x {}", split_.q_tokens, split_.head_dim), Anchor::start);
    y_ += 20;
  }

  struct Names {
    const char *left, *right, *result;
    bool sums_tokens;  // the inner axis; otherwise head_dim
  };

  // A matrix as it is drawn: tokens are short, head_dim is long.
  struct Matrix {
    const char* name;
    dim_t rows, columns;  // what is written beside and above it
    dim_t height, width;
    enum { neither, row_count, column_count } cancels = neither;
  };

  // left: [..., rows, inner], right: [..., inner, columns]
  void product(const SplitStep& step, const Names& names, const Shape& left, const Shape& right,
               const Shape& result) {
    constexpr dim_t kShort = 54;
    constexpr dim_t kLong = 108;
    heading(step);
    shapes_of_product(left, right, result);
    const dim_t inner = names.sums_tokens ? kShort : kLong;
    const dim_t columns = names.sums_tokens ? kLong : kShort;
    y_ += 38;
    dim_t x = kMargin + 60;
    x = matrix(x, {names.left, left[-2], left[-1], kShort, inner, Matrix::column_count});
    x = sign(x, "@");
    x = matrix(x, {names.right, right[-2], right[-1], inner, columns, Matrix::row_count});
    x = sign(x, "=");
    matrix(x, {names.result, result[-2], result[-1], kShort, columns});
    y_ += std::max(kShort, inner) + 6;
  }

  // -> where the next thing may be drawn
  dim_t matrix(dim_t x, const Matrix& m) {
    cards({x, y_, m.width, m.height}, m.name);
    text(x + m.width / 2, y_ - 14, format_text("{}", m.columns), Anchor::middle,
         m.cancels == Matrix::column_count ? kStruck : "");
    text(x - 8, y_ + m.height / 2 + 4, format_text("{}", m.rows), Anchor::end,
         m.cancels == Matrix::row_count ? kStruck : "");
    return x + m.width + 12;
  }

  dim_t sign(dim_t x, const char* what) {
    text(x + 26, y_ + 32, what, Anchor::middle, "font-size=\"20\"");
    return x + 92;
  }

  void shapes_of_product(const Shape& left, const Shape& right, const Shape& result) {
    const auto tuple = [&](const Shape& shape, int struck) {
      std::string words = "(";
      for (int k = 0; k < shape.rank(); ++k) {
        const std::string number = format_text("{}", shape[k]);
        words += k > 0 ? ", " : "";
        words += k == struck ? format_text("<tspan {}>{}</tspan>", kStruck, number) : number;
      }
      return words + ")";
    };
    y_ += 10;
    add("<text x=\"{}\" y=\"{}\"><tspan font-family=\"monospace\">{} @ {} = {}</tspan>"
        "<tspan dx=\"14\" fill=\"{}\">inner axis {}: summed over, it cancels</tspan></text>",
        kMargin, y_, tuple(left, left.rank() - 1), tuple(right, right.rank() - 2),
        tuple(result, -1), kAccent, left[-1]);
  }

  // The matrices of all heads lie behind each other.
  void cards(const Box& front, const char* name) {
    const dim_t behind = std::min<dim_t>(2, split_.num_heads - 1);
    for (dim_t k = behind; k >= 0; --k) {
      const Colour ground = colour_of(k);
      box({front.x + 5 * k, front.y - 5 * k, front.width, front.height}, hex(ground));
      if (k > 0) continue;
      add("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>",
          front.x + front.width / 2, front.y + front.height / 2 + 4, hex(ink_on(ground)), name);
    }
  }

  const HeadSplit& split_;
  SplitShapes shapes_;
  SplitSteps steps_;
  dim_t y_ = 0;  // where the next thing is drawn
  std::string out_;
};

}  // namespace

std::string split_svg(const HeadSplit& split, SvgPlace place) {
  return SplitSvg(split).draw(place);
}

}  // namespace cephalo
