#include "cephalo/effects/site.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::tiny_options;

GptOptions learned() {
  return tiny_options();
}

GptOptions rotary() {
  GptOptions o = tiny_options();
  o.positions = PositionKind::rotary;
  return o;
}

TEST(SiteTest, sites_stand_in_the_order_of_their_enumeration) {
  for (std::size_t i = 0; i < sites().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(sites()[i].site), i);
  }
  EXPECT_EQ(sites().back().site, Site::logits);
}

TEST(SiteTest, every_name_means_its_site_and_is_written_back) {
  std::set<std::string> names;
  for (const SiteInfo& info : sites()) {
    const bool in_layer = std::string(info.name).find("{}") != std::string::npos;
    for (const bool theirs : {false, true}) {
      if (theirs && *info.transformer_lens == '\0') continue;
      const LayerSite site{info.site, in_layer ? 1 : 0, theirs};
      const std::string name = name_of(site);
      EXPECT_EQ(parse_site(name, learned()), site) << name;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
  EXPECT_EQ(names.size(), 2 * sites().size() - 1);
}

TEST(SiteTest, names_of_transformer_lens_put_tokens_before_heads) {
  for (const char* name : {"q", "k", "v", "z", "rot_q", "rot_k", "result"}) {
    const LayerSite site = parse_site("blocks.0.attn.hook_" + std::string(name), learned());
    EXPECT_TRUE(tokens_first(site)) << name;
    EXPECT_FALSE(tokens_first({site.site, site.layer, false})) << name;
  }
  for (const char* name : {"blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern",
                           "blocks.0.hook_resid_pre", "ln_final.hook_scale"}) {
    EXPECT_FALSE(tokens_first(parse_site(name, learned()))) << name;
  }
}

TEST(SiteTest, A16_a_misspelt_name_gets_the_nearest_one) {
  EXPECT_EQ(error_of([] { parse_site("layer.1.resid_pres", learned()); }),
            "no activation is called \"layer.1.resid_pres\"; did you mean "
            "\"layer.1.resid_pre\"?");
  EXPECT_EQ(error_of([] { parse_site("blocks.1.hook_patern", learned()); }),
            "no activation is called \"blocks.1.hook_patern\"; did you mean "
            "\"blocks.1.attn.hook_pattern\"?");
  EXPECT_EQ(error_of([] { parse_site("layer.{}.q", learned()); }),
            "no activation is called \"layer.{}.q\"; did you mean \"layer.0.q\"?");
  EXPECT_EQ(error_of([] { parse_site("layer.01.q", learned()); }),
            "no activation is called \"layer.01.q\"; did you mean \"layer.0.q\"?");
  EXPECT_EQ(error_of([] { parse_site("", learned()); }),
            "no activation is called \"\"; names are like \"layer.0.resid_pre\" and "
            "\"blocks.0.hook_resid_pre\"");
}

TEST(SiteTest, A16_a_layer_that_is_not_there_is_said) {
  EXPECT_EQ(error_of([] { parse_site("layer.2.weights", learned()); }),
            "\"layer.2.weights\": the model has layers 0 to 1");
  EXPECT_NE(error_of([] {
              parse_site("layer.99999999999999999999.weights", learned());
            }).find("did you mean"),
            std::string::npos);
}

TEST(SiteTest, rotary_models_have_no_position_embedding) {
  EXPECT_EQ(parse_site("position_embedding", learned()).site, Site::position_embedding);
  for (const char* name : {"position_embedding", "hook_pos_embed"}) {
    EXPECT_NE(error_of([&] { parse_site(name, rotary()); }).find("rotary"), std::string::npos);
  }
}

std::string shape_text(SiteAxes axes) {
  switch (axes) {
    case SiteAxes::model:
      return "[batch, tokens, d_model]";
    case SiteAxes::one:
      return "[batch, tokens, 1]";
    case SiteAxes::hidden:
      return "[batch, tokens, d_mlp]";
    case SiteAxes::heads:
      return "[batch, num_heads, tokens, head_dim]";
    case SiteAxes::kv_heads:
      return "[batch, num_kv_heads, tokens, head_dim]";
    case SiteAxes::heads_to_model:
      return "[batch, num_heads, tokens, d_model]";
    case SiteAxes::pairs:
      return "[batch, num_heads, tokens, tokens]";
    case SiteAxes::vocab:
      return "[batch, tokens, vocab_size]";
  }
  return "";
}

// "| `layer.L.q` | `blocks.L.attn.hook_q` | [batch, …] |", as the page has it
std::string row_of(const SiteInfo& info) {
  const auto named = [](std::string name) {
    const std::size_t at = name.find("{}");
    if (at != std::string::npos) name.replace(at, 2, "L");
    return name.empty() ? std::string("—") : "`" + name + "`";
  };
  return "| " + named(info.name) + " | " + named(info.transformer_lens) + " | " +
         shape_text(info.axes) + " | ";
}

TEST(SiteTest, the_page_lists_every_site_in_order_with_its_shape) {
  std::ifstream page(CEPHALO_SOURCE_DIR "/docs/activations.md");
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) rows.push_back(line);
  }
  ASSERT_EQ(rows.size(), sites().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string begin = row_of(sites()[i]);
    EXPECT_TRUE(rows[i].starts_with(begin)) << rows[i] << "\nshould begin\n" << begin;
    EXPECT_GT(rows[i].size(), begin.size() + 10) << rows[i] << ": says what it is";
  }
}

}  // namespace
}  // namespace cephalo
