#include "cephalo/attention/ring/ring_units.h"

#include <algorithm>
#include <utility>

namespace cephalo {
namespace {

// Fewer rows than the fused engine takes through its keys together would pack these more often.
constexpr dim_t kLeastRows = 1152;

bool intersect(const Share& a, const Share& b) {
  return a.begin < b.end && b.begin < a.end;
}

double flops_of_head(const RingCall& call, const RingPiece& q_rows, const RingPiece& kv_rows) {
  return 2.0 * static_cast<double>(call.q.dim(0) * call.group() * (call.q.dim(3) + call.v.dim(3))) *
         static_cast<double>(q_rows.whole.count()) * static_cast<double>(kv_rows.whole.count());
}

// Cut between blocks of rows: the kernels take some rows together, whose rounding may depend on
// each other, and these have to be the same ones however a piece is cut.
RingPiece part_of(const RingPiece& piece, int part, int parts) {
  constexpr dim_t kBlock = 192;  // a multiple of the rows that any of them takes together
  const dim_t count = piece.whole.count();
  const Share blocks = share_of((count + kBlock - 1) / kBlock, part, parts);
  const dim_t begin = blocks.begin * kBlock;
  const dim_t end = std::min(blocks.end * kBlock, count);
  return {piece.begin + begin, {piece.whole.begin + begin, piece.whole.begin + end}};
}

void add_cut(const RingCall& call, const RingPiece& q_piece, const RingPiece& kv_piece,
             const UnitSize& size, std::vector<RingUnit>& units) {
  const dim_t kv_heads = call.k.dim(1);
  const double of_head = flops_of_head(call, q_piece, call.seen_keys(q_piece, kv_piece));
  const double rest = size.by_heads ? of_head : of_head * static_cast<double>(kv_heads);
  const dim_t most_parts = std::max<dim_t>(1, q_piece.whole.count() / kLeastRows);
  const int parts =
      static_cast<int>(std::clamp(rest / size.flops, 1.0, static_cast<double>(most_parts)));
  const dim_t heads =
      size.by_heads
          ? static_cast<dim_t>(std::clamp(size.flops / of_head, 1.0, static_cast<double>(kv_heads)))
          : kv_heads;
  for (int part = 0; part < parts; ++part) {
    const RingPiece q_rows = part_of(q_piece, part, parts);
    const RingPiece kv_rows = call.seen_keys(q_rows, kv_piece);
    if (kv_rows.whole.count() == 0) continue;
    for (dim_t h = 0; h < kv_heads; h += heads) {
      units.push_back({q_rows, kv_rows, {h, std::min(h + heads, kv_heads)}});
    }
  }
}

}  // namespace

bool RingUnit::overlaps(const RingUnit& other) const {
  return intersect(q_rows.whole, other.q_rows.whole) && intersect(kv_heads, other.kv_heads);
}

std::vector<RingUnit> ring_units(const RingCall& call, int owner, const UnitSize& size) {
  std::vector<RingUnit> units;
  const int world = call.world.size();
  for (const RingPiece& q_piece : ring_pieces(call.tokens, call.world.rank(), world)) {
    for (const RingPiece& kv_piece : ring_pieces(call.tokens, owner, world)) {
      if (!call.meet(q_piece, kv_piece)) continue;
      if (size.flops > 0.0) {
        add_cut(call, q_piece, kv_piece, size, units);
      } else {
        units.push_back({q_piece, kv_piece, {0, call.k.dim(1)}});
      }
    }
  }
  return units;
}

void attend_unit(const RingCall& call, const RingUnit& unit, const AttendOutput& output,
                 const TensorView& q, const TensorView& k, const TensorView& v) {
  AttendOptions options = call.options_of(unit.q_rows, unit.kv_rows);
  options.place.heads = {q_heads_of(call, unit).begin, call.q.dim(1)};
  attend_into(output, q, k, v, call.mask_of(unit.q_rows, unit.kv_rows), options);
}

Share q_heads_of(const RingCall& call, const RingUnit& unit) {
  return {unit.kv_heads.begin * call.group(), unit.kv_heads.end * call.group()};
}

TensorView unit_queries(const RingCall& call, const RingUnit& unit) {
  const Share heads = q_heads_of(call, unit);
  const RingPiece& rows = unit.q_rows;
  return call.q.slice(1, heads.begin, heads.end)
      .slice(2, rows.begin, rows.begin + rows.whole.count());
}

TensorView unit_keys(const RingUnit& unit, const TensorView& keys) {
  const RingPiece& rows = unit.kv_rows;
  return keys.slice(1, unit.kv_heads.begin, unit.kv_heads.end)
      .slice(2, rows.begin, rows.begin + rows.whole.count());
}

UnitQueue::UnitQueue(std::vector<RingUnit> units)
    : units_(std::move(units)), begun_(units_.size()), left_(units_.size()) {}

RingUnit UnitQueue::begin(std::size_t n) {
  begun_[n] = true;
  --left_;
  return units_[n];
}

std::optional<RingUnit> UnitQueue::take_run(std::size_t most) {
  const auto first =
      static_cast<std::size_t>(std::find(begun_.begin(), begun_.end(), false) - begun_.begin());
  if (first == units_.size()) return std::nullopt;
  RingUnit run = begin(first);
  for (std::size_t n = first + 1; n < units_.size() && n < first + most; ++n) {
    const RingUnit& next = units_[n];
    const bool follows = next.q_rows.begin == run.q_rows.begin &&
                         next.kv_rows.whole.begin == run.kv_rows.whole.begin &&
                         next.kv_heads.begin == run.kv_heads.end;
    if (begun_[n] || !follows) break;
    run.kv_heads.end = begin(n).kv_heads.end;
  }
  return run;
}

}  // namespace cephalo
