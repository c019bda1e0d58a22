#pragma once

// Inside the library only.
#include <cstddef>
#include <span>

namespace cephalo {

// The bytes of cephalo/view/fonts/DejaVuSansMono.ttf, which tools/make_font.py cut.
std::span<const std::byte> font_file();

}  // namespace cephalo
