#include "cli/look_numbers.h"

#include <cmath>

#include "cephalo/core/format.h"

namespace cephalo::cli {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string weights_csv(const LookReport& report, const HeadPlace& place) {
  const Tensor weights =
      map_weights(*report.recording, place.layer, {.heads = {place.head}}, report.maps);
  const auto tokens = std::ssize(report.tokens);
  std::string out = "query,token";
  for (dim_t j = 0; j < tokens; ++j) out += format_text(",{}", j);
  out += "\n";
  for (dim_t i = 0; i < tokens; ++i) {
    out += format_text("{},{}", i, quoted(report.tokens[static_cast<std::size_t>(i)].label));
    for (dim_t j = 0; j < tokens; ++j) {
      const double weight = weights.at({0, i, j});
      out += j > i || std::isnan(weight) ? "," : format_text(",{:.9g}", weight);
    }
    out += "\n";
  }
  return out;
}

Tensor weights_array(const LookReport& report, const HeadPlace& place) {
  const auto tokens = std::ssize(report.tokens);
  Tensor weights =
      map_weights(*report.recording, place.layer, {.heads = {place.head}}, report.maps);
  return Tensor::copy(std::move(weights).reshaped({tokens, tokens}), DType::f32);
}

}  // namespace cephalo::cli
