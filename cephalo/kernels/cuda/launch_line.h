#pragma once

#include <memory>

#include "cephalo/kernels/cuda/launches.h"

namespace cephalo::kernels::cuda {

// The graphs of a stream: lines of kernels that it launched before, to be launched again with other
// sizes and arguments. Of one stream, and used by one thread at a time.
class KeptGraphs {
 public:
  KeptGraphs();
  ~KeptGraphs();
  KeptGraphs(const KeptGraphs&) = delete;
  KeptGraphs& operator=(const KeptGraphs&) = delete;

 private:
  friend class LaunchLine;
  struct Content;
  std::unique_ptr<Content> content_;
};

// While this object lives, the kernels that this thread launches wait in a line.
class LaunchLine {
 public:
  // graphs: those of the stream; null: nobody waits, and each kernel is launched at once.
  LaunchLine(KeptGraphs* graphs, void* stream);
  ~LaunchLine();  // what still waits is never launched
  LaunchLine(const LaunchLine&) = delete;
  LaunchLine& operator=(const LaunchLine&) = delete;

  void add(const void* kernel, const KernelSize& size, const KernelArgument* arguments, int count);
  int launch();

 private:
  KeptGraphs::Content* content_;
  void* stream_;
  LaunchLine* before_;
};

}  // namespace cephalo::kernels::cuda
