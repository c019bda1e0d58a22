#include "cephalo/train/gradient_exchange.h"

#include "cephalo/linear/add_tree.h"

namespace cephalo {
namespace {

MutableTensorView part_of_sum(const Part& part, const ShardNode& node,
                              const std::vector<GptGradients>& sums) {
  return elements_of(sums[node.buffer].tensors()[part.parameter], part.elements);
}

}  // namespace

GradientExchange::GradientExchange(World& world, const std::vector<Part>& parts, dim_t shards,
                                   DType dtype)
    : world_(world), parts_(parts) {
  std::vector<ShardNode> tree;
  for (int r = 0; r < world.size(); ++r) {
    // The nodes that a process is left with do not depend on how many shards it has at a time.
    const auto nodes = make_schedule(share_of(shards, r, world.size()), 1).nodes;
    for (std::size_t place = 0; place < nodes.size(); ++place) {
      push_node(tree, {nodes[place].shards, sources_.size()}, additions_);
      sources_.push_back({r, place});
    }
  }
  join_nodes(tree, additions_);
  for (const Part& part : parts) {
    if (part.owner != world.rank()) continue;
    std::vector<Tensor>& from_others = received_.emplace_back();
    for (const Source& source : sources_) {
      from_others.push_back(
          source.rank == world.rank() ? Tensor() : Tensor::empty({part.elements.count()}, dtype));
    }
  }
}

void GradientExchange::begin() {
  transfers_ = world_.transfers();
  std::size_t mine = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (parts_[p].owner != world_.rank()) continue;
    std::vector<Tensor>& from_others = received_[mine++];
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      if (sources_[s].rank == world_.rank()) continue;
      transfers_->receive(sources_[s].rank, static_cast<int>(p),
                          bytes_of(from_others[s].mutable_view()));
    }
  }
}

void GradientExchange::send(std::size_t first, std::size_t end, const std::vector<ShardNode>& nodes,
                            const std::vector<GptGradients>& sums) {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    if (part.owner == world_.rank() || part.parameter < first || part.parameter >= end) continue;
    for (const ShardNode& node : nodes) {
      const TensorView sum = part_of_sum(part, node, sums);
      transfers_->send(part.owner, static_cast<int>(p), bytes_of(sum));
    }
  }
  transfers_->progress();
}

std::vector<MutableTensorView> GradientExchange::finish(const std::vector<ShardNode>& nodes,
                                                        const std::vector<GptGradients>& sums) {
  transfers_->wait();
  std::vector<MutableTensorView> whole;
  std::size_t mine = 0;
  for (const Part& part : parts_) {
    if (part.owner != world_.rank()) continue;
    std::vector<Tensor>& from_others = received_[mine++];
    std::vector<MutableTensorView> terms;
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      const Source& source = sources_[s];
      terms.push_back(source.rank == world_.rank() ? part_of_sum(part, nodes[source.place], sums)
                                                   : from_others[s].mutable_view());
    }
    ops::add_tree(terms, additions_);
    whole.push_back(terms[0]);
  }
  return whole;
}

}  // namespace cephalo
