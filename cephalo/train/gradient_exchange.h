#pragma once

#include <memory>
#include <vector>

#include "cephalo/train/parts.h"
#include "cephalo/train/shard_schedule.h"

namespace cephalo {

// The sum of gradients over processes, each of which gets the parts that it owns: what the others
// have added up of them arrives while they still compute, and is added in the order of shards,
// never of arrival.
class GradientExchange {
 public:
  // shards: of all processes together. parts: outlive this
  GradientExchange(World& world, const std::vector<Part>& parts, dim_t shards, DType dtype);

  // The step begins: from now on others may send.
  void begin();
  // Gradients of the parameters first .. end are added up as far as this process can. nodes, sums:
  // of its schedule, and what their buffers hold
  void send(std::size_t first, std::size_t end, const std::vector<ShardNode>& nodes,
            const std::vector<GptGradients>& sums);
  // -> the sum of all shards for each part of this process, [elements], until the next step
  std::vector<MutableTensorView> finish(const std::vector<ShardNode>& nodes,
                                        const std::vector<GptGradients>& sums);

 private:
  struct Source {
    int rank;
    std::size_t place;  // among the nodes of that process
  };

  World& world_;
  const std::vector<Part>& parts_;
  std::vector<Source> sources_;      // of all processes, from left to right
  std::vector<Addition> additions_;  // of sources
  // Of each part of this process, what each source of another has of it.
  std::vector<std::vector<Tensor>> received_;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace cephalo
