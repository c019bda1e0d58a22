// Which tables there are: products by the types of operand and sum, for each instruction set.
#include <algorithm>

#include "tests/kernels/kernel_test.h"

namespace cephalo::kernels::testing {
namespace {

constexpr Isa kEveryIsa[] = {Isa::scalar, Isa::sse4, Isa::avx2, Isa::avx512, Isa::neon, Isa::wasm};
static_assert(std::size(kEveryIsa) == kIsaCount);

bool runs_here(Isa isa) {
  const std::vector<Isa>& isas = available_isas();
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

template <typename In, typename Sum>
void expect_tables_where_multiplied() {
  for (const Isa isa : kEveryIsa) {
    const bool there = runs_here(isa) && multiplies(isa, DTypeOf<In>::value);
    EXPECT_EQ((attend_kernels<In, Sum>(isa) != nullptr), there) << name(isa);
    EXPECT_EQ((backward_kernels<In, Sum>(isa) != nullptr), there) << name(isa);
    EXPECT_EQ((second_kernels<In, Sum>(isa) != nullptr), there) << name(isa);
    EXPECT_EQ((gemm_kernels<In, Sum>(isa) != nullptr), there) << name(isa);
  }
}

TEST(TablesTest, products_have_a_table_exactly_where_their_operands_are_multiplied) {
  expect_tables_where_multiplied<float, float>();
  expect_tables_where_multiplied<double, double>();
  expect_tables_where_multiplied<BFloat16, float>();
}

TEST(TablesTest, the_instruction_set_of_an_operand_has_its_tables) {
  const Isa before = current_isa();
  for (const Isa isa : available_isas()) {
    force_isa(isa);
    EXPECT_NE((attend_kernels<float, float>(isa_for<float>())), nullptr) << name(isa);
    EXPECT_NE((attend_kernels<double, double>(isa_for<double>())), nullptr) << name(isa);
  }
  force_isa(before);
}

// Callers that find no table widen to float32, where there always is one.
TEST(TablesTest, bfloat16_has_no_multiply_of_its_own_yet) {
  for (const Isa isa : available_isas()) {
    EXPECT_EQ((attend_kernels<BFloat16, float>(isa)), nullptr) << name(isa);
    EXPECT_EQ((backward_kernels<BFloat16, float>(isa)), nullptr) << name(isa);
    EXPECT_EQ((second_kernels<BFloat16, float>(isa)), nullptr) << name(isa);
    EXPECT_EQ((gemm_kernels<BFloat16, float>(isa)), nullptr) << name(isa);
  }
  EXPECT_EQ(isa_for<BFloat16>(), isa_for<float>());
}

TEST(TablesTest, one_register_tile_serves_attention_and_gemm) {
  for (const Isa isa : available_isas()) {
    EXPECT_EQ((attend_kernels<float, float>(isa)->rows), (gemm_kernels<float, float>(isa)->rows));
    EXPECT_EQ((attend_kernels<float, float>(isa)->lanes), (gemm_kernels<float, float>(isa)->lanes));
  }
}

}  // namespace
}  // namespace cephalo::kernels::testing
