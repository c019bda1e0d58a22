// "Bits stay equal": everything that the library computes, hashed, against what was recorded on
// this instruction set: tests/bits/{avx512,avx2,scalar}.txt.
//
// A change that is meant to change bits says so in its commit and records anew, once for each set:
//     CEPHALO_WRITE_BITS=1 CEPHALO_ISA=avx2 build/release/tests/bits_tests
// Compilers and C libraries round differently; with others than the file's the test is skipped.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "cephalo/core/cpu.h"
#include "cephalo/model/builtin.h"
#include "tests/bits/bits.h"
#include "tests/support/files.h"

namespace cephalo {
namespace {

using testing::Bits;
using testing::bits_differences;
using testing::BitsLine;
using testing::BitsRecord;
using testing::toolchain;

std::vector<BitsLine> compute() {
  Bits bits;
  testing::add_attend_bits(bits);
  testing::add_cache_bits(bits);
  testing::add_backward_bits(bits);
  testing::add_layer_bits(bits);
  testing::add_model_bits(bits);
  testing::add_training_bits(bits);
  if (has_builtin_model()) testing::add_builtin_bits(bits);
  return bits.lines();
}

TEST(BitsTest, results_are_the_recorded_ones_bit_for_bit) {
  const std::string isa = name(current_isa());
  const std::string path = std::string(CEPHALO_SOURCE_DIR) + "/tests/bits/" + isa + ".txt";
  if (std::getenv("CEPHALO_WRITE_BITS") != nullptr) {
    testing::write_bytes(path, testing::format_bits({toolchain(), compute()}));
    GTEST_SKIP() << "wrote " << path;
  }
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no bits were recorded for " << isa;
  BitsRecord record = testing::parse_bits(testing::read_bytes(path));
  if (record.toolchain != toolchain()) {
    GTEST_SKIP() << "recorded with " << record.toolchain << "; this is " << toolchain()
                 << ", which may round differently";
  }
  if (!has_builtin_model()) {
    std::erase_if(record.lines, [](const BitsLine& l) { return l.name.starts_with("builtin/"); });
  }
  const std::string differences = bits_differences(record.lines, compute());
  EXPECT_TRUE(differences.empty()) << differences;
}

TEST(BitsFileTest, a_line_that_differs_is_missing_or_new_is_named) {
  const std::vector<BitsLine> recorded{{"a", "1"}, {"b", "2"}, {"c", "3"}};
  EXPECT_EQ(bits_differences(recorded, recorded), "");
  EXPECT_EQ(bits_differences(recorded, {{"a", "1"}, {"b", "9"}, {"d", "3"}}),
            "3 of 3 lines differ\nb: recorded 2, found 9\nc: is missing\nd: is not recorded\n");
  std::vector<BitsLine> many;
  for (int k = 0; k < 30; ++k) many.push_back({"n" + std::to_string(k), "0"});
  const std::string differences = bits_differences(many, {});
  EXPECT_TRUE(differences.starts_with("30 of 30 lines differ\nn0: is missing\n"));
  EXPECT_NE(differences.find("n19: is missing\n…\n"), std::string::npos);
}

TEST(BitsFileTest, one_bit_an_order_a_shape_or_a_type_makes_another_hash) {
  const auto hash = [](const auto&... values) {
    Bits bits;
    bits.add("x", values...);
    return bits.lines().front().hash;
  };
  const Tensor one = Tensor::of({1, 2});
  EXPECT_EQ(hash(one), hash(Tensor::of({1, 2})));
  EXPECT_NE(hash(one), hash(Tensor::of({1, 2.0000002})));
  EXPECT_NE(hash(one), hash(Tensor::of({2, 1})));
  EXPECT_NE(hash(one), hash(Tensor::of({{1, 2}})));
  EXPECT_NE(hash(one), hash(Tensor::of({1, 2}, DType::f64)));
  EXPECT_NE(hash(0.0), hash(-0.0));
}

TEST(BitsFileTest, reads_what_it_writes) {
  const BitsRecord record{"GNU 12, glibc 2.36", {{"attend/causal", "00ff"}, {"gpt/logits", "12"}}};
  const BitsRecord back = testing::parse_bits(testing::format_bits(record));
  EXPECT_EQ(back.toolchain, record.toolchain);
  ASSERT_EQ(back.lines.size(), 2U);
  EXPECT_EQ(bits_differences(record.lines, back.lines), "");
}

}  // namespace
}  // namespace cephalo
