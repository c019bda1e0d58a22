#include "cephalo/train/best_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_gpt.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::read_bytes;
using testing::same_bits;
using testing::tiny_options;
using testing::write_bytes;

class BestModelTest : public ::testing::Test {
 protected:
  BestModelTest() { std::filesystem::create_directories(folder_ / "checkpoints"); }
  std::string at(const std::string& name) const { return folder_ / ("checkpoints/" + name); }

  Folder folder_;
};

TEST_F(BestModelTest, what_is_kept_comes_back_bit_for_bit) {
  const Gpt model(tiny_options());
  BestModel best(folder_ / "");
  EXPECT_FALSE(best.has(12));
  best.keep(model, {12, 3.5});
  ASSERT_TRUE(best.has(12));
  const Gpt read = best.read(12, model.options());
  for (const GptParameter& p : model.parameters()) {
    EXPECT_TRUE(same_bits(read.parameter(p.name), p.value)) << p.name;
  }
}

TEST_F(BestModelTest, a_damaged_file_and_one_of_another_model_are_refused) {
  const Gpt model(tiny_options());
  BestModel best(folder_ / "");
  best.keep(model, {12, 3.5});
  GptOptions other = model.options();
  other.d_mlp = 16;
  EXPECT_NE(error_of([&] { best.read(12, other); }).find("to another model"), std::string::npos);
  std::string bytes = read_bytes(at("best-00000012.safetensors"));
  bytes[bytes.size() / 2] ^= 1;
  write_bytes(at("best-00000012.safetensors"), bytes);
  EXPECT_NE(error_of([&] { best.read(12, model.options()); }).find("checksum"), std::string::npos);
}

TEST_F(BestModelTest, only_older_ones_of_our_own_are_removed) {
  const Gpt model(tiny_options());
  BestModel best(folder_ / "");
  best.keep(model, {12, 3.5});
  best.keep(model, {24, 3.4});
  write_bytes(at("best-00000011.safetensors"), "of the user's");
  write_bytes(at("best-of-them.safetensors"), read_bytes(at("best-00000012.safetensors")));
  best.remove_all_but(24);
  EXPECT_FALSE(best.has(12));
  EXPECT_TRUE(best.has(24));
  EXPECT_TRUE(best.has(11));
  EXPECT_TRUE(std::filesystem::exists(at("best-of-them.safetensors")));
}

TEST_F(BestModelTest, the_best_is_the_lowest_finite_loss_and_the_first_of_equals) {
  TrainingHistory history;
  EXPECT_FALSE(best_validation(history).has_value());
  history.validation = {{1, NAN}, {2, 3.0}, {3, 2.5}, {4, 2.5}, {5, 2.75}};
  EXPECT_EQ(best_validation(history)->step, 3);
}

}  // namespace
}  // namespace cephalo
