#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace cephalo {

// A colour in 24 bits.
struct Colour {
  std::uint8_t red, green, blue;
  bool operator==(const Colour&) const = default;
};

// x from 0 to 1 -> dark blue to yellow, with a lightness that grows evenly: the cividis map, made
// to be read by all colour vision.
Colour cividis(double x);

// x from −1 to 1 -> blue, a neutral grey at 0, orange: for numbers with a sign.
Colour signed_colour(double x);

// Black or white, whichever can be read on it better.
Colour ink_on(Colour background);

// Ten steps of the map in the 256 colours that terminals share; the nearest ones would stray into
// green and pink.
int indexed_cividis(double x);
// Five steps of blue, grey, five of orange in these.
int indexed_signed(double x);

}  // namespace cephalo
#pragma GCC visibility pop
