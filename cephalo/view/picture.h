#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/core/shape.h"
#include "cephalo/view/colour.h"

namespace cephalo {

// Pixels to draw on. What lies outside is left out.
class Picture {
 public:
  Picture(dim_t width, dim_t height, Colour background);

  dim_t width() const { return width_; }
  dim_t height() const { return height_; }
  Colour at(dim_t x, dim_t y) const;

  void set(dim_t x, dim_t y, Colour colour);
  void fill(dim_t x, dim_t y, dim_t width, dim_t height, Colour colour);
  // `scale` pixels for each of the font's; `upwards`: turned, from (x, y) to the top
  enum class Direction { right, upwards };
  void write(dim_t x, dim_t y, std::string_view text, Colour colour, dim_t scale = 2,
             Direction direction = Direction::right);

  std::string png() const;

 private:
  dim_t width_;
  dim_t height_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace cephalo
