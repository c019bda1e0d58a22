#include "cephalo/view/picture.h"

#include <cmath>
#include <map>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/view/font.h"
#include "cephalo/view/hatch.h"
#include "cephalo/view/pixels.h"

namespace cephalo {
namespace {

void hatch_pixels(Pixels& pixels, dim_t left, dim_t top, dim_t width, dim_t height) {
  for (dim_t y = top; y < top + height; ++y) {
    for (dim_t x = left; x < left + width; ++x) {
      if ((x + y) % kHatchStep == 0) pixels.set(x, y, kHatchColour);
    }
  }
}

// Draws one shape after the other.
class Painter {
 public:
  explicit Painter(Pixels& pixels) : pixels_(pixels) {}

  void operator()(const Picture::Box& box) {
    if (box.hatched) return hatch_pixels(pixels_, box.x, box.y, box.width, box.height);
    pixels_.fill(box.x, box.y, box.width, box.height, box.colour);
  }

  void operator()(const Picture::Map& map) {
    const Tensor wide = Tensor::copy(map.weights, DType::f64);
    const auto* weight = wide.data_as<double>();
    for (dim_t i = 0; i < wide.dim(0); ++i) {
      for (dim_t j = 0; j < wide.dim(1); ++j, ++weight) {
        const dim_t x = map.x + j * map.cell;
        const dim_t y = map.y + i * map.cell;
        if (j > i || std::isnan(*weight)) {
          hatch_pixels(pixels_, x, y, map.cell, map.cell);
        } else {
          pixels_.fill(x, y, map.cell, map.cell, cividis(*weight));
        }
      }
    }
  }

  void operator()(const Picture::Words& words) {
    const std::u32string letters = letters_of(words.text);
    const dim_t width = static_cast<dim_t>(letters.size()) * words.style.size;
    dim_t along = words.style.anchor == Anchor::begin    ? 0
                  : words.style.anchor == Anchor::middle ? -width / 2
                                                         : -width;
    for (const char32_t letter : letters) {
      write_letter(words, letter, along);
      along += words.style.size;
    }
  }

 private:
  // `along`: pixels from the place of the text, in its direction
  void write_letter(const Picture::Words& words, char32_t letter, dim_t along) {
    const Glyph& drawn = glyph_of(letter, words.style.size);
    for (dim_t row = 0; row < drawn.height; ++row) {
      for (dim_t column = 0; column < drawn.width; ++column) {
        const std::uint8_t cover =
            drawn.coverage[static_cast<std::size_t>(row * drawn.width + column)];
        if (cover == 0) continue;
        const dim_t right = along + drawn.left + column;
        const dim_t down = drawn.top + row;
        if (words.style.direction == Direction::right) {
          pixels_.set(words.x + right, words.y + down, words.style.colour, cover);
        } else {
          pixels_.set(words.x + down, words.y - right - 1, words.style.colour, cover);
        }
      }
    }
  }

  const Glyph& glyph_of(char32_t letter, dim_t size) {
    const auto [found, is_new] = glyphs_.try_emplace({letter, size});
    if (is_new) found->second = glyph(letter, size);
    return found->second;
  }

  Pixels& pixels_;
  std::map<std::pair<char32_t, dim_t>, Glyph> glyphs_;
};

}  // namespace

Picture::Picture(dim_t width, dim_t height, Colour background)
    : width_(width), height_(height), background_(background) {}

void Picture::fill(dim_t x, dim_t y, dim_t width, dim_t height, Colour colour) {
  shapes_.emplace_back(Box{x, y, width, height, colour, false});
}

void Picture::hatch(dim_t x, dim_t y, dim_t width, dim_t height) {
  shapes_.emplace_back(Box{x, y, width, height, kHatchColour, true});
}

void Picture::draw_map(dim_t x, dim_t y, Tensor weights, dim_t cell) {
  require(weights.rank() == 2 && weights.dim(0) == weights.dim(1),
          "Picture: the weights of a map must be [n, n], not {}", weights.shape());
  shapes_.emplace_back(Map{x, y, cell, std::move(weights)});
}

void Picture::write(dim_t x, dim_t y, std::string_view text, const TextStyle& style) {
  shapes_.emplace_back(Words{x, y, std::string(text), style});
}

std::string Picture::png() const {
  Pixels pixels(width_, height_, background_);
  Painter painter(pixels);
  for (const Shape& shape : shapes_) std::visit(painter, shape);
  return pixels.png();
}

}  // namespace cephalo
