#include "cephalo/view/pixels.h"

#include "cephalo/core/fail.h"
#include "cephalo/view/png.h"

namespace cephalo {
namespace {

void mix(std::uint8_t& part, std::uint8_t colour, std::uint8_t cover) {
  constexpr int kAll = 255;
  part = static_cast<std::uint8_t>((part * (kAll - cover) + colour * cover + kAll / 2) / kAll);
}

}  // namespace

Pixels::Pixels(dim_t width, dim_t height, Colour background)
    : width_(width),
      height_(height),
      rgb_(static_cast<std::size_t>(checked_mul(3, checked_mul(width, height)))) {
  fill(0, 0, width, height, background);
}

Colour Pixels::at(dim_t x, dim_t y) const {
  require(0 <= x && x < width_ && 0 <= y && y < height_, "Pixels: pixel ({}, {}) of {} x {}", x, y,
          width_, height_);
  const std::uint8_t* pixel = rgb_.data() + 3 * (y * width_ + x);
  return {pixel[0], pixel[1], pixel[2]};
}

void Pixels::set(dim_t x, dim_t y, Colour colour, std::uint8_t cover) {
  if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
  std::uint8_t* pixel = rgb_.data() + 3 * (y * width_ + x);
  mix(pixel[0], colour.red, cover);
  mix(pixel[1], colour.green, cover);
  mix(pixel[2], colour.blue, cover);
}

void Pixels::fill(dim_t x, dim_t y, dim_t width, dim_t height, Colour colour) {
  for (dim_t row = y; row < y + height; ++row) {
    for (dim_t column = x; column < x + width; ++column) set(column, row, colour);
  }
}

std::string Pixels::png() const {
  return encode_png(width_, height_, rgb_);
}

}  // namespace cephalo
