#pragma once

// Inside the library only.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "cephalo/attention/ring/ring_rows.h"

namespace cephalo {

// Queries of one process against keys of another, of some heads: what is attended to in one go.
struct RingUnit {
  RingPiece q_rows;
  RingPiece kv_rows;
  Share kv_heads;

  // Do both have results for one row?
  bool overlaps(const RingUnit& other) const;
};

// How large units are. Those of a process with one thread are some heads of a piece, so that it
// looks at messages now and then; more threads want all heads at once, and share them.
struct UnitSize {
  double flops = 0.0;  // at most, if it can be; 0: whole pieces
  bool by_heads = false;
};

// What a process has to attend to while it has the keys of `owner`. Units with the same rows are in
// the order in which they join.
std::vector<RingUnit> ring_units(const RingCall& call, int owner, const UnitSize& size);

// q: [batch, heads of the unit, its rows, head_dim]; k, v likewise.
void attend_unit(const RingCall& call, const RingUnit& unit, const AttendOutput& output,
                 const TensorView& q, const TensorView& k, const TensorView& v);

// The heads of q that a unit has.
Share q_heads_of(const RingCall& call, const RingUnit& unit);
TensorView unit_queries(const RingCall& call, const RingUnit& unit);
// keys: k or v of the process that owns the unit's keys
TensorView unit_keys(const RingUnit& unit, const TensorView& keys);

// Units that nobody has begun.
class UnitQueue {
 public:
  UnitQueue() = default;
  explicit UnitQueue(std::vector<RingUnit> units);

  std::size_t left() const { return left_; }
  // The first that can(unit) be begun; none: all have to wait. One with rows of an earlier unit
  // that waits has to wait as well, or it would join before that.
  template <typename Can>
  std::optional<RingUnit> take_first(const Can& can) {
    std::vector<const RingUnit*> waiting;
    for (std::size_t n = 0; n < units_.size(); ++n) {
      if (begun_[n]) continue;
      const RingUnit& unit = units_[n];
      const bool in_turn =
          std::none_of(waiting.begin(), waiting.end(),
                       [&](const RingUnit* earlier) { return earlier->overlaps(unit); });
      if (in_turn && can(unit)) return begin(n);
      waiting.push_back(&unit);
    }
    return std::nullopt;
  }
  // Up to `most` from the front, as one: neighbouring heads of the same rows.
  std::optional<RingUnit> take_run(std::size_t most);

 private:
  RingUnit begin(std::size_t n);

  std::vector<RingUnit> units_;
  std::vector<bool> begun_;
  std::size_t left_ = 0;
};

}  // namespace cephalo
