#include "cephalo/train/shard_schedule.h"

#include <algorithm>
#include <bit>

namespace cephalo {
namespace {

// The two halves of a subtree.
bool are_halves(const Share& left, const Share& right) {
  const dim_t count = left.count();
  return right.count() == count && std::has_single_bit(static_cast<std::uint64_t>(count)) &&
         left.begin % (2 * count) == 0;
}

void add_last_two(std::vector<ShardNode>& nodes, std::vector<Addition>& additions) {
  const ShardNode right = nodes.back();
  nodes.pop_back();
  additions.push_back({nodes.back().buffer, right.buffer});
  nodes.back().shards.end = right.shards.end;
}

}  // namespace

void push_node(std::vector<ShardNode>& nodes, const ShardNode& node,
               std::vector<Addition>& additions) {
  nodes.push_back(node);
  while (nodes.size() > 1 && are_halves(nodes[nodes.size() - 2].shards, nodes.back().shards)) {
    add_last_two(nodes, additions);
  }
}

void join_nodes(std::vector<ShardNode>& nodes, std::vector<Addition>& additions) {
  while (nodes.size() > 1) add_last_two(nodes, additions);
}

double tree_sum(std::vector<double> numbers) {
  std::vector<ShardNode> nodes;
  std::vector<Addition> additions;
  for (dim_t s = 0; s < std::ssize(numbers); ++s) {
    push_node(nodes, {{s, s + 1}, static_cast<std::size_t>(s)}, additions);
  }
  join_nodes(nodes, additions);
  for (const Addition& each : additions) numbers[each.to] += numbers[each.from];
  return numbers.empty() ? 0.0 : numbers[0];
}

ShardSchedule make_schedule(const Share& mine, dim_t beside) {
  ShardSchedule schedule;
  std::vector<std::size_t> free;
  for (dim_t first = mine.begin; first < mine.end; first += beside) {
    ShardWave& wave = schedule.waves.emplace_back();
    for (dim_t s = first; s < std::min(mine.end, first + beside); ++s) {
      if (free.empty()) free.push_back(schedule.buffers++);
      wave.shards.push_back({{s, s + 1}, free.back()});
      free.pop_back();
    }
    for (const ShardNode& shard : wave.shards) push_node(schedule.nodes, shard, wave.additions);
    for (const Addition& each : wave.additions) free.push_back(each.from);
  }
  return schedule;
}

dim_t shards_beside(dim_t shards, int threads) {
  if (shards <= 1 || threads <= 1) return 1;
  const dim_t waves = (shards + threads - 1) / threads;
  return 4 * shards >= 3 * waves * threads ? std::min<dim_t>(shards, threads) : 1;
}

}  // namespace cephalo
