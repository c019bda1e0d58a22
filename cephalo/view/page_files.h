#pragma once

// Inside the library only.
#include <cstddef>
#include <span>

namespace cephalo {

// The files of web/dist, byte for byte.
struct PageFiles {
  std::span<const std::byte> page_html;  // with {{data}} and {{blocks}} where those go
  std::span<const std::byte> engine;     // of WebAssembly, deflated
};
PageFiles page_files();

}  // namespace cephalo
