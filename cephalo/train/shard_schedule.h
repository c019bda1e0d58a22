#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cephalo/linear/add_tree.h"
#include "cephalo/world/world.h"

namespace cephalo {

// How the shards of a step add up: as a balanced binary tree by index, whoever computes them. Two
// neighbours that are the halves of a whole subtree are added as soon as both are there; what is
// left over at the end of all is added from the right. Where a sum lies is a buffer's number.

struct ShardNode {
  Share shards;        // that are added up in there
  std::size_t buffer;  // where
};
using ops::Addition;  // of buffers

// Puts a node to the right of all others; `additions` gets what can be added now.
void push_node(std::vector<ShardNode>& nodes, const ShardNode& node,
               std::vector<Addition>& additions);
// There are no more: one node is left.
void join_nodes(std::vector<ShardNode>& nodes, std::vector<Addition>& additions);
// The same for one number of each shard.
double tree_sum(std::vector<double> numbers);

// Shards that are computed at the same time, and what is added when they are done.
struct ShardWave {
  std::vector<ShardNode> shards;  // one in each node
  std::vector<Addition> additions;
};
// What one process does with its shards in a step.
struct ShardSchedule {
  std::vector<ShardWave> waves;
  std::vector<ShardNode> nodes;  // what is left for the sum over processes, from left to right
  std::size_t buffers = 0;       // of gradients, that this takes
};
// beside: shards at the same time
ShardSchedule make_schedule(const Share& mine, dim_t beside);

// How many of `shards` to compute at the same time, one thread each: as many as there are threads,
// or 1 where that would leave more than a quarter of them idle.
dim_t shards_beside(dim_t shards, int threads);

}  // namespace cephalo
