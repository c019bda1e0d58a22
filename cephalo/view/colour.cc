#include "cephalo/view/colour.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace cephalo {
namespace {

// The map at 0, 1/9 … 1; between them it is as good as straight.
constexpr Colour kCividis[] = {{0, 32, 77},     {0, 48, 111},    {57, 72, 107},   {87, 92, 109},
                               {112, 113, 115}, {138, 135, 121}, {166, 157, 117}, {196, 181, 108},
                               {228, 207, 91},  {255, 234, 70}};

std::uint8_t between(std::uint8_t a, std::uint8_t b, double share) {
  return static_cast<std::uint8_t>(std::lround(a + (b - a) * share));
}

// Relative luminance of the sRGB standard.
double luminance(Colour c) {
  const auto linear = [](std::uint8_t part) {
    const double x = part / 255.0;
    return x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(c.red) + 0.7152 * linear(c.green) + 0.0722 * linear(c.blue);
}

int distance(Colour a, Colour b) {
  const int red = a.red - b.red;
  const int green = a.green - b.green;
  const int blue = a.blue - b.blue;
  return red * red + green * green + blue * blue;
}

// Colours 16 to 231 are a cube of six levels, 232 to 255 greys.
Colour colour_of(int index) {
  constexpr std::uint8_t kLevels[] = {0, 95, 135, 175, 215, 255};
  if (index >= 232) {
    const auto grey = static_cast<std::uint8_t>(8 + 10 * (index - 232));
    return {grey, grey, grey};
  }
  const int place = index - 16;
  return {kLevels[place / 36], kLevels[place / 6 % 6], kLevels[place % 6]};
}

}  // namespace

Colour cividis(double x) {
  constexpr auto kSteps = static_cast<int>(std::size(kCividis)) - 1;
  const double place = std::clamp(x, 0.0, 1.0) * kSteps;
  const int step = std::min(static_cast<int>(place), kSteps - 1);
  const Colour& a = kCividis[step];
  const Colour& b = kCividis[step + 1];
  const double share = place - step;
  return {between(a.red, b.red, share), between(a.green, b.green, share),
          between(a.blue, b.blue, share)};
}

Colour ink_on(Colour background) {
  // Contrast is (lighter + 0.05) / (darker + 0.05): equal for both inks at this luminance.
  constexpr double kEven = 0.1791;
  return luminance(background) > kEven ? Colour{0, 0, 0} : Colour{255, 255, 255};
}

int indexed_colour(Colour colour) {
  int best = 16;
  for (int index = 17; index < 256; ++index) {
    if (distance(colour, colour_of(index)) < distance(colour, colour_of(best))) best = index;
  }
  return best;
}

}  // namespace cephalo
