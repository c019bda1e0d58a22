#pragma once

// Inside the library only.
#include <cstdint>
#include <string>
#include <vector>

#include "cephalo/core/shape.h"
#include "cephalo/view/colour.h"

namespace cephalo {

// Pixels to draw on. What lies outside is left out.
class Pixels {
 public:
  Pixels(dim_t width, dim_t height, Colour background);

  Colour at(dim_t x, dim_t y) const;
  // `cover` of 255 parts of the pixel get the colour.
  void set(dim_t x, dim_t y, Colour colour, std::uint8_t cover = 255);
  void fill(dim_t x, dim_t y, dim_t width, dim_t height, Colour colour);

  std::string png() const;

 private:
  dim_t width_;
  dim_t height_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace cephalo
