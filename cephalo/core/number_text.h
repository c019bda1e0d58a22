#pragma once

// Inside the library and the program only.
namespace cephalo {

// A number at the front of [begin, end), written as std::to_chars writes it, whatever the locale.
// -> where it ends; begin where there is none
const char* read_number(const char* begin, const char* end, double* value);

}  // namespace cephalo
