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

// Ends that differ in hue to all colour vision, and are equally light against the page.
constexpr Colour kNeutral{44, 50, 60};
constexpr Colour kNegative{106, 168, 255};
constexpr Colour kPositive{255, 154, 87};
constexpr int kIndexedSigned[] = {75, 68, 31, 25, 24, 237, 94, 130, 166, 173, 215};

Colour mixed(const Colour& a, const Colour& b, double share) {
  return {between(a.red, b.red, share), between(a.green, b.green, share),
          between(a.blue, b.blue, share)};
}

// Dark blues, greys, then olive to yellow: each lighter than the one before.
constexpr int kIndexed[] = {17, 18, 239, 60, 243, 101, 144, 179, 185, 221};

}  // namespace

Colour cividis(double x) {
  constexpr auto kSteps = static_cast<int>(std::size(kCividis)) - 1;
  const double place = std::clamp(x, 0.0, 1.0) * kSteps;
  const int step = std::min(static_cast<int>(place), kSteps - 1);
  return mixed(kCividis[step], kCividis[step + 1], place - step);
}

Colour signed_colour(double x) {
  return mixed(kNeutral, x < 0.0 ? kNegative : kPositive, std::min(std::abs(x), 1.0));
}

Colour ink_on(Colour background) {
  // Contrast is (lighter + 0.05) / (darker + 0.05): equal for both inks at this luminance.
  constexpr double kEven = 0.1791;
  return luminance(background) > kEven ? Colour{0, 0, 0} : Colour{255, 255, 255};
}

int indexed_signed(double x) {
  constexpr auto kMiddle = static_cast<double>(std::size(kIndexedSigned) / 2);
  return kIndexedSigned[std::lround((std::clamp(x, -1.0, 1.0) + 1.0) * kMiddle)];
}

int indexed_cividis(double x) {
  constexpr auto kLast = static_cast<double>(std::size(kIndexed) - 1);
  return kIndexed[std::lround(std::clamp(x, 0.0, 1.0) * kLast)];
}

}  // namespace cephalo
