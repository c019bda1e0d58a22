// Tracing costs nothing when it is off, and gradients no more than they say: every allocation of a
// call is counted here.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/core/ops.h"
#include "tests/support/tensors.h"

namespace {

constexpr std::size_t kTensorSized = 2048;  // smaller ones are a mask's few numbers
std::atomic<bool> counting{false};
std::atomic<int> small_allocations{0};
std::atomic<int> large_count{0};
std::size_t large_sizes[256];

void note(std::size_t bytes) {
  if (!counting) return;
  if (bytes < kTensorSized) {
    ++small_allocations;
  } else {
    large_sizes[large_count++ % 256] = bytes;
  }
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  note(bytes);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The program's own operator new: all of C++ allocates through it.
void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace cephalo {
namespace {

struct Count {
  int small;
  std::vector<std::size_t> large;  // sizes in bytes, sorted
};

template <typename F>
Count count_allocations(F&& work) {
  work();  // scratch is kept between calls: the first one may grow it
  small_allocations = 0;
  large_count = 0;
  counting = true;
  work();
  counting = false;
  std::vector<std::size_t> sizes(large_sizes, large_sizes + large_count);
  std::sort(sizes.begin(), sizes.end());
  return {small_allocations, sizes};
}

constexpr dim_t kTokens = 20;
constexpr dim_t kWidth = 64;
constexpr dim_t kHeads = 4;

// Rung 5 from the public functions, without any tracing in them.
Tensor by_hand(const TensorView& x, const MultiHeadAttention& layer) {
  const Shape split{1, kTokens, kHeads, kWidth / kHeads};
  const Tensor q = linear(x, layer.parameter("W_query.weight"));
  const Tensor k = linear(x, layer.parameter("W_key.weight"));
  const Tensor v = linear(x, layer.parameter("W_value.weight"));
  const TensorView keys = transpose(view(k, split), 1, 2);
  const Tensor scores = matmul(transpose(view(q, split), 1, 2), transpose(keys, 2, 3));
  const Tensor future = triu(Tensor::full({kTokens, kTokens}, 1.0), 1);
  const Tensor masked = masked_fill(scores, future, -std::numeric_limits<double>::infinity());
  const Tensor weights = softmax(multiply(masked, 1.0 / std::sqrt(kWidth / kHeads)));
  const Tensor context = matmul(weights, transpose(view(v, split), 1, 2));
  const auto dense = contiguous(transpose(context, 1, 2));
  return linear(view(dense, {1, kTokens, kWidth}), layer.parameter("out_proj.weight"),
                layer.parameter("out_proj.bias"));
}

TEST(AllocationsTest, an_untraced_call_stores_each_tensor_of_the_six_steps_once) {
  MultiHeadAttention layer({.d_in = kWidth, .d_out = kWidth, .num_heads = kHeads, .seed = 1});
  const Tensor x = testing::normal({1, kTokens, kWidth}, 1);
  const Count call = count_allocations([&] { layer(x, {.engine = Engine::reference}); });
  // q, k, v, context of the heads, context side by side, output; and scores, which become weights.
  const std::size_t rows = kTokens * kWidth * sizeof(float);
  const std::size_t pairs = kHeads * kTokens * kTokens * sizeof(float);
  std::vector<std::size_t> expected(6, rows);
  expected.push_back(pairs);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(call.large, expected);
}

TEST(AllocationsTest, code_without_tracing_allocates_no_less) {
  MultiHeadAttention layer({.d_in = kWidth, .d_out = kWidth, .num_heads = kHeads, .seed = 1});
  const Tensor x = testing::normal({1, kTokens, kWidth}, 1);
  ASSERT_TRUE(testing::same_bits(by_hand(x, layer), layer(x, {.engine = Engine::reference})));
  const Count call = count_allocations([&] { layer(x, {.engine = Engine::reference}); });
  const Count hand = count_allocations([&] { by_hand(x, layer); });
  const Count traced = count_allocations([&] { layer.trace(x); });
  EXPECT_LE(call.large.size(), hand.large.size());
  EXPECT_LE(call.small, 16);                               // the mask's parts and its lengths
  EXPECT_GT(traced.large.size(), call.large.size() + 10);  // a copy of every step
}

TEST(AllocationsTest, inference_saves_nothing_for_a_backward_pass) {
  MultiHeadAttention layer({.d_in = kWidth, .d_out = kWidth, .num_heads = kHeads, .seed = 1});
  layer.prepare();
  const Tensor x = testing::normal({1, kTokens, kWidth}, 1);
  const Count call = count_allocations([&] { layer(x); });
  const Count training = count_allocations([&] { layer.forward_train(x); });
  const std::size_t rows = kTokens * kWidth * sizeof(float);
  EXPECT_EQ(call.large, std::vector<std::size_t>{rows});  // y alone
  // y, x, context, and q, k and v beside each other; the pass itself and its lse are smaller.
  std::vector<std::size_t> saved;
  for (const std::size_t bytes : training.large) {
    if (bytes >= rows) saved.push_back(bytes);
  }
  EXPECT_EQ(saved, (std::vector<std::size_t>{rows, rows, rows, 3 * rows}));
}

// Sizes in bytes of what a fused backward pass allocates that grows with tokens × head_dim.
std::vector<std::size_t> backward_allocations(DType dtype, dim_t kv_tokens) {
  const Tensor q = testing::normal({1, 2, 512, kWidth}, 1, dtype);
  const Tensor k = testing::normal({1, 2, kv_tokens, kWidth}, 2, dtype);
  const Tensor v = testing::normal(k.shape(), 3, dtype);
  const Tensor dcontext = testing::normal(q.shape(), 4, dtype);
  const AttendOptions options{.return_lse = true, .require = Engine::fused};
  const AttendResult r = attend(q, k, v, {}, options);
  Tensor dq = Tensor::empty(q.shape(), dtype), dk = Tensor::empty(k.shape(), dtype);
  Tensor dv = Tensor::empty(v.shape(), dtype);
  Count count = count_allocations([&] {
    attend_backward_into({dq, dk, dv}, {r.context, r.lse, dcontext}, q, k, v, {}, options);
  });
  std::erase_if(count.large, [](std::size_t bytes) { return bytes < 2 * 512 * kWidth; });
  return count.large;
}

TEST(AllocationsTest, gradients_of_16_bits_take_the_sums_of_dq_and_no_wide_copy) {
  const std::size_t sums = 2 * 512 * kWidth * sizeof(float);
  EXPECT_EQ(backward_allocations(DType::f32, 512), std::vector<std::size_t>{});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EXPECT_EQ(backward_allocations(dtype, 512), std::vector<std::size_t>{sums});
    EXPECT_EQ(backward_allocations(dtype, 8), std::vector<std::size_t>{});  // one chunk of keys
  }
}

}  // namespace
}  // namespace cephalo
