#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/io/checksum.h"

namespace cephalo::testing {

// The bits of everything that is added, in that order, with shapes and element types.
class Digest {
 public:
  Digest() : sum_(std::make_unique<Checksum>()) {}

  Digest& add(const TensorView& t);
  Digest& add(double value);
  Digest& add(const std::vector<std::int64_t>& ids);
  std::string hex() const;  // 16 digits

 private:
  std::unique_ptr<Checksum> sum_;
};

struct BitsLine {
  std::string name;  // "attend/float32/fused/causal/h4:2/97x257x40"; no spaces
  std::string hash;
};

// What one run computes: named hashes, in the order in which they came.
class Bits {
 public:
  template <typename... Values>
  void add(const std::string& name, const Values&... values) {
    Digest digest;
    (digest.add(values), ...);
    add_digest(name, digest);
  }
  void add_digest(const std::string& name, const Digest& digest);

  // 1 and 2 in turn, line by line: results must not depend on it.
  int threads() const { return 1 + static_cast<int>(lines_.size() % 2); }
  const std::vector<BitsLine>& lines() const { return lines_; }

 private:
  std::vector<BitsLine> lines_;
};

// The parts of the library, each in a file of its own.
void add_attend_bits(Bits& bits);
void add_cache_bits(Bits& bits);
void add_backward_bits(Bits& bits);
void add_layer_bits(Bits& bits);
void add_model_bits(Bits& bits);
void add_training_bits(Bits& bits);
void add_builtin_bits(Bits& bits);

// A file of recorded lines; the first says what they were recorded with.
struct BitsRecord {
  std::string toolchain;
  std::vector<BitsLine> lines;
};
BitsRecord parse_bits(const std::string& text);
std::string format_bits(const BitsRecord& record);

// Compiler and C library of this build: "GNU 12, glibc 2.36".
std::string toolchain();

// Which lines differ, are missing or are new, for a person to read: the first 20 and how many.
// Empty when all are equal.
std::string bits_differences(const std::vector<BitsLine>& expected,
                             const std::vector<BitsLine>& found);

}  // namespace cephalo::testing
