#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "cephalo/attention/layer/layer_file.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

// Written transposed, read transposed: the form for which a second copy would be easiest to make.
TEST(LargeFileTest, a_file_of_500_mb_is_in_memory_once) {
  const testing::Folder folder;
  const std::string path = folder / "large.safetensors";
  const MultiHeadAttentionOptions options{
      .d_in = 5600, .d_out = 5600, .num_heads = 40, .qkv_bias = true, .seed = 1};
  {
    const MultiHeadAttention layer(options);
    save_layer(layer, path, {.form = Form::gpt2});
  }
  const double file_mib = static_cast<double>(std::filesystem::file_size(path)) / (1 << 20);
  ASSERT_GT(file_mib, 475.0);
  std::int64_t told = 0;
  LoadOptions load;
  load.progress = [&](std::int64_t done, std::int64_t all) { told = done == all ? all : 0; };
  const MultiHeadAttention layer = load_layer(path, load);
  EXPECT_EQ(layer.parameter_count(), parameter_count(options));
  EXPECT_EQ(told, 4 * layer.parameter_count());
  testing::report("a layer of " + std::to_string(static_cast<int>(file_mib)) +
                  " MiB written and read: peak memory " +
                  std::to_string(static_cast<int>(peak_mib())) + " MiB");
  EXPECT_LT(peak_mib(), file_mib + 64.0);
}

}  // namespace
}  // namespace cephalo
