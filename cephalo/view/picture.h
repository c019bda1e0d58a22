#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/view/colour.h"

#pragma GCC visibility push(default)
namespace cephalo {

enum class Anchor { begin, middle, end };  // which part of a text is at its place
enum class Direction { right, upwards };   // of a text

// How a text is drawn.
struct TextStyle {
  Colour colour;
  dim_t size = 10;  // width of a letter in pixels
  Anchor anchor = Anchor::begin;
  Direction direction = Direction::right;
};

// What is drawn, in the order in which it is; it becomes pixels or SVG in the end. Places are in
// pixels from the top left corner.
class Picture {
 public:
  struct Box {
    dim_t x, y, width, height;
    Colour colour;
    bool hatched;
  };
  struct Map {
    dim_t x, y, cell;  // pixels of a side of each cell
    Tensor weights;
  };
  struct Words {
    dim_t x, y;
    std::string text;
    TextStyle style;
  };
  using Shape = std::variant<Box, Map, Words>;

  Picture(dim_t width, dim_t height, Colour background);
  Picture(Picture&&) noexcept = default;  // its maps own their weights
  Picture& operator=(Picture&&) noexcept = default;
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
  ~Picture() = default;

  dim_t width() const { return width_; }
  dim_t height() const { return height_; }
  Colour background() const { return background_; }
  const std::vector<Shape>& shapes() const { return shapes_; }

  void fill(dim_t x, dim_t y, dim_t width, dim_t height, Colour colour);
  void hatch(dim_t x, dim_t y, dim_t width, dim_t height);
  // weights: [n, n] of a causal head, from 0 to 1. What lies above the diagonal is hatched, as NaN
  // is: it is hidden, not a weight of 0.
  void draw_map(dim_t x, dim_t y, Tensor weights, dim_t cell);
  // UTF-8 on the line through y (upwards: through x).
  void write(dim_t x, dim_t y, std::string_view text, const TextStyle& style);

  // Characters that the picture's own font lacks are spelled out, as U+65E5.
  std::string png() const;
  // Text stays text: it can be selected, searched and read aloud.
  std::string svg() const;

 private:
  dim_t width_;
  dim_t height_;
  Colour background_;
  std::vector<Shape> shapes_;
};

}  // namespace cephalo
#pragma GCC visibility pop
