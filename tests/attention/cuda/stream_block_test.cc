// Memory that stays with a stream: whose it is, what is in it when a call starts, and that calls
// which share it or do without it compute the same.
#include "cephalo/attention/cuda/stream_block.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "cephalo/core/allocator.h"
#include "cephalo/kernels/cuda/copy.h"
#include "cephalo/kernels/cuda/launch_line.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

class Stream {
 public:
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

using Words = std::array<unsigned, 4>;

std::span<const std::byte> bytes_of(const Words& words) {
  return std::as_bytes(std::span(words));
}
Words read(const void* from, const Stream& stream) {
  Words words{};
  EXPECT_EQ(
      cudaMemcpyAsync(words.data(), from, sizeof(words), cudaMemcpyDeviceToHost, stream.get()),
      cudaSuccess);
  stream.wait();
  return words;
}
void scribble(unsigned* counters, const Stream& stream) {
  EXPECT_EQ(cudaMemsetAsync(counters, 0x55, sizeof(Words), stream.get()), cudaSuccess);
}

// A pass on one stream, and what it gives on the default one.
class Calls {
 public:
  explicit Calls(std::uint64_t seed, const Mask& mask)
      : pass_({1, 2, 2, 300, 300, 64}, DType::bf16, seed),
        mask_(mask),
        expected_(pass_.run(Engine::cuda, mask)),
        q_(there(pass_.q)),
        k_(there(pass_.k)),
        v_(there(pass_.v)),
        dcontext_(there(pass_.dcontext)),
        dlse_(there(pass_.dlse)) {
    for (Tensor* t : {&context_, &dq_, &dk_, &dv_}) *t = there(pass_.q);
    lse_ = there(pass_.dlse);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void run(cudaStream_t stream) {
    const AttendOptions options{.engine = Engine::cuda, .stream = stream};
    attend_into({context_, lse_}, q_, k_, v_, mask_, options);
    attend_backward_into({dq_, dk_, dv_}, {context_, lse_, dcontext_, dlse_}, q_, k_, v_, mask_,
                         options);
  }
  // After the stream was waited for.
  bool are_right() const {
    return same_bits(back(context_), expected_.context) && same_bits(back(lse_), expected_.lse) &&
           same_bits(back(dq_), expected_.dq) && same_bits(back(dk_), expected_.dk) &&
           same_bits(back(dv_), expected_.dv);
  }

 private:
  Pass pass_;
  Mask mask_;
  PassNumbers expected_;
  Tensor q_, k_, v_, dcontext_, dlse_, context_, lse_, dq_, dk_, dv_;
};

TEST_F(HopperTest, a_stream_keeps_its_block_and_two_streams_have_two) {
  const Stream first, second;
  const auto work_of = [](const Stream& stream) {
    const UseStream use(stream.get());
    return StreamBlock().work();
  };
  EXPECT_EQ(work_of(first), work_of(first));
  EXPECT_NE(work_of(first), work_of(second));
}

TEST_F(HopperTest, a_stream_that_is_made_again_has_a_block_of_its_own) {
  Calls calls(1, causal());
  std::vector<std::byte*> blocks;
  for (int n = 0; n < 3; ++n) {
    const Stream stream;
    calls.run(stream.get());
    const UseStream use(stream.get());
    blocks.push_back(StreamBlock().work());
    stream.wait();
    EXPECT_TRUE(calls.are_right());
  }
  EXPECT_NE(blocks[0], blocks[1]);
  EXPECT_NE(blocks[1], blocks[2]);
}

TEST_F(HopperTest, only_one_call_at_a_time_has_a_block) {
  const Stream stream;
  const UseStream use(stream.get());
  const StreamBlock block;
  EXPECT_TRUE(block.is_there());
  std::thread([&] {
    const UseStream also(stream.get());
    EXPECT_FALSE(StreamBlock().is_there());
  }).join();
}

TEST_F(HopperTest, numbers_stay_until_eight_others_came) {
  const Stream stream;
  const UseStream use(stream.get());
  const auto numbers = [](unsigned n) { return Words{n, n + 1, n + 2, n + 3}; };
  const std::byte* first = StreamBlock().numbers(bytes_of(numbers(0)));
  for (unsigned n = 1; n < 20; ++n) {
    const std::byte* at = StreamBlock().numbers(bytes_of(numbers(n)));
    EXPECT_EQ(read(at, stream), numbers(n));
    EXPECT_EQ(at == first, n % 8 == 0);
    if (n < 8) {
      EXPECT_EQ(StreamBlock().numbers(bytes_of(numbers(0))), first);
      EXPECT_EQ(read(first, stream), numbers(0));
    }
  }
}

TEST_F(HopperTest, counters_are_0_when_a_call_starts_even_after_one_that_failed) {
  const Stream stream;
  const UseStream use(stream.get());
  const Words zeros{};
  for (int call = 0; call < 6; ++call) {
    StreamBlock block;
    const StreamBlock::Counters counters = block.counters();
    EXPECT_NE(counters.now, counters.next);
    EXPECT_EQ(read(counters.now, stream), zeros) << call;
    scribble(counters.now, stream);
    if (call % 3 == 1) continue;  // fails
    EXPECT_EQ(cudaMemsetAsync(counters.next, 0, sizeof(Words), stream.get()), cudaSuccess);
    block.cleared_next();
  }
  {
    StreamBlock block;
    const StreamBlock::Counters counters = block.counters();
    scribble(counters.now, stream);
    scribble(counters.next, stream);
  }
  Calls calls(1, causal());
  calls.run(stream.get());
  stream.wait();
  EXPECT_TRUE(calls.are_right());
}

// Two kernels, so that there is a graph, launched again with other addresses and sizes.
TEST_F(HopperTest, kernels_wait_in_a_line_until_it_is_launched_and_are_dropped_with_it) {
  const Stream stream;
  const UseStream use(stream.get());
  StreamBlock block;
  auto* words = reinterpret_cast<unsigned*>(block.work());
  constexpr std::size_t kRow = 1024, kRows = 6;  // words
  EXPECT_EQ(cudaMemsetAsync(words, 0x55, kRow * kRows * 4, stream.get()), cudaSuccess);
  const auto row = [&](std::size_t n) { return words + n * kRow; };
  const auto clear = [&](std::size_t n, std::size_t count) {
    EXPECT_EQ(kernels::cuda::clear(row(n), count * 4, stream.get()), cudaSuccess);
  };
  const Words zeros{}, full{0x55555555, 0x55555555, 0x55555555, 0x55555555};
  {
    kernels::cuda::LaunchLine line(block.graphs(), stream.get());
    clear(0, kRow);
    clear(1, kRow);
    EXPECT_EQ(read(row(0), stream), full);
  }
  EXPECT_EQ(read(row(0), stream), full);
  for (const std::size_t n : {0, 2, 4}) {
    kernels::cuda::LaunchLine line(block.graphs(), stream.get());
    clear(n, kRow);
    clear(n + 1, 16 * (n + 1));
    EXPECT_EQ(line.launch(), cudaSuccess);
    EXPECT_EQ(read(row(n) + kRow - 4, stream), zeros);
    EXPECT_EQ(read(row(n + 1), stream), zeros);
    EXPECT_EQ(read(row(n + 1) + 16 * (n + 1) - 4, stream), zeros);
    EXPECT_EQ(read(row(n + 1) + 16 * (n + 1), stream), full);
  }
  clear(1, kRow);  // no line is open
  EXPECT_EQ(read(row(1) + kRow - 4, stream), zeros);
}

TEST_F(HopperTest, masks_that_take_turns_find_their_numbers) {
  const Stream stream;
  std::vector<Mask> masks{causal(), window(20, 0), causal(50), lengths({200}),
                          alibi({0.5F, 0.25F})};
  for (dim_t left = 30; left < 40; ++left) masks.push_back(window(left, 5));
  std::vector<std::unique_ptr<Calls>> all;
  for (const Mask& mask : masks) all.push_back(std::make_unique<Calls>(1, mask));
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const auto& calls : all) calls->run(stream.get());
  }
  stream.wait();
  for (const auto& calls : all) EXPECT_TRUE(calls->are_right());
}

void run_in_threads(const std::vector<std::function<void()>>& jobs) {
  std::vector<std::thread> threads;
  for (const auto& job : jobs) threads.emplace_back(job);
  for (std::thread& each : threads) each.join();
}

TEST_F(HopperTest, threads_on_two_streams_do_not_disturb_each_other) {
  const Stream first, second;
  Calls one(1, causal()), other(9, window(40, 7));
  run_in_threads({[&] {
                    for (int n = 0; n < 100; ++n) one.run(first.get());
                  },
                  [&] {
                    for (int n = 0; n < 100; ++n) other.run(second.get());
                  }});
  first.wait();
  second.wait();
  EXPECT_TRUE(one.are_right());
  EXPECT_TRUE(other.are_right());
}

TEST_F(HopperTest, threads_on_one_stream_do_not_disturb_each_other) {
  const Stream stream;
  Calls one(1, causal()), other(9, window(40, 7)), third(5, lengths({100}));
  std::vector<std::function<void()>> jobs;
  for (Calls* calls : {&one, &other, &third}) {
    jobs.emplace_back([&stream, calls] {
      for (int n = 0; n < 100; ++n) calls->run(stream.get());
    });
  }
  run_in_threads(jobs);
  stream.wait();
  for (const Calls* calls : {&one, &other, &third}) EXPECT_TRUE(calls->are_right());
}

// Its replays run beside calls on the stream that it was captured from.
TEST_F(HopperTest, a_graph_has_memory_of_its_own) {
  const Stream stream, beside;
  Calls captured(1, causal()), eager(9, window(40, 7));
  captured.run(stream.get());  // the stream has its block
  stream.wait();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  {
    const UseStream use(stream.get());
    EXPECT_FALSE(StreamBlock().is_there());
  }
  captured.run(stream.get());
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int n = 0; n < 100; ++n) {
    ASSERT_EQ(cudaGraphLaunch(replay, beside.get()), cudaSuccess);
    eager.run(stream.get());
  }
  stream.wait();
  beside.wait();
  EXPECT_TRUE(captured.are_right());
  EXPECT_TRUE(eager.are_right());
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

// The last one: no other stream of this process gets a block from here on.
TEST_F(HopperTest, streams_beyond_those_that_have_blocks_are_served_as_well) {
  const std::vector<Stream> streams(80);
  Calls calls(1, causal());
  for (const Stream& stream : streams) {
    calls.run(stream.get());
    stream.wait();
  }
  EXPECT_TRUE(calls.are_right());
  const UseStream use(streams.back().get());
  EXPECT_FALSE(StreamBlock().is_there());
}

}  // namespace
}  // namespace cephalo
