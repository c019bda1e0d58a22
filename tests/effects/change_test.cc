#include "cephalo/effects/change.h"

#include <gtest/gtest.h>

#include "tests/effects/plain_gpt.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::lively_options;

const GptOptions kModel = lively_options(PositionKind::learned, DType::f32);

TEST(ChangeTest, what_is_written_is_read_back) {
  for (const char* text :
       {"L2H3", "L1", "L0.attention", "L2.mlp", "L2H0:12>4", "L1.stream", "L1.stream:7"}) {
    const Changes changes = parse_changes(text, ChangeKind::scale, 0.5);
    ASSERT_EQ(changes.size(), 1U) << text;
    EXPECT_EQ(to_string(changes.front()), text);
    EXPECT_EQ(changes.front().kind, ChangeKind::scale);
    EXPECT_EQ(changes.front().factor, 0.5);
  }
  const Changes several = parse_changes("L0H1, L2H3:9>8", ChangeKind::zero);
  ASSERT_EQ(several.size(), 2U);
  EXPECT_EQ(several[0], (Change{.layer = 0, .head = 1}));
  EXPECT_EQ(several[1].section, ModelSection::edge);
  EXPECT_EQ(several[1].kind, ChangeKind::hide) << "an edge's own default";
  EXPECT_EQ(several[1].query, 9);
  EXPECT_EQ(several[1].key, 8);
}

TEST(ChangeTest, A15_what_names_no_part_is_an_error_that_shows_the_form) {
  for (const char* text : {"", "L", "H2", "L2H", "L2H3:", "L2H3:4", "L2H3:4>", "L-1", "L2H-1",
                           "L2.attn", "L2H3,", "l2h3", "L2 H3", "L99999999999999999999"}) {
    const std::string error = error_of([&] { parse_changes(text, ChangeKind::zero); });
    EXPECT_NE(error.find("L3H2 (a head)"), std::string::npos) << text << ": " << error;
  }
}

TEST(ChangeTest, kinds_have_words) {
  for (const ChangeKind kind : {ChangeKind::zero, ChangeKind::mean, ChangeKind::reference_mean,
                                ChangeKind::uniform, ChangeKind::no_first, ChangeKind::patch,
                                ChangeKind::scale, ChangeKind::hide, ChangeKind::cut}) {
    EXPECT_EQ(parse_change_kind(name(kind)), kind);
  }
  EXPECT_EQ(
      error_of([] { parse_change_kind("average"); }),
      "there is no kind of change \"average\"; there are zero, mean, reference-mean, uniform, "
      "no-first, patch, scale, hide, cut");
}

std::string refusal(const std::string& text, ChangeKind kind) {
  return error_of([&] { check_changes(parse_changes(text, kind), kModel, 20); });
}

TEST(ChangeTest, A15_changes_that_cannot_be_made_are_refused_by_name) {
  EXPECT_EQ(refusal("L3H0", ChangeKind::zero), "L3H0: there are layers 0 to 2");
  EXPECT_EQ(refusal("L2H4", ChangeKind::zero), "L2H4: a layer has heads 0 to 3");
  EXPECT_EQ(refusal("L2H3:20>4", ChangeKind::hide),
            "L2H3:20>4: query 20 is not among tokens 0 to 19");
  EXPECT_EQ(refusal("L2H3:4>5", ChangeKind::cut), "L2H3:4>5: query 4 sees keys 0 to 4, not 5");
  EXPECT_EQ(refusal("L2H3:0>0", ChangeKind::hide),
            "L2H3:0>0: query 0 sees itself alone, and nothing is left when that is hidden");
  EXPECT_EQ(refusal("L2H3:1>0,L2H3:1>1", ChangeKind::hide),
            "L2H3:1>0: all keys of query 1 are hidden, one must stay");
  EXPECT_EQ(refusal("L2.mlp", ChangeKind::mean),
            "L2.mlp: the MLP of a layer cannot be changed by mean");
  EXPECT_EQ(refusal("L2H3", ChangeKind::cut), "L2H3: a head cannot be changed by cut");
  EXPECT_EQ(refusal("L2H3:4>1", ChangeKind::scale), "L2H3:4>1: an edge cannot be changed by scale");
  EXPECT_EQ(refusal("L2.stream:20", ChangeKind::patch),
            "L2.stream:20: position 20 is not among tokens 0 to 19; -1 means all");
  EXPECT_EQ(refusal("L1H1,L0H1,L1H1", ChangeKind::zero),
            "L1H1 and L1H1 change the same thing in one run");
  EXPECT_EQ(refusal("L1H1,L1H1:4>1", ChangeKind::zero),
            "L1H1 and L1H1:4>1 change the same thing in one run");
  EXPECT_EQ(refusal("L1H1:4>1,L1H1:4>2,L1H1:5>1,L0H1,L1H2", ChangeKind::zero), "");
}

TEST(ChangeTest, sweeps_go_through_a_model_in_its_order) {
  const std::vector<Changes> heads = each_head(kModel, ChangeKind::mean);
  ASSERT_EQ(heads.size(), 12U);
  EXPECT_EQ(to_string(heads[5].front()), "L1H1");
  const std::vector<Changes> pairs = each_pair(kModel, ChangeKind::zero);
  ASSERT_EQ(pairs.size(), 66U);
  EXPECT_EQ(to_string(pairs.back()[0]) + to_string(pairs.back()[1]), "L2H2L2H3");
  const std::vector<Changes> edges = each_edge(kModel, 6, ChangeKind::cut);
  ASSERT_EQ(edges.size(), 3U * 4U * 7U);
  EXPECT_EQ(to_string(edges[7 * 5 + 3].front()), "L1H1:6>3");
  const std::vector<Changes> sections = each_section(kModel);
  ASSERT_EQ(sections.size(), 6U);
  EXPECT_EQ(to_string(sections[3].front()), "L1.mlp");
  for (const auto* sweep : {&heads, &pairs, &edges, &sections}) {
    for (const Changes& changes : *sweep) check_changes(changes, kModel, 7);
  }
}

}  // namespace
}  // namespace cephalo
