#pragma once

#include <string>

namespace cephalo::cli {

// A message of the library with its last hint in the program's words: the library names an option
// ("replace = true overwrites it"), the program the flag that sets it ("--force overwrites it").
std::string with_flags(std::string message);

}  // namespace cephalo::cli
