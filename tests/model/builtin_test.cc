#include "cephalo/model/builtin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cephalo/io/safetensors.h"
#include "cephalo/model/builtin_files.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::same_bits;

const std::string kFolder = std::string(CEPHALO_SOURCE_DIR) + "/models/cephalo-small";

TEST(BuiltinTest, the_library_holds_the_files_of_the_folder_byte_for_byte) {
  ASSERT_TRUE(has_builtin_model());
  const BuiltinFiles files = builtin_files();
  EXPECT_STREQ(files.name, "cephalo-small");
  for (const auto& [name, bytes] : {std::pair{"config.json", files.config_json},
                                    {"model.safetensors", files.model_safetensors},
                                    {"vocab.json", files.vocab_json},
                                    {"merges.txt", files.merges_txt}}) {
    const std::string content = testing::read_bytes(kFolder + "/" + name);
    ASSERT_EQ(content.size(), bytes.size()) << name;
    EXPECT_EQ(std::memcmp(content.data(), bytes.data(), bytes.size()), 0) << name;
  }
}

TEST(BuiltinTest, it_is_at_most_10_MB_in_16_bits) {
  EXPECT_LE(builtin_files().model_safetensors.size(), 10'000'000U);
  const SafetensorsFile file(kFolder + "/model.safetensors");
  for (const auto& entry : file.entries()) EXPECT_EQ(entry.dtype, DType::bf16) << entry.name;
}

TEST(BuiltinTest, from_memory_it_is_the_model_of_the_folder) {
  const TextModel built_in = builtin_model();
  const TextModel loaded = load_text_model(kFolder);
  const auto expected = loaded.gpt.parameters();
  const auto found = built_in.gpt.parameters();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    EXPECT_EQ(found[k].name, expected[k].name);
    EXPECT_TRUE(same_bits(found[k].value, expected[k].value)) << found[k].name;
  }
  EXPECT_EQ(built_in.tokenizer.fingerprint(), loaded.tokenizer.fingerprint());
  EXPECT_EQ(builtin_tokenizer().fingerprint(), loaded.tokenizer.fingerprint());
  EXPECT_EQ(built_in.first_token(), loaded.first_token());
}

TEST(BuiltinTest, a_text_begins_with_its_first_token) {
  const TextModel model = builtin_model();
  ASSERT_TRUE(model.first_token());
  EXPECT_EQ(model.piece(*model.first_token()), "<|endoftext|>");
  const auto ids = model.encode("The cat", true);
  EXPECT_EQ(ids[0], *model.first_token());
  EXPECT_EQ(model.encode("The cat", false), std::vector<std::int64_t>(ids.begin() + 1, ids.end()));
  EXPECT_EQ(model.piece(1'000'000), "");
}

// Bytes in memory are judged as a file is.
TEST(BuiltinTest, damaged_bytes_in_memory_are_refused_by_name) {
  const BuiltinFiles files = builtin_files();
  const std::string config(reinterpret_cast<const char*>(files.config_json.data()),
                           files.config_json.size());
  const auto load = [&](std::span<const std::byte> parameters) {
    return error_of([&] { load_gpt("here", config, parameters); });
  };
  EXPECT_EQ(load(files.model_safetensors), "");
  EXPECT_EQ(load({}), "here/model.safetensors: needs 8 bytes, file has 0");
  const std::string shorter =
      load(files.model_safetensors.first(files.model_safetensors.size() - 1));
  EXPECT_TRUE(shorter.starts_with("here/model.safetensors: ")) << shorter;
  std::vector<std::byte> longer(files.model_safetensors.begin(), files.model_safetensors.end());
  longer.push_back(std::byte{0});
  EXPECT_TRUE(load(longer).starts_with("here/model.safetensors: ")) << load(longer);
  longer[8] = std::byte{'x'};
  EXPECT_TRUE(load(longer).starts_with("here/model.safetensors: ")) << load(longer);
  const std::string wrong = error_of([&] { load_gpt("here", "{}", files.model_safetensors); });
  EXPECT_EQ(wrong, "here/config.json: vocab_size: is missing");
}

TEST(BuiltinTest, memory_is_read_like_a_file) {
  const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  InputFile file("three", bytes);
  std::byte found[2] = {};
  file.read(1, found, 2);
  EXPECT_EQ(found[1], std::byte{3});
  file.read(3, found, 0);
  EXPECT_EQ(error_of([&] { file.read(2, found, 2); }),
            "three: has no 2 bytes starting at byte 2 (it has 3)");
  EXPECT_NE(error_of([&] { file.read(-1, found, 1); }), "");
  EXPECT_NE(error_of([&] { file.read(INT64_MAX, found, 2); }), "");
  const InputFile moved = std::move(file);
  EXPECT_EQ(moved.size(), 3);
  moved.read(0, found, 1);
  EXPECT_EQ(found[0], std::byte{1});
}

}  // namespace
}  // namespace cephalo
