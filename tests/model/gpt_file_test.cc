// Folders of models: what is saved comes back, in either naming; rows K6 and K7 of bad ones.
#include "cephalo/model/gpt_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/views.h"
#include "cephalo/io/safetensors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::largest_difference;
using testing::read_bytes;
using testing::same_bits;
using testing::tiny_options;
using testing::write_bytes;

std::string golden_folder() {
  return std::string(CEPHALO_SOURCE_DIR) + "/tests/golden/gpt2";
}

const std::string& tiny_config() {
  static const std::string json = gpt_config_json({tiny_options(), {}, {}, false, {}}, DType::f32);
  return json;
}

void expect_same(const Gpt& a, const Gpt& b) {
  const auto left = a.parameters();
  const auto right = b.parameters();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t k = 0; k < left.size(); ++k) {
    EXPECT_EQ(left[k].name, right[k].name);
    EXPECT_TRUE(same_bits(left[k].value, right[k].value)) << left[k].name;
  }
}

TEST(GptFileTest, what_is_saved_comes_back) {
  for (const GptNames names : {GptNames::hugging_face, GptNames::book}) {
    for (const std::int64_t shard_bytes : {0, 1500}) {
      for (const bool ours : {false, true}) {
        GptOptions options = tiny_options();
        options.dropout = 0.25;
        if (ours) {
          options.positions = PositionKind::rotary;
          options.rotary = {.interleaved = true, .base = 5000.0};
          options.qkv_bias = false;
          options.tied_head = false;
          options.activation = Activation::gelu_erf;
        }
        const Gpt model(options);
        const Folder folder;
        save_gpt(model, folder / "m",
                 {.names = names,
                  .shard_bytes = shard_bytes,
                  .bos_token_id = 1,
                  .eos_token_id = 2,
                  .add_bos_token = true});
        const LoadedGpt loaded = load_gpt(folder / "m");
        expect_same(loaded.model, model);
        const GptOptions& found = loaded.model.options();
        EXPECT_EQ(found.dropout, 0.25);
        EXPECT_EQ(found.positions, options.positions);
        EXPECT_EQ(found.rotary.base, options.rotary.base);
        EXPECT_EQ(found.rotary.interleaved, options.rotary.interleaved);
        EXPECT_EQ(found.activation, options.activation);
        EXPECT_EQ(found.num_heads, 2);
        EXPECT_EQ(found.context_length, 9);
        EXPECT_EQ(loaded.config.bos_token_id, 1);
        EXPECT_EQ(loaded.config.eos_token_id, 2);
        EXPECT_TRUE(loaded.config.add_bos_token);
      }
    }
  }
}

// What a layer on its own computes, bit for bit; the file alone still knows it without its folder.
TEST(GptFileTest, a_layer_taken_out_of_the_file_computes_what_the_models_does) {
  GptOptions options = tiny_options();
  options.positions = PositionKind::rotary;
  options.rotary = {.interleaved = true, .base = 50.0};
  const Gpt model(options);
  const Tensor x = testing::normal({2, 7, 8}, 3);
  for (const GptNames names : {GptNames::hugging_face, GptNames::book}) {
    for (const std::int64_t shard_bytes : {0, 1500}) {
      const Folder folder;
      save_gpt(model, folder / "m", {.names = names, .shard_bytes = shard_bytes});
      const std::string file =
          folder / (shard_bytes > 0 ? "m/model.safetensors.index.json" : "m/model.safetensors");
      for (const std::string layer : {"0", "1"}) {
        const std::string prefix = names == GptNames::book ? "trf_blocks." + layer + ".att."
                                                           : "transformer.h." + layer + ".";
        const Tensor expected = model.attention(std::stoi(layer))(x, {.drop = false});
        EXPECT_TRUE(same_bits(load_layer(file, {.prefix = prefix})(x), expected)) << prefix;
        if (shard_bytes > 0) continue;
        write_bytes(folder / "alone.safetensors", read_bytes(file));
        EXPECT_TRUE(
            same_bits(load_layer(folder / "alone.safetensors", {.prefix = prefix})(x), expected));
      }
    }
  }
}

TEST(GptFileTest, a_file_has_the_shapes_of_transformers) {
  const Folder folder;
  save_gpt(Gpt(tiny_options()), folder / "m");
  const SafetensorsFile file(folder / "m/model.safetensors");
  EXPECT_EQ(file.find("transformer.h.1.attn.c_attn.weight")->shape, (Shape{8, 24}));
  EXPECT_EQ(file.find("transformer.h.0.mlp.c_fc.weight")->shape, (Shape{8, 12}));
  EXPECT_EQ(file.find("transformer.h.0.mlp.c_proj.weight")->shape, (Shape{12, 8}));
  EXPECT_EQ(file.find("transformer.wte.weight")->shape, (Shape{11, 8}));
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(GptFileTest, the_book_names_its_parts_by_hand) {
  const Folder folder;
  const Gpt model(tiny_options());
  save_gpt(model, folder / "m", {.names = GptNames::book});
  const SafetensorsFile file(folder / "m/model.safetensors");
  for (const char* name :
       {"tok_emb.weight", "pos_emb.weight", "trf_blocks.1.att.W_query.weight",
        "trf_blocks.0.att.W_key.bias", "trf_blocks.0.att.W_value.weight",
        "trf_blocks.0.att.out_proj.bias", "trf_blocks.0.ff.layers.0.weight",
        "trf_blocks.0.ff.layers.2.bias", "trf_blocks.0.norm1.scale", "trf_blocks.1.norm2.shift",
        "final_norm.scale", "final_norm.shift", "out_head.weight"}) {
    EXPECT_NE(file.find(name), nullptr) << name;
  }
  const TensorView qkv = model.parameter("transformer.h.0.attn.c_attn.weight");
  EXPECT_TRUE(
      same_bits(file.read(*file.find("trf_blocks.0.att.W_key.weight")), qkv.slice(0, 8, 16)));
}

TEST(GptFileTest, the_books_configuration_and_masks_are_read) {
  const Folder folder;
  const Gpt model(tiny_options());
  save_gpt(model, folder / "m", {.names = GptNames::book});
  const SafetensorsFile file(folder / "m/model.safetensors");
  std::vector<Tensor> memory;
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& entry : file.entries()) {
    memory.push_back(file.read(entry));
    tensors.emplace_back(entry.name, TensorView());
  }
  for (std::size_t k = 0; k < memory.size(); ++k) tensors[k].second = memory[k];
  const Tensor mask = Tensor::zeros({9, 9});
  tensors.emplace_back("trf_blocks.0.att.mask", mask);
  write_safetensors(folder / "m/model.safetensors", tensors, {}, true);
  write_bytes(folder / "m/config.json",
              R"({"vocab_size": 11, "context_length": 9, "emb_dim": 8, "n_heads": 2, "n_layers": 2,
                  "drop_rate": 0.1, "qkv_bias": true, "n_inner": 12})");
  const LoadedGpt loaded = load_gpt(folder / "m");
  EXPECT_FALSE(loaded.model.options().tied_head);  // the book's head is a layer of its own
  EXPECT_EQ(loaded.model.options().dropout, 0.1);
  EXPECT_TRUE(same_bits(loaded.model.parameter("lm_head.weight"),
                        model.parameter("transformer.wte.weight")));
}

TEST(GptFileTest, sixteen_bits_load_as_their_rounding) {
  const Gpt model(tiny_options());
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    const Folder folder;
    save_gpt(model, folder / "m", {.dtype = dtype});
    const LoadedGpt loaded = load_gpt(folder / "m");
    for (const GptParameter& p : loaded.model.parameters()) {
      const Tensor rounded = Tensor::copy(Tensor::copy(model.parameter(p.name), dtype), DType::f32);
      EXPECT_TRUE(same_bits(p.value, rounded)) << p.name;
    }
  }
}

TEST(GptFileTest, the_prefix_may_be_missing) {
  const SafetensorsFile golden(golden_folder() + "/model.safetensors");
  std::vector<Tensor> memory;
  std::vector<std::string> names;
  for (const auto& entry : golden.entries()) {
    memory.push_back(golden.read(entry));
    names.push_back(entry.name.substr(std::string("transformer.").size()));
  }
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (std::size_t k = 0; k < memory.size(); ++k) tensors.emplace_back(names[k], memory[k]);
  const Folder folder;
  write_safetensors(folder / "model.safetensors", tensors, {});
  write_bytes(folder / "config.json", read_bytes(golden_folder() + "/config.json"));
  expect_same(load_gpt(folder / "").model, load_gpt(golden_folder()).model);
}

TEST(GptFileTest, nothing_is_replaced_unless_told) {
  const Folder folder;
  save_gpt(Gpt(tiny_options()), folder / "m");
  GptOptions other = tiny_options();
  other.seed = 4;
  EXPECT_NE(error_of([&] { save_gpt(Gpt(other), folder / "m"); }), "");
  EXPECT_NE(error_of([&] { save_gpt(Gpt(other), folder / "m", {.shard_bytes = 1000}); }), "");
  expect_same(load_gpt(folder / "m").model, Gpt(tiny_options()));
  save_gpt(Gpt(other), folder / "m", {.replace = true, .shard_bytes = 1000});
  expect_same(load_gpt(folder / "m").model, Gpt(other));
}

TEST(GptFileTest, tensors_that_are_missing_extra_or_of_another_shape_are_named) {
  const Folder folder;
  save_gpt(Gpt(tiny_options()), folder / "m");
  const auto with_config = [&](const char* from, const char* to) {
    std::string json = tiny_config();
    json.replace(json.find(from), std::string(from).size(), to);
    write_bytes(folder / "m/config.json", json);
    return error_of([&] { load_gpt(folder / "m"); });
  };
  EXPECT_NE(with_config(R"("n_layer": 2)", R"("n_layer": 3)")
                .find("transformer.h.2.ln_1.weight: is missing, but config.json requires it"),
            std::string::npos);
  EXPECT_NE(with_config(R"("n_layer": 2)", R"("n_layer": 1)")
                .find("transformer.h.1.attn.c_attn.bias: does not belong to this model"),
            std::string::npos);
  EXPECT_NE(with_config(R"("n_positions": 9)", R"("n_positions": 10)")
                .find("transformer.wpe.weight: has shape [9, 8], but config.json implies [10, 8]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_gpt(folder / "nowhere"); }).find("config.json"), std::string::npos);
}

TEST(GptFileTest, a_file_without_a_token_embedding_is_not_a_gpt) {
  const Folder folder;
  const Tensor numbers = Tensor::zeros({2, 2});
  write_safetensors(folder / "model.safetensors", {{"numbers", numbers}}, {});
  write_bytes(folder / "config.json", tiny_config());
  EXPECT_EQ(error_of([&] { load_gpt(folder / ""); }),
            (folder / "model.safetensors") +
                ": is not a GPT: it holds none of tok_emb.weight, transformer.wte.weight, "
                "wte.weight");
}

TEST(GptFileTest, not_finite_parameters_are_told_and_refused_when_strict) {
  const Folder folder;
  Gpt model(tiny_options());
  Tensor bias = Tensor::zeros({8});
  bias.set({3}, HUGE_VAL);
  model.update("transformer.ln_f.bias", bias);
  save_gpt(model, folder / "m");
  std::vector<std::string> warnings;
  load_gpt(folder / "m", {}, &warnings);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("transformer.ln_f.bias: 1 numbers are NaN or infinite"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_gpt(folder / "m", {.strict = true}); }), "");
}

// --- trust: configurations -----------------------------------------------------------------------

// The error of config.json with one key replaced, or taken away by an empty value.
std::string config_error(const std::string& key, const std::string& value) {
  std::string json = "{";
  const std::vector<std::pair<std::string, std::string>> keys = {{"vocab_size", "11"},
                                                                 {"n_positions", "9"},
                                                                 {"n_embd", "8"},
                                                                 {"n_head", "2"},
                                                                 {"n_layer", "2"}};
  bool replaced = false;
  for (const auto& [name, usual] : keys) {
    const std::string& text = name == key ? value : usual;
    replaced = replaced || name == key;
    if (!text.empty()) json += (json.size() > 1 ? ", \"" : "\"") + name + "\": " + text;
  }
  if (!replaced) json += ", \"" + key + "\": " + value;
  return error_of([&] { parse_gpt_config(json + "}", "config.json"); });
}

TEST(GptConfigTest, K6_wrong_values_name_key_value_and_rule) {
  const std::pair<std::pair<const char*, const char*>, const char*> rows[] = {
      {{"n_head", "0"}, "config.json: n_head: 0 must be a whole number from 1 to 2147483647"},
      {{"n_head", "-1"}, "config.json: n_head: -1 must be a whole number from 1 to 2147483647"},
      {{"n_head", "\"12\""},
       "config.json: n_head: \"12\" must be a whole number from 1 to 2147483647"},
      {{"n_head", "1.5"}, "config.json: n_head: 1.5 must be a whole number from 1 to 2147483647"},
      {{"n_head", "1e400"}, "config.json: n_head: 1e400 is out of range"},
      {{"n_head", "18446744073709551616"},
       "config.json: n_head: 1.8446744073709552e+19 must be a whole number from 1 to 2147483647"},
      {{"n_head", ""}, "config.json: n_head: is missing"},
      {{"n_head", "null"}, "config.json: n_head: is missing"},
      {{"n_head", "3"}, "config.json: n_embd (8) must be a multiple of n_head (3)"},
      {{"resid_pdrop", "1.5"}, "config.json: resid_pdrop: 1.5 must be in [0, 1)"},
      {{"drop_rate", "-0.1"}, "config.json: drop_rate: -0.1 must be in [0, 1)"},
      {{"attn_pdrop", "1"}, "config.json: attn_pdrop: 1.0 must be in [0, 1)"},
      {{"layer_norm_epsilon", "0"}, "config.json: layer_norm_epsilon: 0.0 must be > 0"},
      {{"activation_function", "\"relu\""},
       "config.json: activation_function: \"relu\" must be one of gelu_new, gelu_pytorch_tanh, "
       "gelu_fast, gelu"},
      {{"model_type", "\"llama\""},
       "config.json: model_type: \"llama\" must be one of gpt2, cephalo"},
      {{"scale_attn_weights", "false"},
       "config.json: scale_attn_weights: false must be true, the only supported value"},
      {{"positions", "\"alibi\""},
       "config.json: positions: \"alibi\" must be one of learned, rotary"},
      {{"quantization_config", "{\"bits\": 4}"},
       "config.json: quantization_config: unknown key, with the value {} (allow_extra = true "
       "ignores it)"}};
  for (const auto& [given, expected] : rows) {
    EXPECT_EQ(config_error(given.first, given.second), expected);
  }
}

TEST(GptConfigTest, K6_what_is_no_configuration_is_refused) {
  const auto error = [](const std::string& json) {
    return error_of([&] { parse_gpt_config(json, "config.json"); });
  };
  EXPECT_EQ(error(""), "config.json: not valid UTF-8 JSON at byte 1");
  EXPECT_EQ(error("[]"), "config.json: is not a JSON object");
  EXPECT_EQ(error("3"), "config.json: is not a JSON object");
  EXPECT_EQ(error("{}"), "config.json: vocab_size: is missing");
  EXPECT_EQ(error(R"({"n_head": 2, "n_\u0068ead": 2})"), "config.json: n_head: appears twice");
  EXPECT_EQ(error(R"({"vocab_size": )" + std::string(100000, '[')),
            "config.json: objects and arrays nested more than 64 deep at byte 79");
}

TEST(GptConfigTest, K6_unknown_keys_pass_when_allowed_and_transformers_own_always) {
  const std::string json =
      R"({"vocab_size": 11, "n_ctx": 9, "n_embd": 8, "n_head": 2, "n_layer": 2, "extra": [1, {}]})";
  EXPECT_NE(error_of([&] { parse_gpt_config(json, "config.json"); }), "");
  EXPECT_EQ(parse_gpt_config(json, "config.json", {.allow_extra = true}).options.context_length, 9);
  EXPECT_EQ(read_gpt_config(golden_folder() + "/config.json").options.d_model, 16);
}

TEST(GptFileTest, rotary_positions_can_be_saved_for_longer_texts_and_say_what_was_trained) {
  const Folder folder;
  GptOptions options = tiny_options();
  options.positions = PositionKind::rotary;
  const Gpt model(options);
  save_gpt(model, folder / "long", {.context_length = 40});
  const LoadedGpt loaded = load_gpt(folder / "long");
  EXPECT_EQ(loaded.model.options().context_length, 40);
  EXPECT_EQ(loaded.config.trained_context_length, options.context_length);
  // Once more from there: what was trained stays what it was.
  save_gpt(loaded.model, folder / "longer",
           {.context_length = 80, .trained_context_length = loaded.config.trained_context_length});
  EXPECT_EQ(load_gpt(folder / "longer").config.trained_context_length, options.context_length);
  save_gpt(model, folder / "short", {.context_length = 5});
  EXPECT_EQ(load_gpt(folder / "short").config.trained_context_length, std::nullopt);
}

TEST(GptFileTest, learned_positions_cannot_be_saved_for_longer_texts) {
  const Folder folder;
  EXPECT_EQ(error_of([&] { save_gpt(Gpt(tiny_options()), folder / "m", {.context_length = 40}); }),
            "save_gpt: context_length (40) must be the model's own (9): its positions are learned, "
            "a vector for each of them");
  EXPECT_EQ(error_of([&] { save_gpt(Gpt(tiny_options()), folder / "m", {.context_length = 0}); }),
            "save_gpt: context_length (0) must be >= 1");
}

TEST(GptFileTest, K7_claims_beyond_the_file_are_refused_before_allocating) {
  const Folder folder;
  save_gpt(Gpt(tiny_options()), folder / "m");
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string json = tiny_config();
    json.replace(json.find(from), from.size(), to);
    write_bytes(folder / "m/config.json", json);
    return error_of([&] { load_gpt(folder / "m"); });
  };
  EXPECT_NE(error_with(R"("n_layer": 2)", R"("n_layer": 1000000000)")
                .find("transformer.h.2.ln_1.weight: is missing"),
            std::string::npos);
  EXPECT_NE(
      error_with(R"("vocab_size": 11)", R"("vocab_size": 1000000000)")
          .find(
              "transformer.wte.weight: has shape [11, 8], but config.json implies [1000000000, 8]"),
      std::string::npos);
  EXPECT_NE(error_with(R"("n_inner": 12)", R"("n_inner": 2147483647)").find("mlp.c_fc.weight"),
            std::string::npos);
}

TEST(GptConfigTest, configurations_survive_a_round_trip) {
  GptOptions options = tiny_options();
  options.positions = PositionKind::rotary;
  options.qkv_bias = false;
  options.tied_head = false;
  options.dropout = 0.5;
  options.norm_epsilon = 1e-6;
  const GptConfig found =
      parse_gpt_config(gpt_config_json({options, 3, 4, true, {}}, DType::bf16), "config.json");
  EXPECT_EQ(found.options.positions, PositionKind::rotary);
  EXPECT_FALSE(found.options.qkv_bias);
  EXPECT_FALSE(found.options.tied_head);
  EXPECT_EQ(found.options.dropout, 0.5);
  EXPECT_EQ(found.options.norm_epsilon, 1e-6);
  EXPECT_EQ(found.options.d_mlp, 12);
  EXPECT_EQ(found.bos_token_id, 3);
  EXPECT_EQ(found.eos_token_id, 4);
}

}  // namespace
}  // namespace cephalo
