#include "cephalo/view/opening_head.h"

#include <gtest/gtest.h>

namespace cephalo {
namespace {

HeadReport labelled(dim_t head, std::vector<LabelScore> labels) {
  return {0, head, {}, {}, std::move(labels)};
}

// Four tokens; head h gives weights[h] to the third, "cat", which is likeliest to come next.
OpeningText text_with(std::vector<double> weights) {
  return {{"<|endoftext|>", "The", " cat", " the"},
          " cat",
          [weights = std::move(weights)](const HeadPlace& place) {
            Tensor row = Tensor::zeros({4}, DType::f64);
            row.mutable_data_as<double>()[2] = weights.at(static_cast<std::size_t>(place.head));
            return row;
          }};
}

TEST(OpeningHead, is_the_one_whose_last_token_looks_at_what_comes_next) {
  const std::vector<HeadReport> heads = {labelled(0, {{HeadLabel::previous, 0.9}}),
                                         labelled(1, {{HeadLabel::induction, 0.5}}),
                                         labelled(2, {{HeadLabel::induction, 0.7}})};
  EXPECT_EQ(opening_head(heads, text_with({0.1, 0.6, 0.4})).head, 1);
}

TEST(OpeningHead, needs_a_label) {
  const std::vector<HeadReport> heads = {labelled(0, {{HeadLabel::sink, 0.6}}), labelled(1, {})};
  EXPECT_EQ(opening_head(heads, text_with({0.0, 0.9})).head, 0);
}

TEST(OpeningHead, is_else_the_clearest_previous_token_head) {
  const std::vector<HeadReport> heads = {labelled(0, {{HeadLabel::sink, 0.95}}),
                                         labelled(1, {{HeadLabel::previous, 0.5}}),
                                         labelled(2, {{HeadLabel::previous, 0.8}})};
  EXPECT_EQ(opening_head(heads, text_with({0.29, 0.0, 0.0})).head, 2);
}

TEST(OpeningHead, is_else_the_one_with_the_highest_score) {
  const std::vector<HeadReport> heads = {labelled(0, {}), labelled(1, {{HeadLabel::sink, 0.6}}),
                                         labelled(2, {{HeadLabel::diffuse, 0.95}})};
  EXPECT_EQ(opening_head(heads, text_with({0.0, 0.0, 0.0})).head, 2);
  EXPECT_EQ(opening_head({labelled(0, {}), labelled(1, {})}, text_with({0.0, 0.0})).head, 0);
}

TEST(OpeningHead, rather_looks_for_something_than_rests) {
  const std::vector<HeadReport> heads = {labelled(0, {{HeadLabel::sink, 0.9}}),
                                         labelled(1, {{HeadLabel::induction, 0.5}}),
                                         labelled(2, {{HeadLabel::diffuse, 0.95}})};
  EXPECT_EQ(opening_head(heads, text_with({0.0, 0.0, 0.0})).head, 1);
}

TEST(Headline, says_induction_before_sink) {
  EXPECT_STREQ(headline(labelled(0, {{HeadLabel::induction, 0.5}, {HeadLabel::sink, 0.9}})),
               "Looks at what followed this token last time");
  EXPECT_STREQ(headline(labelled(0, {})), "No simple pattern");
}

}  // namespace
}  // namespace cephalo
