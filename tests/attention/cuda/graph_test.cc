// Calls that are captured into a graph, and replayed: the same results, and dropout that follows a
// seed in device memory.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "cephalo/core/format.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo {
namespace {

using namespace testing;  // NOLINT: passes and their numbers are what this is about

// What `calls` queues on the stream that it is given, to be launched any number of times.
class CapturedCalls {
 public:
  explicit CapturedCalls(const std::function<void(cudaStream_t)>& calls) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaDeviceSynchronize());
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    calls(stream_);
    check(cudaStreamEndCapture(stream_, &graph_));
    check(cudaGraphInstantiate(&replay_, graph_, 0));
  }
  ~CapturedCalls() {
    cudaGraphExecDestroy(replay_);
    cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  void launch() { check(cudaGraphLaunch(replay_, stream_)); }
  void wait() { check(cudaStreamSynchronize(stream_)); }
  // In the order of launches.
  void write(std::uint64_t* to, const std::uint64_t& number) {
    check(cudaMemcpyAsync(to, &number, sizeof(number), cudaMemcpyHostToDevice, stream_));
  }

 private:
  static void check(cudaError_t error) { EXPECT_EQ(error, cudaSuccess); }

  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t replay_ = nullptr;
};

TEST_F(HopperTest, a_captured_call_can_be_replayed) {
  const Pass pass({2, 2, 2, 300, 300, 64}, DType::bf16);
  const Mask mask = lengths({300, 200}) & causal();
  const PassNumbers expected = pass.run(Engine::cuda, mask);
  const Tensor q = there(pass.q), k = there(pass.k), v = there(pass.v);
  Tensor context = Tensor::empty(pass.q.shape(), DType::bf16, kGpu);
  CapturedCalls calls([&](cudaStream_t stream) {
    attend_into({context}, q, k, v, mask, {.engine = Engine::cuda, .stream = stream});
  });
  for (int n = 0; n < 100; ++n) calls.launch();
  calls.wait();
  EXPECT_TRUE(same_bits(back(context), expected.context));
}

// One forward and one backward pass on the GPU, results where they stay.
struct PassThere {
  explicit PassThere(const Pass& pass)
      : q(there(pass.q)),
        k(there(pass.k)),
        v(there(pass.v)),
        dcontext(there(pass.dcontext)),
        dlse(there(pass.dlse)),
        context(there(pass.dcontext)),
        lse(there(pass.dlse)),
        dq(there(pass.q)),
        dk(there(pass.k)),
        dv(there(pass.v)) {}
  void run(const Mask& mask, const AttendOptions& options) {
    attend_into({context, lse}, q, k, v, mask, options);
    attend_backward_into({dq, dk, dv}, {context, lse, dcontext, dlse}, q, k, v, mask, options);
  }
  PassNumbers numbers() const {
    return {back(context), back(lse), back(dq), back(dk), back(dv), {}};
  }
  Tensor q, k, v, dcontext, dlse, context, lse, dq, dk, dv;
};

// Each replay drops what an eager call of that seed drops, forward and backward.
TEST_F(HopperTest, a_replayed_graph_draws_by_the_seed_that_it_finds_in_device_memory) {
  constexpr std::uint64_t kSeeds[] = {7, 0xFEDCBA9876543210, 7, 8};
  const std::pair<DType, dim_t> rows[] = {{DType::bf16, 64}, {DType::f16, 128}, {DType::f32, 64}};
  for (const Engine engine : {Engine::cuda, Engine::cuda_simple}) {
    for (const auto& [dtype, width] : rows) {
      SCOPED_TRACE(format_text("{} {} width {}", name(engine), name(dtype), width));
      const Pass pass({2, 4, 2, 130, 200, width}, dtype);
      const Mask mask = causal();
      Tensor seed = there(Tensor::zeros({1}, DType::i64));
      auto* seed_there = static_cast<std::uint64_t*>(seed.mutable_view().mutable_data());
      PassThere there_now(pass);
      AttendOptions options{.dropout = 0.3, .engine = engine, .device_seed = seed_there};
      CapturedCalls calls([&](cudaStream_t stream) {
        options.stream = stream;
        there_now.run(mask, options);
      });
      std::vector<PassNumbers> replays;
      for (const std::uint64_t each : kSeeds) {
        calls.write(seed_there, each);
        calls.launch();
        calls.wait();
        replays.push_back(there_now.numbers());
        const AttendOptions eager{.dropout = 0.3, .seed = each};
        const PassNumbers expected = pass.run(engine, mask, true, eager);
        if (engine == Engine::cuda_simple) {
          EXPECT_TRUE(same_numbers(replays.back(), expected)) << each;
        } else {
          expect_near(replays.back(), expected, dtype);
        }
      }
      EXPECT_TRUE(same_numbers(replays[0], replays[2]));
      EXPECT_GT(relative_difference(replays[1].context, replays[0].context), 0.1);
      EXPECT_GT(relative_difference(replays[3].dq, replays[0].dq), 0.1);
    }
  }
}

}  // namespace
}  // namespace cephalo
