#include "cephalo/mask/mask_text.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

std::string refusal_of(const std::string& text) {
  return error_of([&] { static_cast<void>(parse_mask(text)); });
}

TEST(MaskTextTest, what_a_mask_prints_is_that_mask) {
  for (const Mask& mask :
       {Mask(), causal(), causal(3), causal({2, 0, 5}), window(127, 0), window(3, unlimited),
        positions(Align::top_left, -2) & causal(), lengths({3, 4}), lengths({3, 4}, {1, 2}),
        alibi(alibi_slopes(12)), causal() & window(7, 1) & lengths({5}) & alibi({0.1F, 1e-6F})}) {
    const std::string text = mask.to_string();
    const Mask read = parse_mask(text);
    EXPECT_EQ(read.to_string(), text);
    EXPECT_EQ(read.alibi, mask.alibi) << text;  // every bit of a slope
    EXPECT_EQ(read.causal_prefix, mask.causal_prefix) << text;
    EXPECT_EQ(read.positions, mask.positions) << text;
  }
}

TEST(MaskTextTest, words_may_be_quoted_and_spaced_as_one_likes) {
  EXPECT_EQ(parse_mask("  causal( )&window( 1,unlimited )").to_string(),
            "causal() & window(1, unlimited)");
  EXPECT_EQ(parse_mask("positions(\"top_left\")").to_string(), "positions(top_left, 0)");
}

TEST(MaskTextTest, tensors_have_names) {
  const Mask mask = parse_mask("keep(\"pairs\") & documents('ids')", [](const std::string& name) {
    return name == "ids" ? Tensor::of({0, 0, 1}, DType::i64)
                         : Tensor::zeros({3, 3}, DType::boolean);
  });
  EXPECT_EQ(mask.to_string(), "documents([1, 3]) & keep([3, 3])");
  ASSERT_EQ(mask.tensors.size(), 1U);
  EXPECT_NE(mask.tensors[0].owner, nullptr);  // nothing is borrowed from the source
  EXPECT_EQ(refusal_of("bias(\"b\")"), "mask: bias(\"b\"): no tensors were given");
  EXPECT_EQ(refusal_of("keep([4, 4])"), "mask: argument 1 of keep() must be a \"string\"");
}

TEST(MaskTextTest, a_text_that_is_not_a_mask_says_where) {
  EXPECT_EQ(refusal_of(""), "mask: expected the name of a mask part at character 1 of ''");
  EXPECT_EQ(refusal_of("causal() window(1, 1)"),
            "mask: expected '&' or the end at character 10 of 'causal() window(1, 1)'");
  EXPECT_EQ(refusal_of("window(1e300, 0)"), "mask: argument 1 of window() must be a whole number");
  EXPECT_EQ(refusal_of("positions(left)"), "mask: positions() takes bottom_right or top_left");
  EXPECT_EQ(refusal_of("window(-1, 0)"),
            "window: left (-1) and right (0) must be >= 0; use unlimited for no bound");
  EXPECT_THROW(static_cast<void>(parse_mask("causal(")), MaskTextError);
}

}  // namespace
}  // namespace cephalo
