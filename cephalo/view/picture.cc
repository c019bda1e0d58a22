#include "cephalo/view/picture.h"

#include "cephalo/core/fail.h"
#include "cephalo/view/font.h"
#include "cephalo/view/png.h"

namespace cephalo {

Picture::Picture(dim_t width, dim_t height, Colour background)
    : width_(width),
      height_(height),
      rgb_(static_cast<std::size_t>(checked_mul(3, checked_mul(width, height)))) {
  fill(0, 0, width, height, background);
}

Colour Picture::at(dim_t x, dim_t y) const {
  require(0 <= x && x < width_ && 0 <= y && y < height_, "Picture: pixel ({}, {}) of {} x {}", x, y,
          width_, height_);
  const std::uint8_t* pixel = rgb_.data() + 3 * (y * width_ + x);
  return {pixel[0], pixel[1], pixel[2]};
}

void Picture::set(dim_t x, dim_t y, Colour colour) {
  if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
  std::uint8_t* pixel = rgb_.data() + 3 * (y * width_ + x);
  pixel[0] = colour.red;
  pixel[1] = colour.green;
  pixel[2] = colour.blue;
}

void Picture::fill(dim_t x, dim_t y, dim_t width, dim_t height, Colour colour) {
  for (dim_t row = y; row < y + height; ++row) {
    for (dim_t column = x; column < x + width; ++column) set(column, row, colour);
  }
}

void Picture::write(dim_t x, dim_t y, std::string_view text, Colour colour, dim_t scale,
                    Direction direction) {
  dim_t along = 0;
  for (const char c : text) {
    for (int gy = 0; gy < kGlyphHeight; ++gy) {
      for (int gx = 0; gx < kGlyphWidth; ++gx) {
        if (!glyph_pixel(c, gx, gy)) continue;
        const dim_t right = (along + gx) * scale;
        const dim_t down = gy * scale;
        if (direction == Direction::right) {
          fill(x + right, y + down, scale, scale, colour);
        } else {
          fill(x + down, y - right - scale, scale, scale, colour);
        }
      }
    }
    along += kGlyphWidth + 1;
  }
}

std::string Picture::png() const {
  return encode_png(width_, height_, rgb_);
}

}  // namespace cephalo
