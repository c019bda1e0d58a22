#include "cephalo/attention/layer/layer_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "cephalo/core/ops.h"
#include "cephalo/learn/ladder.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::normal;
using testing::read_bytes;
using testing::same_bits;

constexpr Form kForms[] = {Form::separate, Form::raw,   Form::heads, Form::linear,
                           Form::joined,   Form::torch, Form::gpt2};

class LayerFileTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / (name + ".safetensors"); }
  Folder folder_;
};

// Layers of different make: what a form has no place for must be refused, the rest must survive.
std::vector<MultiHeadAttention> sample_layers() {
  std::vector<MultiHeadAttention> layers;
  layers.push_back(MultiHeadAttention({.d_in = 12,
                                       .d_out = 8,
                                       .context_length = 16,
                                       .dropout = 0.1,
                                       .num_heads = 2,
                                       .qkv_bias = true,
                                       .seed = 1}));
  layers.push_back(MultiHeadAttention(
      {.d_in = 6, .d_out = 6, .num_heads = 1, .out_proj = false, .causal = false, .seed = 2}));
  layers.push_back(MultiHeadAttention({.d_in = 8,
                                       .d_out = 8,
                                       .num_heads = 4,
                                       .num_kv_heads = 2,
                                       .rotary = Rotary{.interleaved = true},
                                       .seed = 3}));
  layers.push_back(MultiHeadAttention(
      {.d_in = 8, .d_out = 8, .num_heads = 2, .d_kv = 5, .v_dim = 3, .causal = false, .seed = 4}));
  layers.push_back(MultiHeadAttention(
      {.d_in = 8, .d_out = 8, .num_heads = 2, .qkv_bias = true, .seed = 5, .dtype = DType::bf16}));
  return layers;
}

TEST_F(LayerFileTest, every_form_goes_to_every_other_and_back_without_losing_a_bit) {
  int trips = 0;
  int refused = 0;
  int number = 0;
  for (MultiHeadAttention& layer : sample_layers()) {
    layer.eval();
    const Tensor x = normal({2, 4, layer.options().d_in}, 9);
    const dim_t d_kv = layer.options().d_kv == 0 ? layer.options().d_in : layer.options().d_kv;
    const Tensor memory = normal({2, 4, d_kv}, 10);
    const TensorView kv = memory;
    const Tensor expected = layer(x, {.kv = &kv});
    for (const Form first : kForms) {
      for (const Form second : kForms) {
        const std::string a = at("a" + std::to_string(number));
        const std::string b = at("b" + std::to_string(number));
        const std::string c = at("c" + std::to_string(number++));
        const std::string error = error_of([&] {
          save_layer(layer, a, {.form = first, .allow_rotary = true});
          save_layer(load_layer(a), b, {.form = second, .allow_rotary = true});
        });
        if (!error.empty()) {
          ++refused;
          continue;
        }
        const MultiHeadAttention back = load_layer(b);
        save_layer(back, c, {.form = first, .allow_rotary = true});
        ASSERT_EQ(read_bytes(a), read_bytes(c)) << name(first) << " " << name(second);
        ASSERT_TRUE(same_bits(back(x, {.kv = &kv}), expected)) << name(first) << name(second);
        ASSERT_EQ(back.options().dropout, layer.options().dropout);
        ++trips;
      }
    }
  }
  EXPECT_EQ(trips, 36 + 16 + 4 + 4 + 36);
  EXPECT_EQ(trips + refused, 5 * 49);
}

TEST_F(LayerFileTest, what_a_form_has_no_place_for_is_refused_by_name) {
  const auto layers = sample_layers();
  const auto saving = [&](std::size_t which, Form form) {
    return error_of([&] { save_layer(layers[which], at("x"), {.form = form}); });
  };
  EXPECT_EQ(saving(0, Form::raw), "MultiHeadAttention: form raw cannot hold an output projection");
  EXPECT_EQ(saving(1, Form::gpt2),
            "MultiHeadAttention: form gpt2 always has an output projection, this layer has none");
  EXPECT_EQ(saving(2, Form::torch),
            "MultiHeadAttention: form torch needs num_kv_heads (2) equal to num_heads (4)");
  EXPECT_EQ(
      saving(3, Form::joined),
      "MultiHeadAttention: form joined stores one projection for q, k and v, so d_kv (5) must "
      "equal d_in (8)");
  EXPECT_EQ(
      saving(1, Form::linear),
      at("x") +
          ": form linear has q_linear.bias, this layer has none; zero_bias = true adds zeros");
  EXPECT_EQ(folder_.files(), 0U);
}

TEST_F(LayerFileTest, rotary_positions_are_refused_by_forms_that_have_no_place_for_them) {
  const MultiHeadAttention layer(
      {.d_in = 8, .d_out = 8, .num_heads = 2, .qkv_bias = true, .rotary = Rotary{}, .seed = 1});
  for (const Form form : {Form::heads, Form::linear, Form::joined, Form::torch, Form::gpt2}) {
    EXPECT_EQ(error_of([&] { save_layer(layer, at("x"), {.form = form}); }),
              at("x") + ": form " + name(form) +
                  " cannot hold rotary positions; allow_rotary = true puts them into the metadata, "
                  "which only cephalo reads");
  }
  EXPECT_EQ(folder_.files(), 0U);
  save_layer(layer, at("own"));
  EXPECT_TRUE(load_layer(at("own")).options().rotary.has_value());
}

// A layer of a GPT's file, under the names of Hugging Face and of the book.
class LayerOfFolderTest : public LayerFileTest {
 protected:
  LayerOfFolderTest() : layer_(options()) {
    layer_.eval();
    std::vector<std::pair<std::string, TensorView>> tensors;
    for (const NamedParameter& p : layer_.parameters_as(Form::gpt2)) {
      tensors.emplace_back("transformer.h.3." + p.name, p.value);
    }
    for (const NamedParameter& p : layer_.parameters()) {
      tensors.emplace_back("trf_blocks.3.att." + p.name, p.value);
    }
    write_safetensors(at("model"), tensors, {});
  }

  static MultiHeadAttentionOptions options() {
    return {.d_in = 8,
            .d_out = 8,
            .context_length = 16,
            .num_heads = 2,
            .qkv_bias = true,
            .rotary = Rotary{.interleaved = true, .base = 500.0},
            .seed = 1};
  }
  void configure(const std::string& keys) {
    testing::write_bytes(folder_ / "config.json",
                         R"({"n_positions": 16, "n_embd": 8, "n_head": 2)" + keys + "}");
  }
  std::string error_under(const std::string& prefix) {
    return error_of([&] { load_layer(at("model"), {.prefix = prefix}); });
  }

  MultiHeadAttention layer_;
};

TEST_F(LayerOfFolderTest, a_layer_out_of_a_folder_knows_what_config_json_says) {
  configure(R"(, "n_layer": 4, "vocab_size": 9, "attn_pdrop": 0.25, "positions": "rotary",
                 "rotary_base": 500.0, "rotary_interleaved": true)");
  const Tensor x = normal({2, 7, 8}, 4);
  for (const char* prefix : {"transformer.h.3.", "trf_blocks.3.att."}) {
    const MultiHeadAttention loaded = load_layer(at("model"), {.prefix = prefix});
    ASSERT_TRUE(loaded.options().rotary.has_value()) << prefix;
    EXPECT_EQ(loaded.options().num_heads, 2);
    EXPECT_EQ(loaded.options().context_length, 16);
    EXPECT_EQ(loaded.options().dropout, 0.25);
    EXPECT_TRUE(same_bits(loaded(x), layer_(x))) << prefix;
  }
  const LoadOptions given{.settings = {.num_heads = 4, .rotary = Rotary{}},
                          .prefix = "transformer.h.3."};
  EXPECT_EQ(load_layer(at("model"), given).options().num_heads, 4);
  EXPECT_EQ(load_layer(at("model"), given).options().rotary->base, 10000.0);
}

TEST_F(LayerOfFolderTest, a_config_json_that_says_what_no_layer_does_is_refused) {
  const std::string path = folder_ / "config.json";
  configure(R"(, "scale_attn_by_inverse_layer_idx": true)");
  EXPECT_EQ(
      error_under("transformer.h.3."),
      path + ": scale_attn_by_inverse_layer_idx: true must be false, the only supported value");
  configure(R"(, "rope_theta": 10000.0)");
  EXPECT_EQ(
      error_under("transformer.h.3."),
      path + ": rope_theta: unknown key, with the value 10000.0 (allow_extra = true ignores it)");
  EXPECT_FALSE(load_layer(at("model"), {.prefix = "transformer.h.3.", .allow_extra = true})
                   .options()
                   .rotary.has_value());
  configure(R"(, "model_type": "gpt_bigcode")");
  EXPECT_EQ(error_under("trf_blocks.3.att."),
            path + ": model_type: \"gpt_bigcode\" must be one of gpt2, cephalo");
  testing::write_bytes(path, R"({"n_positions": 16, "n_embd": 16, "n_head": 2})");
  EXPECT_EQ(error_under("transformer.h.3."),
            at("model") + ": transformer.h.3.: the layer is 8 wide, config.json says n_embd 16");
}

TEST_F(LayerOfFolderTest, a_config_json_of_something_else_is_not_looked_at) {
  testing::write_bytes(folder_ / "config.json", "something else");
  save_layer(layer_, at("layer"));
  EXPECT_TRUE(load_layer(at("layer")).options().rotary.has_value());
  const auto fused = layer_.parameters_as(Form::joined);
  write_safetensors(at("vision"),
                    {{"blocks.0.attn.qkv.weight", fused[0].value},
                     {"blocks.0.attn.qkv.bias", fused[1].value},
                     {"blocks.0.attn.proj.weight", fused[2].value},
                     {"blocks.0.attn.proj.bias", fused[3].value}},
                    {});
  const LoadOptions first{.settings = {.num_heads = 2}, .prefix = "blocks.0.attn."};
  EXPECT_EQ(load_layer(at("vision"), first).options().num_heads, 2);
}

TEST_F(LayerFileTest, zero_biases_are_added_on_request_and_change_nothing) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  layer.eval();
  save_layer(layer, at("gpt2"), {.form = Form::gpt2, .zero_bias = true});
  const MultiHeadAttention loaded = load_layer(at("gpt2"));
  EXPECT_TRUE(loaded.options().qkv_bias);
  const Tensor x = normal({1, 5, 8}, 1);
  EXPECT_TRUE(same_bits(loaded(x), layer(x)));
}

TEST_F(LayerFileTest, masks_are_written_on_request_and_are_no_parameters) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .context_length = 6, .num_heads = 2, .seed = 1});
  save_layer(layer, at("masked"), {.with_mask = true});
  const SafetensorsFile file(at("masked"));
  const LayerContents contents = inspect_layer(file);
  ASSERT_EQ(contents.buffers.size(), 1U);
  const Tensor mask = file.read(*contents.buffers[0]);
  EXPECT_EQ(mask.shape(), (Shape{6, 6}));
  EXPECT_EQ(mask.at({0, 1}), 1.0);
  EXPECT_EQ(mask.at({1, 1}), 0.0);
  EXPECT_EQ(load_layer(at("masked")).parameter_count(), layer.parameter_count());
  HeadWrapper wrapper({.d_in = 8, .d_out = 4, .context_length = 6, .num_heads = 2, .seed = 1});
  save_layer(wrapper, at("heads"), {.with_mask = true});
  EXPECT_NE(SafetensorsFile(at("heads")).find("heads.1.mask"), nullptr);
}

TEST_F(LayerFileTest, foreign_files_need_what_they_cannot_show) {
  const Tensor square = normal({8, 8}, 1);
  const Tensor buffer = Tensor::zeros({10, 10});
  write_safetensors(at("foreign"),
                    {{"W_query.weight", square},
                     {"W_key.weight", square},
                     {"W_value.weight", square},
                     {"mask", buffer}},
                    {});
  EXPECT_EQ(error_of([&] { load_layer(at("foreign")); }),
            at("foreign") +
                ": num_heads is not in the file and cannot be inferred from it; pass num_heads");
  const MultiHeadAttention layer = load_layer(at("foreign"), {.settings = {.num_heads = 4}});
  EXPECT_EQ(layer.options().context_length, 10);
  EXPECT_TRUE(layer.options().causal);
  EXPECT_FALSE(layer.training());
  EXPECT_EQ(error_of([&] { load_layer(at("foreign"), {.settings = {.num_heads = 3}}); }),
            at("foreign") + ": num_heads (3) does not divide the width of q (8)");
}

TEST_F(LayerFileTest, other_spellings_and_prefixes) {
  MultiHeadAttention layer(
      {.d_in = 8, .d_out = 8, .num_heads = 2, .qkv_bias = true, .causal = false, .seed = 1});
  layer.eval();
  const Tensor x = normal({1, 5, 8}, 1);
  const auto fused = layer.parameters_as(Form::joined);
  write_safetensors(at("short"),
                    {{"qkv.weight", fused[0].value},
                     {"qkv.bias", fused[1].value},
                     {"proj.weight", fused[2].value},
                     {"proj.bias", fused[3].value}},
                    {});
  EXPECT_TRUE(same_bits(load_layer(at("short"), {.settings = {.num_heads = 2}})(x), layer(x)));
  const auto gpt2 = layer.parameters_as(Form::gpt2);
  std::vector<std::pair<std::string, TensorView>> model = {{"wte.weight", fused[0].value},
                                                           {"h.0.ln_1.weight", fused[3].value}};
  for (const NamedParameter& p : gpt2) model.emplace_back("h.0." + p.name, p.value);
  write_safetensors(at("model"), model, {});
  const LoadOptions first{.settings = {.num_heads = 2, .causal = false}, .prefix = "h.0."};
  EXPECT_TRUE(same_bits(load_layer(at("model"), first)(x), layer(x)));
  EXPECT_EQ(error_of([&] { load_layer(at("model")); }),
            at("model") +
                ": no attention layer: found wte.weight, h.0.ln_1.weight, "
                "h.0.attn.c_attn.weight, h.0.attn.c_attn.bias, h.0.attn.c_proj.weight, "
                "h.0.attn.c_proj.bias");
}

TEST_F(LayerFileTest, W11_missing_extra_and_transposed_tensors) {
  const Tensor wide = normal({8, 6}, 1);
  const Tensor tall = normal({6, 8}, 1);
  const auto loading = [&](const std::vector<std::pair<std::string, TensorView>>& tensors,
                           const LoadOptions& options) {
    write_safetensors(at("w11"), tensors, {}, true);
    const std::string error = error_of([&] { load_layer(at("w11"), options); });
    return error.empty() ? error : error.substr(at("w11").size() + 2);
  };
  const LoadOptions two{.settings = {.num_heads = 2}};
  EXPECT_EQ(loading({{"W_query.weight", wide}, {"W_value.weight", wide}}, two),
            "W_key.weight: is missing");
  EXPECT_EQ(loading({{"W_query.weight", wide},
                     {"W_key.weight", wide},
                     {"W_value.weight", wide},
                     {"surprise", wide}},
                    two),
            "surprise: is not part of form separate (allow_extra = true ignores it)");
  LoadOptions lenient = two;
  lenient.allow_extra = true;
  EXPECT_EQ(loading({{"W_query.weight", wide},
                     {"W_key.weight", wide},
                     {"W_value.weight", wide},
                     {"surprise", wide}},
                    lenient),
            "");
  EXPECT_EQ(
      loading({{"W_query.weight", wide}, {"W_key.weight", tall}, {"W_value.weight", wide}}, two),
      "W_key.weight has shape [6, 8] but W_value.weight has shape [8, 6]: they share an input; is "
      "one transposed?");
  EXPECT_EQ(loading({{"W_query.weight", wide},
                     {"W_key.weight", wide},
                     {"W_value.weight", wide},
                     {"out_proj.weight", tall}},
                    two),
            "out_proj.weight: has shape [6, 8], expected [8, 8]");
  EXPECT_EQ(loading({{"W_query.weight", wide},
                     {"W_key.weight", wide},
                     {"W_value.weight", wide},
                     {"W_key.bias", normal({8}, 1)}},
                    two),
            "W_key.bias: does not belong to this layer (allow_extra = true ignores it)");
  const Tensor narrow = Tensor::copy(wide, DType::f16);
  EXPECT_EQ(
      loading({{"W_query.weight", wide}, {"W_key.weight", narrow}, {"W_value.weight", wide}}, two),
      "W_query.weight is float32 but W_key.weight is float16; one type is needed");
}

TEST_F(LayerFileTest, W13_nan_among_the_parameters_is_a_warning_or_strictly_an_error) {
  MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 1});
  Tensor poisoned = Tensor::copy(layer.parameter("W_key.weight"));
  poisoned.set({1, 1}, std::nan(""));
  poisoned.set({2, 1}, INFINITY);
  layer.update("W_key.weight", poisoned);
  save_layer(layer, at("nan"));
  std::vector<std::string> warnings;
  load_layer(at("nan"), {}, &warnings);
  const std::string message = at("nan") + ": W_key.weight: 2 numbers are NaN or infinite";
  EXPECT_EQ(warnings, std::vector<std::string>{message});
  EXPECT_EQ(error_of([&] { load_layer(at("nan"), {.strict = true}); }), message);
}

TEST_F(LayerFileTest, settings_in_the_metadata_are_checked) {
  const Tensor square = normal({8, 8}, 1);
  const auto loading = [&](const std::string& settings) {
    write_safetensors(
        at("s"), {{"W_query.weight", square}, {"W_key.weight", square}, {"W_value.weight", square}},
        {{"cephalo", settings}}, true);
    const std::string error = error_of([&] { load_layer(at("s")); });
    return error.empty() ? error : error.substr(at("s").size() + 2);
  };
  EXPECT_EQ(loading(R"({"num_heads": 2})"), "");
  EXPECT_EQ(loading("nonsense"), "__metadata__: cephalo: not valid UTF-8 JSON at byte 2");
  EXPECT_EQ(loading("[2]"), "__metadata__: cephalo: is not a JSON object");
  EXPECT_EQ(loading(R"({"num_heads": -2})"), "__metadata__: cephalo: num_heads cannot be -2");
  EXPECT_EQ(loading(R"({"num_heads": "2"})"), "__metadata__: cephalo: num_heads cannot be \"2\"");
  write_safetensors(
      at("d"), {{"W_query.weight", square}, {"W_key.weight", square}, {"W_value.weight", square}},
      {{"cephalo", R"({"num_heads": 2, "dropout": 1.5})"}});
  EXPECT_EQ(error_of([&] { load_layer(at("d")); }),
            "MultiHeadAttention: dropout (1.5) must be in [0, 1)");
}

}  // namespace
}  // namespace cephalo
