// The one description of a model's parameters, and what other people's files call them.
#include "cephalo/model/parameter_list.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cephalo/model/families.h"
#include "cephalo/model/file_names.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_config.h"
#include "cephalo/model/gpt_file.h"
#include "cephalo/model/gpt_options_json.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::tiny_options;
using Names = std::vector<std::string>;

// One of each choice that changes what there is to learn.
std::vector<GptOptions> many_options() {
  std::vector<GptOptions> all(5, tiny_options());
  all[1].positions = PositionKind::rotary;
  all[2].tied_head = false;
  all[3].qkv_bias = false;
  all[4].num_kv_heads = 1;
  return all;
}

TEST(ParameterListTest, lists_the_parameters_that_a_model_has_in_their_order) {
  for (const GptOptions& options : many_options()) {
    const ParameterList list = parameter_list(options);
    const Gpt model(options);
    const std::vector<GptParameter> made = model.parameters();
    ASSERT_EQ(list.size(), std::ssize(made));
    dim_t numbers = 0;
    std::size_t k = 0;
    std::set<std::string> names;
    for (const ParameterInfo& p : list) {
      EXPECT_EQ(p.name, made[k].name);
      EXPECT_EQ(p.kind, made[k].kind) << p.name;
      EXPECT_EQ(p.shape, made[k].value.shape()) << p.name;
      numbers += numel(p.shape);
      names.insert(p.name);
      ++k;
    }
    EXPECT_EQ(names.size(), made.size());
    EXPECT_EQ(list.count(), numbers);
    EXPECT_EQ(parameter_count(options), numbers);
    EXPECT_EQ(model.parameter_count(), numbers);
  }
}

TEST(ParameterListTest, names_kinds_and_shapes_of_a_block) {
  GptOptions options = tiny_options();
  options.num_kv_heads = 1;  // heads of 4 numbers: q has 8, k and v have 4
  const ParameterList list = parameter_list(options);
  Names block;
  for (dim_t k = 14; k < 26; ++k) {
    const ParameterInfo p = list[k];
    EXPECT_EQ(p.layer, 1);
    const char* kinds[] = {"matrix", "bias", "norm", "embedding"};
    block.push_back(p.name + " " + kinds[static_cast<int>(p.kind)] + " " + to_string(p.shape));
  }
  EXPECT_EQ(
      block,
      (Names{"transformer.h.1.ln_1.weight norm [8]", "transformer.h.1.ln_1.bias norm [8]",
             "transformer.h.1.attn.c_attn.weight matrix [16, 8]",
             "transformer.h.1.attn.c_attn.bias bias [16]",
             "transformer.h.1.attn.c_proj.weight matrix [8, 8]",
             "transformer.h.1.attn.c_proj.bias bias [8]", "transformer.h.1.ln_2.weight norm [8]",
             "transformer.h.1.ln_2.bias norm [8]", "transformer.h.1.mlp.c_fc.weight matrix [12, 8]",
             "transformer.h.1.mlp.c_fc.bias bias [12]",
             "transformer.h.1.mlp.c_proj.weight matrix [8, 12]",
             "transformer.h.1.mlp.c_proj.bias bias [8]"}));
  EXPECT_EQ(list[0].name, "transformer.wte.weight");
  EXPECT_EQ(list[1].name, "transformer.wpe.weight");
  EXPECT_EQ(list[list.size() - 1].name, "transformer.ln_f.bias");
}

TEST(ParameterListTest, any_number_of_layers_is_described_without_making_a_list) {
  GptOptions options = tiny_options();
  options.num_layers = 2'000'000'000;
  const ParameterList list = parameter_list(options);
  EXPECT_EQ(list.size(), 2 + 12 * options.num_layers + 2);
  EXPECT_EQ(list[list.size() - 3].name, "transformer.h.1999999999.mlp.c_proj.bias");
  GptOptions one = options;
  GptOptions two = options;
  one.num_layers = 1;
  two.num_layers = 2;
  const dim_t block = parameter_count(two) - parameter_count(one);
  EXPECT_EQ(list.count(), parameter_count(one) + (options.num_layers - 1) * block);
}

TEST(FileNamesTest, the_book_has_a_name_each_for_queries_keys_and_values) {
  GptOptions options = tiny_options();
  options.num_kv_heads = 1;
  const ParameterInfo qkv = parameter_list(options)[4];
  ASSERT_EQ(qkv.part, ModelPart::qkv_proj);
  const FilePlace book = place_in(kBookNames, qkv);
  EXPECT_EQ(book.names, (Names{"trf_blocks.0.att.W_query.weight", "trf_blocks.0.att.W_key.weight",
                               "trf_blocks.0.att.W_value.weight"}));
  EXPECT_EQ(book.rows, (std::vector<dim_t>{8, 4, 4}));
  EXPECT_FALSE(book.transposed);
  const FilePlace gpt2 = place_in(kBareGpt2Names, qkv);
  EXPECT_EQ(gpt2.names, (Names{"h.0.attn.c_attn.weight"}));
  EXPECT_EQ(gpt2.rows, (std::vector<dim_t>{16}));
  EXPECT_TRUE(gpt2.transposed);
}

TEST(FileNamesTest, no_two_parameters_share_a_name_in_any_file) {
  for (const GptOptions& options : many_options()) {
    for (const FileNames* names : all_file_names()) {
      std::set<std::string> seen;
      for (const ParameterInfo& p : parameter_list(options)) {
        for (const std::string& name : place_in(*names, p).names) {
          EXPECT_TRUE(seen.insert(name).second) << name;
          EXPECT_FALSE(is_buffer(name)) << name;
        }
      }
    }
  }
  EXPECT_EQ(file_name(kBookNames, ModelPart::last_norm, 0, true), "final_norm.shift");
  EXPECT_EQ(file_name(kGpt2Names, ModelPart::head), "lm_head.weight");
}

TEST(FamiliesTest, a_model_is_a_gpt_2_where_a_gpt_2_can_say_all_of_it) {
  const char* expected[] = {"gpt2", "cephalo", "gpt2", "cephalo", "cephalo"};
  const std::vector<GptOptions> all = many_options();
  for (std::size_t k = 0; k < all.size(); ++k) {
    const GptOptions checked = checked_options(all[k], "test");
    EXPECT_STREQ(family_of(checked).model_type, expected[k]) << k;
  }
}

// What config.json cannot say is not lost: the next family says it.
TEST(FamiliesTest, config_json_of_every_family_says_every_option) {
  std::set<std::string> seen;
  for (const GptOptions& options : many_options()) {
    const GptOptions checked = checked_options(options, "test");
    seen.insert(family_of(checked).model_type);
    const std::string json = gpt_config_json({checked, {}, {}, false, {}}, DType::f32);
    GptOptions read = checked_options(parse_gpt_config(json, "config.json").options, "test");
    EXPECT_EQ(gpt_config_json({read, {}, {}, false, {}}, DType::f32), json);
    read.seed = checked.seed;  // not a file's to say
    EXPECT_EQ(to_json(read).dump(), to_json(checked).dump()) << json;
  }
  EXPECT_EQ(seen.size(), families().size());
}

TEST(FamiliesTest, a_folder_of_every_family_comes_back) {
  for (const GptOptions& options : many_options()) {
    const Gpt model(options);
    const testing::Folder folder;
    save_gpt(model, folder / "m");
    const Gpt loaded = load_gpt(folder / "m").model;
    const std::vector<GptParameter> ours = model.parameters();
    const std::vector<GptParameter> theirs = loaded.parameters();
    ASSERT_EQ(theirs.size(), ours.size());
    for (std::size_t k = 0; k < ours.size(); ++k) {
      EXPECT_TRUE(testing::same_bits(theirs[k].value, ours[k].value)) << ours[k].name;
    }
    const Tensor ids = Tensor::of({1, 7, 0, 10}, DType::i64);
    EXPECT_TRUE(testing::same_bits(loaded(ids), model(ids)));
  }
}

}  // namespace
}  // namespace cephalo
