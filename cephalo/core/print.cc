#include "cephalo/core/print.h"

#include <ostream>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

constexpr dim_t kEnds = 3;  // entries shown at both ends of a long axis

void append(std::string& text, const TensorView& t, int decimals, int indent) {
  if (t.rank() == 0) {
    if (t.dtype() == DType::i64) {
      text += format_text("{}", *t.data_as<std::int64_t>());
    } else {
      text += format_text("{:.{}f}", t.at({}), is_floating(t.dtype()) ? decimals : 0);
    }
    return;
  }
  text += '[';
  const std::string separator = t.rank() == 1 ? ", " : format_text(",\n{:{}}", "", indent + 1);
  for (dim_t i = 0; i < t.dim(0); ++i) {
    if (i > 0) text += separator;
    if (t.dim(0) > 2 * kEnds && i == kEnds) {
      text += "..." + separator;
      i = t.dim(0) - kEnds;
    }
    append(text, t[i], decimals, indent + 1);
  }
  text += ']';
}

}  // namespace

std::string to_string(const TensorView& t, int decimals) {
  require(decimals >= 0, "to_string: decimals ({}) must be >= 0", decimals);
  std::string text;
  append(text, t, decimals, 0);
  return text;
}

std::ostream& operator<<(std::ostream& out, const TensorView& t) {
  return out << to_string(t);
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  return out << to_string(dims);
}

}  // namespace cephalo
