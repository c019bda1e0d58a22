#include "cephalo/core/number_text.h"

#include <charconv>
#include <version>

#if !defined(__cpp_lib_to_chars)
#include <locale>
#include <sstream>
#include <string>
#endif

namespace cephalo {

const char* read_number(const char* begin, const char* end, double* value) {
#if defined(__cpp_lib_to_chars)
  const auto [stop, error] = std::from_chars(begin, end, *value);
  return error == std::errc() ? stop : begin;
#else
  // libc++ of clang 14 to 19 reads whole numbers only.
  std::istringstream text(std::string(begin, end));
  text.imbue(std::locale::classic());
  if (!(text >> *value)) return begin;
  return text.eof() ? end : begin + text.tellg();
#endif
}

}  // namespace cephalo
