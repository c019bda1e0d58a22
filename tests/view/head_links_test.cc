#include "cephalo/view/head_links.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

// a b c a b d a: rows 3, 4 and 6 have seen their token before.
const std::vector<std::int64_t> kIds = {1, 2, 3, 1, 2, 4, 1};

std::set<std::pair<dim_t, dim_t>> pairs(const std::vector<Link>& links) {
  std::set<std::pair<dim_t, dim_t>> found;
  for (const Link& link : links) found.insert({link.query, link.key});
  return found;
}

TEST(HeadLinksTest, links_of_a_label_are_those_that_its_score_counts) {
  const Gpt model(testing::tiny_options());
  const Recording recording(model, kIds);
  const auto links = [&](HeadLabel label) { return counted_links(recording, {0, 1}, label, 100); };
  using Pairs = std::set<std::pair<dim_t, dim_t>>;
  EXPECT_EQ(pairs(links(HeadLabel::previous)),
            (Pairs{{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}, {6, 5}}));
  EXPECT_EQ(pairs(links(HeadLabel::sink)), (Pairs{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}}));
  EXPECT_EQ(pairs(links(HeadLabel::current)),
            (Pairs{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}}));
  EXPECT_TRUE(links(HeadLabel::diffuse).empty());
  // Row 6 has two such keys: the stronger one stands for it.
  const Tensor weights = recording.weights(0, {.heads = {1}});
  const auto stronger = [&](dim_t i, dim_t a, dim_t b) {
    return weights.at({0, i, a}) >= weights.at({0, i, b}) ? a : b;
  };
  EXPECT_EQ(pairs(links(HeadLabel::duplicate)), (Pairs{{3, 0}, {4, 1}, {6, stronger(6, 0, 3)}}));
  EXPECT_EQ(pairs(links(HeadLabel::induction)), (Pairs{{3, 1}, {4, 2}, {6, stronger(6, 1, 4)}}));
  for (const Link& link : links(HeadLabel::induction)) {
    EXPECT_NEAR(link.weight, weights.at({0, link.query, link.key}), 1e-6);
  }
  EXPECT_EQ(counted_links(recording, {0, 1}, HeadLabel::sink, 2).size(), 2U);
}

HeadReport report(dim_t head, double probe, const Score& here) {
  HeadReport report{3, head, {}, {}, {{HeadLabel::induction, probe}}};
  report.text.induction = here;
  return report;
}

TEST(HeadLinksTest, the_head_to_show_is_the_clearest_on_this_text_not_on_the_probe) {
  const std::vector<HeadReport> reports = {report(2, 0.63, {0.11, 8, 0.1}),
                                           report(0, 0.50, {0.33, 8, 0.1}),
                                           report(1, 0.55, {0.19, 8, 0.1})};
  const auto examples = label_examples(reports, HeadLabel::induction);
  ASSERT_EQ(examples.size(), 3U);
  EXPECT_EQ(examples[0].head, &reports[1]);
  EXPECT_EQ(examples[0].label_score, 0.50);
  EXPECT_TRUE(examples[0].used);
  EXPECT_EQ(examples[1].head, &reports[2]);
  EXPECT_FALSE(examples[1].used) << "0.19 is too little";
  EXPECT_TRUE(label_examples(reports, HeadLabel::duplicate).empty());
}

TEST(HeadLinksTest, where_nothing_repeats_the_probe_decides_and_nothing_is_used) {
  const std::vector<HeadReport> reports = {report(0, 0.50, {}), report(2, 0.63, {})};
  const auto examples = label_examples(reports, HeadLabel::induction);
  EXPECT_EQ(examples[0].head, &reports[1]);
  EXPECT_FALSE(examples[0].used);
}

}  // namespace
}  // namespace cephalo
