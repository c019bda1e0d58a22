// The instruction set in use is told, and the environment can force it.
#include "cephalo/core/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

std::string names_of(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(name(isa));
  return names;
}

TEST(CpuTest, there_is_always_scalar_and_the_best_comes_last) {
  const std::vector<Isa>& isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::scalar);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
}

TEST(CpuTest, a_forced_instruction_set_is_the_one_in_use) {
  const Isa before = current_isa();
  for (const Isa isa : available_isas()) {
    force_isa(isa);
    EXPECT_EQ(current_isa(), isa);
  }
  force_isa(before);
}

TEST(CpuTest, each_type_of_numbers_has_an_instruction_set_that_multiplies_it) {
  const Isa before = current_isa();
  for (const Isa isa : available_isas()) {
    force_isa(isa);
    EXPECT_EQ(current_isa(DType::f32), isa);
    EXPECT_EQ(current_isa(DType::f64), multiplies(isa, DType::f64) ? isa : Isa::scalar);
    // Nothing multiplies these as they are: they widen to float32.
    for (const DType stored : {DType::bf16, DType::f16, DType::i64, DType::u8}) {
      EXPECT_FALSE(multiplies(isa, stored));
      EXPECT_EQ(current_isa(stored), current_isa(DType::f32));
    }
  }
  force_isa(before);
}

TEST(CpuTest, every_instruction_set_multiplies_float32_and_all_but_wasm_float64) {
  for (const Isa isa : available_isas()) {
    EXPECT_TRUE(multiplies(isa, DType::f32)) << name(isa);
    EXPECT_EQ(multiplies(isa, DType::f64), isa != Isa::wasm) << name(isa);
  }
}

TEST(CpuTest, one_that_the_machine_lacks_cannot_be_forced) {
  const Isa before = current_isa();
#if defined(__x86_64__)
  const Isa foreign = Isa::neon;
#else
  const Isa foreign = Isa::avx2;
#endif
  EXPECT_EQ(error_of([&] { force_isa(foreign); }),
            format_text("CEPHALO_ISA: {} cannot run here; available are {}", name(foreign),
                        names_of(available_isas())));
  EXPECT_EQ(current_isa(), before);
}

#if GTEST_HAS_DEATH_TEST
// A process of its own: the choice is made once. Its status is 0 for an answer, 1 for an error.
[[noreturn]] void answer_with(const char* wanted) {
  setenv("CEPHALO_ISA", wanted, 1);
  try {
    std::fprintf(stderr, "uses %s, %s for bfloat16\n", name(current_isa()),
                 name(current_isa(DType::bf16)));
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    std::exit(1);
  }
  std::exit(0);
}

struct CpuDeathTest : ::testing::Test {
  CpuDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(CpuDeathTest, the_environment_names_the_instruction_set) {
  for (const Isa isa : available_isas()) {
    EXPECT_EXIT(answer_with(name(isa)), ::testing::ExitedWithCode(0),
                std::string("uses ") + name(isa) + ", " + name(isa) + " for bfloat16");
  }
}

TEST_F(CpuDeathTest, an_empty_name_means_the_best) {
  EXPECT_EXIT(answer_with(""), ::testing::ExitedWithCode(0),
              std::string("uses ") + name(available_isas().back()));
}

TEST_F(CpuDeathTest, an_unknown_name_is_an_error_that_lists_what_there_is) {
  EXPECT_EXIT(answer_with("avx1024"), ::testing::ExitedWithCode(1),
              "error: CEPHALO_ISA: unknown instruction set 'avx1024'; available are " +
                  names_of(available_isas()));
  EXPECT_EXIT(answer_with("AVX2"), ::testing::ExitedWithCode(1), "unknown instruction set 'AVX2'");
}
#endif

}  // namespace
}  // namespace cephalo
