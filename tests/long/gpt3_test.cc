#include <gtest/gtest.h>
#include <sys/resource.h>

#include "cephalo/model/presets.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

TEST(Gpt3Test, its_layer_runs_on_8_tokens_in_4_gib) {
  MultiHeadAttentionOptions options = preset("gpt3");
  options.seed = 123;
  MultiHeadAttention layer(options);
  EXPECT_EQ(layer.parameter_count(), 603992064);
  const Tensor y = layer(testing::normal({1, 8, 12288}, 1));
  EXPECT_EQ(y.shape(), (Shape{1, 8, 12288}));
  EXPECT_TRUE(testing::all_finite(y));
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  const double gib = static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
  testing::report("gpt3 layer on 8 tokens: peak memory " + std::to_string(gib) + " GiB");
  EXPECT_LE(gib, 4.0);
}

TEST(PresetsTest, all_of_the_gpt2_family_run) {
  for (const char* name : {"gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"}) {
    MultiHeadAttentionOptions options = preset(name);
    options.seed = 123;
    MultiHeadAttention layer(options);
    EXPECT_EQ(layer.parameter_count(), parameter_count(options));
    EXPECT_TRUE(testing::all_finite(layer(testing::normal({1, 1024, options.d_in}, 1))));
  }
}

}  // namespace
}  // namespace cephalo
