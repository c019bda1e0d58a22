// Writes pictures of several kinds into a folder, each beside its pixels: NAME.png and NAME.rgb.
// png_test.py reads them back.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/view/png.h"

namespace {

using Pixel = std::function<std::uint8_t(std::int64_t x, std::int64_t y, int part)>;

void write_sample(const std::string& name, std::int64_t width, std::int64_t height,
                  const Pixel& pixel) {
  std::vector<std::uint8_t> rgb;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (int part = 0; part < 3; ++part) rgb.push_back(pixel(x, y, part));
    }
  }
  std::ofstream(name + ".png", std::ios::binary) << cephalo::encode_png(width, height, rgb);
  std::ofstream(name + ".rgb", std::ios::binary)
      .write(reinterpret_cast<const char*>(rgb.data()), static_cast<std::streamsize>(rgb.size()));
}

}  // namespace

int main(int, char** arguments) {
  const std::string folder = std::string(arguments[1]) + "/";
  cephalo::TorchGenerator generator(1);
  const auto number = [](std::int64_t x) { return static_cast<std::uint8_t>(x); };
  write_sample(folder + "one", 1, 1, [](auto...) { return std::uint8_t{200}; });
  write_sample(folder + "plain", 700, 333, [](auto...) { return std::uint8_t{17}; });
  write_sample(folder + "noise", 101, 97, [&](auto...) { return number(generator.random()); });
  write_sample(folder + "slope", 256, 64,
               [&](auto x, auto y, int part) { return number(x * (part + 1) + y); });
  // Repeats at every distance up to the window and beyond.
  std::vector<std::uint8_t> before;
  write_sample(folder + "repeats", 211, 150, [&](auto...) {
    const auto size = static_cast<std::int64_t>(before.size());
    const bool copies = size > 10 && generator.random() % 50 != 0;
    static std::int64_t back = 1;
    if (!copies) back = generator.randint(1, std::max<std::int64_t>(size, 2));
    before.push_back(copies && back <= size ? before[static_cast<std::size_t>(size - back)]
                                            : number(generator.random()));
    return before.back();
  });
}
