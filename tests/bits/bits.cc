#include "tests/bits/bits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace cephalo::testing {
namespace {

constexpr const char* kFirstLine = "# recorded with ";

bool has_nan(const TensorView& t) {
  if (!is_floating(t.dtype())) return false;
  const Tensor wide = Tensor::copy(t, DType::f64);
  return std::any_of(wide.data_as<double>(), wide.data_as<double>() + wide.numel(),
                     [](double value) { return std::isnan(value); });
}

}  // namespace

Digest& Digest::add(const TensorView& t) {
  const std::string header = std::string(cephalo::name(t.dtype())) + to_string(t.shape());
  sum_->add(header.data(), header.size());
  const Tensor dense = Tensor::copy(t);
  if (has_nan(dense)) throw std::logic_error("NaN: its bits say nothing of a result");
  sum_->add(dense.data(), dense.bytes());
  return *this;
}

Digest& Digest::add(double value) {
  sum_->add(&value, sizeof value);
  return *this;
}

Digest& Digest::add(const std::vector<std::int64_t>& ids) {
  return add(TensorView(ids.data(), {std::ssize(ids)}));
}

std::string Digest::hex() const {
  const Checksum::Value value = sum_->value();
  std::string digits;
  for (std::size_t k = 0; k < 8; ++k) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(value[k]));
    digits += two;
  }
  return digits;
}

void Bits::add_digest(const std::string& name, const Digest& digest) {
  const auto same = [&](const BitsLine& line) { return line.name == name; };
  if (std::any_of(lines_.begin(), lines_.end(), same)) {
    throw std::logic_error("two lines are called " + name);
  }
  lines_.push_back({name, digest.hex()});
}

BitsRecord parse_bits(const std::string& text) {
  BitsRecord record;
  std::istringstream in(text);
  std::getline(in, record.toolchain);
  if (!record.toolchain.starts_with(kFirstLine)) {
    throw std::runtime_error("the first line does not say what the bits were recorded with");
  }
  record.toolchain.erase(0, std::string(kFirstLine).size());
  BitsLine line;
  while (in >> line.name >> line.hash) record.lines.push_back(line);
  return record;
}

std::string format_bits(const BitsRecord& record) {
  std::string text = kFirstLine + record.toolchain + "\n";
  for (const BitsLine& line : record.lines) text += line.name + " " + line.hash + "\n";
  return text;
}

std::string toolchain() {
#if defined(__clang__)
  std::string words = "Clang " + std::to_string(__clang_major__);
#elif defined(__GNUC__)
  std::string words = "GNU " + std::to_string(__GNUC__);
#else
  std::string words = "another compiler";
#endif
#if defined(__GLIBC__)
  words += std::string(", glibc ") + gnu_get_libc_version();
#endif
  return words;
}

std::string bits_differences(const std::vector<BitsLine>& expected,
                             const std::vector<BitsLine>& found) {
  std::vector<std::string> wrong;
  std::map<std::string, std::string> hashes;
  for (const BitsLine& line : found) hashes[line.name] = line.hash;
  std::set<std::string> known;
  for (const BitsLine& line : expected) {
    known.insert(line.name);
    const auto at = hashes.find(line.name);
    if (at == hashes.end()) {
      wrong.push_back(line.name + ": is missing");
    } else if (at->second != line.hash) {
      wrong.push_back(line.name + ": recorded " + line.hash + ", found " + at->second);
    }
  }
  for (const BitsLine& line : found) {
    if (!known.contains(line.name)) wrong.push_back(line.name + ": is not recorded");
  }
  if (wrong.empty()) return "";
  constexpr std::size_t kMost = 20;
  std::string text =
      std::to_string(wrong.size()) + " of " + std::to_string(expected.size()) + " lines differ\n";
  for (std::size_t k = 0; k < std::min(kMost, wrong.size()); ++k) text += wrong[k] + "\n";
  if (wrong.size() > kMost) text += "…\n";
  return text;
}

}  // namespace cephalo::testing
