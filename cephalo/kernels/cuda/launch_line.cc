#include "cephalo/kernels/cuda/launch_line.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

namespace cephalo::kernels::cuda {
namespace {

// Of a stream. A model has two or three kinds of lines; what comes later is launched one by one.
constexpr std::size_t kMostGraphs = 32;

thread_local LaunchLine* open_line = nullptr;

struct Waiting {
  const void* kernel;
  KernelSize size;
  std::size_t first_argument;
};

dim3 grid_of(const KernelSize& size) {
  return {size.grid[0], size.grid[1], size.grid[2]};
}

int launch_now(const void* kernel, const KernelSize& size, void** arguments, void* stream) {
  return cudaLaunchKernel(kernel, grid_of(size), dim3(size.threads), arguments, size.shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

// A green context's streams have a share of the GPU, which a graph would not know of.
bool has_share_of_gpu(void* stream) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cudaGetDriverEntryPointByVersion("cuStreamGetGreenCtx", &function, 12050, cudaEnableDefault,
                                   &found);
  if (found != cudaDriverEntryPointSuccess) return false;
  CUgreenCtx context = nullptr;
  const auto ask = reinterpret_cast<decltype(&cuStreamGetGreenCtx)>(function);
  return ask(static_cast<CUstream>(stream), &context) != CUDA_SUCCESS || context != nullptr;
}

// What is made here is made for later: another thread's capture, which forbids such calls, is not
// concerned.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class Graph {
 public:
  // Of these kernels in this order; not ready before `make`.
  explicit Graph(const std::vector<cudaKernelNodeParams>& line) {
    for (const cudaKernelNodeParams& each : line) kernels_.push_back(each.func);
  }
  ~Graph() {
    if (ready_ != nullptr) cudaGraphExecDestroy(ready_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  bool is_of(const std::vector<cudaKernelNodeParams>& line) const {
    return std::equal(
        kernels_.begin(), kernels_.end(), line.begin(), line.end(),
        [](const void* kernel, const cudaKernelNodeParams& each) { return kernel == each.func; });
  }

  int make(const std::vector<cudaKernelNodeParams>& line, const std::vector<Waiting>& waiting,
           cudaStream_t stream) {
    const Relaxed relaxed;
    cudaLaunchAttributeValue value{};
    int error = cudaStreamGetPriority(stream, &value.priority);
    if (error == cudaSuccess) error = cudaGraphCreate(&graph_, 0);
    for (std::size_t n = 0; n < line.size(); ++n) {
      if (error != cudaSuccess) return error;
      cudaGraphNode_t node = nullptr;
      error = add(line[n], waiting[n].size.starts_early, &node);
      nodes_.push_back(node);
      // Nodes do not ask the stream that they are launched into.
      if (error == cudaSuccess && value.priority != 0) {
        error = cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &value);
      }
    }
    return error != cudaSuccess ? error : cudaGraphInstantiate(&ready_, graph_, 0);
  }

  bool is_ready() const { return ready_ != nullptr; }

  int set(const std::vector<cudaKernelNodeParams>& line) {
    for (std::size_t n = 0; n < line.size(); ++n) {
      const cudaError_t error = cudaGraphExecKernelNodeSetParams(ready_, nodes_[n], &line[n]);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
  int launch(cudaStream_t stream) { return cudaGraphLaunch(ready_, stream); }

 private:
  // Behind the last node.
  int add(const cudaKernelNodeParams& kernel, bool starts_early, cudaGraphNode_t* node) {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeKernel;
    params.kernel.func = kernel.func;
    params.kernel.gridDim = kernel.gridDim;
    params.kernel.blockDim = kernel.blockDim;
    params.kernel.sharedMemBytes = kernel.sharedMemBytes;
    params.kernel.kernelParams = kernel.kernelParams;
    cudaGraphEdgeData edge{};
    if (starts_early) {
      edge.from_port = cudaGraphKernelNodePortProgrammatic;
      edge.type = cudaGraphDependencyTypeProgrammatic;
    }
    const std::size_t before = nodes_.empty() ? 0 : 1;
    return cudaGraphAddNode(node, graph_, before == 0 ? nullptr : &nodes_.back(),
                            before == 0 ? nullptr : &edge, before, &params);
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t ready_ = nullptr;
  std::vector<const void*> kernels_;
  std::vector<cudaGraphNode_t> nodes_;
};

}  // namespace

// The line that waits, and the graphs of earlier ones. Vectors keep their memory for the next call.
struct KeptGraphs::Content {
  std::vector<Waiting> waiting;
  std::vector<std::byte> bytes;     // of arguments
  std::vector<std::size_t> begins;  // of each argument in `bytes`
  std::vector<void*> arguments;     // their addresses
  std::vector<cudaKernelNodeParams> line;
  std::vector<std::unique_ptr<Graph>> graphs;

  void describe_line();
  Graph* graph_of_line(cudaStream_t stream);
  int launch_one_by_one(void* stream);
  void forget_line();
};

void KeptGraphs::Content::describe_line() {
  arguments.clear();
  for (const std::size_t begin : begins) arguments.push_back(bytes.data() + begin);
  line.clear();
  for (const Waiting& each : waiting) {
    cudaKernelNodeParams node{};
    node.func = const_cast<void*>(each.kernel);
    node.gridDim = grid_of(each.size);
    node.blockDim = dim3(each.size.threads);
    node.sharedMemBytes = static_cast<unsigned>(each.size.shared_bytes);
    node.kernelParams = arguments.data() + each.first_argument;
    line.push_back(node);
  }
}

// Null: there is none, and none can be made.
Graph* KeptGraphs::Content::graph_of_line(cudaStream_t stream) {
  for (const auto& each : graphs) {
    if (each->is_of(line)) return each->is_ready() ? each.get() : nullptr;
  }
  if (graphs.size() == kMostGraphs) return nullptr;
  Graph& made = *graphs.emplace_back(std::make_unique<Graph>(line));
  // What cannot be made is remembered, and not tried again.
  const bool may_be_made = !has_share_of_gpu(stream);
  if (may_be_made && made.make(line, waiting, stream) != cudaSuccess) cudaGetLastError();
  return made.is_ready() ? &made : nullptr;
}

int KeptGraphs::Content::launch_one_by_one(void* stream) {
  for (const Waiting& each : waiting) {
    const int error =
        launch_now(each.kernel, each.size, arguments.data() + each.first_argument, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void KeptGraphs::Content::forget_line() {
  waiting.clear();
  bytes.clear();
  begins.clear();
}

KeptGraphs::KeptGraphs() : content_(std::make_unique<Content>()) {}
KeptGraphs::~KeptGraphs() = default;

LaunchLine::LaunchLine(KeptGraphs* graphs, void* stream)
    : content_(graphs == nullptr ? nullptr : graphs->content_.get()),
      stream_(stream),
      before_(open_line) {
  open_line = content_ == nullptr ? nullptr : this;
}

LaunchLine::~LaunchLine() {
  if (content_ != nullptr) content_->forget_line();
  open_line = before_;
}

void LaunchLine::add(const void* kernel, const KernelSize& size, const KernelArgument* arguments,
                     int count) {
  constexpr std::size_t kAligned = 16;
  content_->waiting.push_back({kernel, size, content_->begins.size()});
  for (int n = 0; n < count; ++n) {
    std::vector<std::byte>& bytes = content_->bytes;
    bytes.resize((bytes.size() + kAligned - 1) / kAligned * kAligned);
    content_->begins.push_back(bytes.size());
    const auto* from = static_cast<const std::byte*>(arguments[n].data);
    bytes.insert(bytes.end(), from, from + arguments[n].bytes);
  }
}

int LaunchLine::launch() {
  if (content_ == nullptr || content_->waiting.empty()) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(stream_);
  content_->describe_line();
  Graph* graph = content_->waiting.size() > 1 ? content_->graph_of_line(stream) : nullptr;
  int error = cudaSuccess;
  if (graph != nullptr && graph->set(content_->line) == cudaSuccess) {
    error = graph->launch(stream);
  } else {
    if (graph != nullptr) cudaGetLastError();  // it was heard
    error = content_->launch_one_by_one(stream_);
  }
  content_->forget_line();
  return error;
}

int launch_kernel(const void* kernel, const KernelSize& size, const KernelArgument* arguments,
                  int count, void* stream) {
  if (open_line != nullptr) {
    open_line->add(kernel, size, arguments, count);
    return cudaSuccess;
  }
  constexpr int kMostArguments = 8;
  if (count > kMostArguments) return cudaErrorInvalidValue;
  void* addresses[kMostArguments];
  for (int n = 0; n < count; ++n) addresses[n] = const_cast<void*>(arguments[n].data);
  return launch_now(kernel, size, addresses, stream);
}

int launch_waiting() {
  return open_line == nullptr ? cudaSuccess : open_line->launch();
}

}  // namespace cephalo::kernels::cuda
