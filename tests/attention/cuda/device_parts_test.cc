// Parts of a mask whose numbers are on the GPU against the same parts of the host's memory.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "tests/attention/cuda/masks.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

// The same mask with every number on the GPU that can be there; it borrows them from here.
class MaskThere {
 public:
  Mask operator()(const Mask& mask, bool in_order = false) {
    Mask moved = mask;
    if (mask.causal_prefix) {
      moved.causal_prefix.reset();
      moved = moved & causal(own(there(numbers(*mask.causal_prefix))));
    }
    if (mask.lengths) {
      moved.lengths.reset();
      const Tensor& kv = own(there(numbers(mask.lengths->kv)));
      moved = moved &
              (mask.lengths->q ? lengths(kv, own(there(numbers(*mask.lengths->q)))) : lengths(kv));
    }
    if (mask.documents) {
      moved.documents.reset();
      const Tensor &q = own(there(mask.documents->q_ids)), &kv = own(there(mask.documents->kv_ids));
      moved = moved & (in_order ? documents_in_order(q, kv) : documents(q, kv));
    }
    if (!mask.alibi.empty()) {
      moved.alibi.clear();
      for (const std::vector<float>& slopes : mask.alibi) {
        Tensor here = Tensor::zeros({static_cast<dim_t>(slopes.size())});
        std::copy(slopes.begin(), slopes.end(), here.mutable_data_as<float>());
        moved = moved & alibi(own(there(here)));
      }
    }
    return moved;
  }

 private:
  static Tensor numbers(const std::vector<dim_t>& from) {
    Tensor t = Tensor::zeros({static_cast<dim_t>(from.size())}, DType::i64);
    std::copy(from.begin(), from.end(), t.mutable_data_as<std::int64_t>());
    return t;
  }
  const Tensor& own(Tensor&& t) { return owned_.emplace_back(std::move(t)); }
  std::deque<Tensor> owned_;
};

const Pass::Sizes kSizes[] = {{1, 2, 2, 1, 1, 64},
                              {2, 4, 2, 97, 97, 128},
                              {1, 2, 1, 257, 97, 64},
                              {2, 2, 2, 97, 257, 128},
                              {3, 2, 1, 700, 700, 64}};

TEST_F(HopperTest, lengths_and_prefixes_on_the_gpu_agree_with_the_hosts) {
  for (const Pass::Sizes& s : kSizes) {
    const Pass pass(s, DType::bf16);
    for (const Mask& mask : masks_by_position(s.batch, s.q_tokens, s.kv_tokens)) {
      if (!mask.lengths && !mask.causal_prefix) continue;
      SCOPED_TRACE(format_text("tokens {}/{} {}", s.q_tokens, s.kv_tokens, mask.to_string()));
      MaskThere moved;
      const Mask on_gpu = moved(mask);
      const PassNumbers expected = pass.run(Engine::cuda_simple, mask);
      EXPECT_TRUE(same_numbers(pass.run(Engine::cuda_simple, on_gpu), expected));
      expect_near(pass.run(Engine::cuda, on_gpu), expected, DType::bf16);
      expect_near(pass.run(Engine::cuda, on_gpu, false), expected, DType::bf16);
    }
  }
}

TEST_F(HopperTest, parts_by_content_on_the_gpu_agree_with_the_hosts) {
  for (const Pass::Sizes& s : kSizes) {
    const Pass pass(s, DType::bf16);
    for (const auto& [name, mask] : masks_by_content(s, DType::bf16)) {
      SCOPED_TRACE(format_text("tokens {}/{} {}", s.q_tokens, s.kv_tokens, name));
      MaskThere moved;
      const Mask on_gpu = moved(mask);
      const PassNumbers expected = pass.run(Engine::cuda_simple, mask);
      EXPECT_TRUE(same_numbers(pass.run(Engine::cuda_simple, on_gpu), expected));
      expect_near(pass.run(Engine::cuda, on_gpu), expected, DType::bf16);
      expect_near(pass.run(Engine::cuda, on_gpu, false), expected, DType::bf16);
    }
  }
}

TEST_F(HopperTest, documents_known_to_be_in_order_agree_with_the_hosts) {
  for (const dim_t width : {64, 128}) {
    for (const auto& [q_tokens, kv_tokens] :
         {std::pair<dim_t, dim_t>{97, 97}, {1500, 1500}, {300, 900}}) {
      const Pass::Sizes s{2, 2, 1, q_tokens, kv_tokens, width};
      const Pass pass(s, DType::bf16);
      Tensor kv_ids = ids_in_stretches({2, kv_tokens}, 3, 2);
      Tensor q_ids = Tensor::zeros({2, q_tokens}, DType::i64);
      for (dim_t b = 0; b < 2; ++b) {
        for (dim_t i = 0; i < q_tokens; ++i)
          q_ids.set({b, i}, kv_ids.at({b, i * kv_tokens / q_tokens}));
        for (dim_t i = q_tokens - 20; i < q_tokens; ++i) q_ids.set({b, i}, -1);
      }
      for (const Mask& mask : {documents(q_ids, kv_ids), documents(q_ids, kv_ids) & causal(),
                               documents(q_ids, kv_ids) & window(100, 7)}) {
        SCOPED_TRACE(
            format_text("tokens {}/{} width {} {}", q_tokens, kv_tokens, width, mask.to_string()));
        MaskThere moved;
        expect_near(pass.run(Engine::cuda, moved(mask, true)), pass.run(Engine::cuda_simple, mask),
                    DType::bf16);
      }
    }
  }
}

// Nobody looks at them on the host: results are some, but nothing hangs and nothing else is
// touched.
TEST_F(HopperTest, ids_that_are_not_in_order_after_all_do_no_harm) {
  const Pass pass({2, 2, 1, 700, 900, 64}, DType::bf16);
  Tensor q_ids = Tensor::zeros({2, 700}, DType::i64), kv_ids = Tensor::zeros({2, 900}, DType::i64);
  for (dim_t n = 0; n < q_ids.numel(); ++n)
    q_ids.mutable_data_as<std::int64_t>()[n] = n * 7919 % 31 - 1;
  for (dim_t n = 0; n < kv_ids.numel(); ++n)
    kv_ids.mutable_data_as<std::int64_t>()[n] = n * 104729 % 29 - 2;
  MaskThere moved;
  const Mask mask = moved(documents(q_ids, kv_ids) & causal(), true);
  for (int n = 0; n < 3; ++n) pass.run(Engine::cuda, mask);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// ids: of which sequence each of the tokens is, -1 behind the last.
Tensor ids_of(const std::vector<dim_t>& ends, dim_t tokens) {
  Tensor ids = Tensor::zeros({1, tokens}, DType::i64);
  auto* to = ids.mutable_data_as<std::int64_t>();
  std::fill(to, to + tokens, -1);
  for (std::size_t n = 0; n + 1 < ends.size(); ++n) {
    std::fill(to + ends[n], to + ends[n + 1], static_cast<std::int64_t>(n));
  }
  return ids;
}
Tensor ends_there(const std::vector<dim_t>& ends, DType dtype) {
  Tensor t = Tensor::zeros({static_cast<dim_t>(ends.size())}, DType::i64);
  std::copy(ends.begin(), ends.end(), t.mutable_data_as<std::int64_t>());
  return there(Tensor::copy(t, dtype));
}

TEST_F(HopperTest, packed_sequences_are_documents_by_their_ends) {
  const std::pair<std::vector<dim_t>, std::vector<dim_t>> all[] = {
      {{0, 97}, {0, 97}},
      {{0, 50, 50, 97}, {0, 50, 50, 97}},
      {{0, 1, 64, 65, 129, 700}, {0, 1, 64, 65, 129, 700}},
      {{0, 30, 60, 300}, {0, 200, 200, 641}},
      {{0, 100, 500}, {0, 100, 500}},  // 700 tokens: the last are of none
      {{0}, {0}}};
  for (const auto& [q_ends, kv_ends] : all) {
    const dim_t q_tokens = q_ends.back() == 500 ? 700 : std::max<dim_t>(q_ends.back(), 33);
    const dim_t kv_tokens = kv_ends.back() == 500 ? 700 : std::max<dim_t>(kv_ends.back(), 33);
    const Pass pass({1, 4, 2, q_tokens, kv_tokens, 64}, DType::bf16);
    const Mask expected = documents(ids_of(q_ends, q_tokens), ids_of(kv_ends, kv_tokens));
    for (const DType dtype : {DType::i32, DType::i64}) {
      const Tensor q_there = ends_there(q_ends, dtype), kv_there = ends_there(kv_ends, dtype);
      const Mask packed = packed_sequences(q_there, kv_there);
      for (const Mask& more : {Mask(), causal(), window(40, 7)}) {
        SCOPED_TRACE(format_text("tokens {}/{} {}", q_tokens, kv_tokens, more.to_string()));
        const PassNumbers right = pass.run(Engine::cuda_simple, expected & more);
        EXPECT_TRUE(same_numbers(pass.run(Engine::cuda_simple, packed & more), right));
        expect_near(pass.run(Engine::cuda, packed & more), right, DType::bf16);
      }
    }
  }
}

TEST_F(HopperTest, ends_that_fall_or_lie_outside_do_no_harm) {
  const Pass pass({1, 2, 1, 700, 900, 64}, DType::bf16);
  const Tensor q_ends = ends_there({5, 900, -3, 2000, 100, 100, 50}, DType::i32);
  const Tensor kv_ends = ends_there({0, 10, 5000, 7, 300, -1, 800}, DType::i64);
  const Mask mask = packed_sequences(q_ends, kv_ends) & causal();
  for (int n = 0; n < 3; ++n) pass.run(Engine::cuda, mask);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(HopperTest, numbers_out_of_range_count_as_the_nearest_inside) {
  const Pass pass({2, 2, 2, 97, 130, 64}, DType::bf16);
  const Tensor far = there(Tensor::of({1000, -5}, DType::i32));
  const Tensor slopes = there(Tensor::of({-1.0, 0.25}));
  const Mask outside = lengths(far) & causal() & alibi(slopes);
  const Mask inside = lengths({130, 0}) & causal() & alibi({0.0F, 0.25F});
  for (const Engine engine : {Engine::cuda, Engine::cuda_simple}) {
    EXPECT_TRUE(same_numbers(pass.run(engine, outside), pass.run(engine, inside)));
  }
}

// A rectangle of a larger problem: numbers are the whole's.
TEST_F(HopperTest, a_rectangle_reads_its_own_numbers) {
  const Pass pass({1, 1, 1, 64, 100, 64}, DType::bf16);
  AttendOptions options;
  options.place.batch = {.begin = 1, .whole = 3};
  options.place.heads = {.begin = 1, .whole = 2};
  options.place.q_tokens = {.begin = 32, .whole = 120};
  options.place.kv_tokens = {.begin = 20, .whole = 130};
  Tensor q_ids = ids_in_stretches({3, 120}, 3, 1), kv_ids = ids_in_stretches({3, 130}, 3, 1);
  const Mask masks[] = {lengths({130, 90, 5}, {120, 70, 9}) & causal(),
                        causal({3, 60, 1}) & window(70, 40),
                        documents(q_ids, kv_ids) & alibi({0.5F, 0.125F})};
  for (const Mask& mask : masks) {
    MaskThere moved;
    EXPECT_TRUE(same_numbers(pass.run(Engine::cuda_simple, moved(mask), true, options),
                             pass.run(Engine::cuda_simple, mask, true, options)))
        << mask.to_string();
  }
}

TEST_F(HopperTest, a_replayed_call_reads_the_lengths_that_are_there_then) {
  const Pass pass({2, 2, 2, 300, 300, 64}, DType::bf16);
  const Tensor q = there(pass.q), k = there(pass.k), v = there(pass.v);
  Tensor filled = there(Tensor::of({300, 300}, DType::i64));
  Tensor context = Tensor::empty(pass.q.shape(), DType::bf16, kGpu);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  attend_into({context}, q, k, v, lengths(filled), {.engine = Engine::cuda, .stream = stream});
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (const dim_t length : {300, 130, 1}) {
    const std::int64_t now[2] = {length, 300};
    ASSERT_EQ(
        cudaMemcpy(filled.mutable_view().mutable_data(), now, sizeof(now), cudaMemcpyHostToDevice),
        cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const PassNumbers expected = pass.run(Engine::cuda, lengths({length, 300}));
    EXPECT_LE(relative_difference(back(context), expected.context), 8e-3) << length;
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(HopperTest, parts_on_the_gpu_that_do_not_fit_are_named) {
  const Tensor q = there(normal({2, 3, 8, 64}, 1, DType::bf16));
  const Tensor three = there(Tensor::of({1, 2, 3}, DType::i32));
  const Tensor slopes = there(Tensor::of({0.5, 0.5}));
  const auto error = [&](const Mask& mask) {
    try {
      attend(q, q, q, mask);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(error(lengths(three)), "attend: lengths(kv) has 3 entries, batch is 2");
  EXPECT_EQ(error(documents(three)), "attend: documents ids [3] must be [2 (batch), 8 (q_tokens)]");
  EXPECT_EQ(error(alibi(slopes)), "attend: alibi has 2 slopes, num_heads is 3");
}

}  // namespace
}  // namespace cephalo
