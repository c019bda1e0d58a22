#include "cephalo/attention/ring/attend_ring.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/ring/ring_help.h"
#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/attention/ring/ring_units.h"
#include "cephalo/core/parallel.h"
#include "cephalo/world/patience.h"

namespace cephalo {
namespace {

// Rows that see some more keys: their result so far, and that of these keys alone.
struct JoinedRows {
  MutableTensorView context, lse;  // [batch, heads, rows, v_dim] and [batch, heads, rows]
  TensorView more_context, more_lse;
};

// One row: lse = log(exp(lse) + exp(more)), context by the shares of the two in it. Where these
// keys are all hidden more is −inf, and nothing changes. The smaller of the two is taken relative
// to the larger: one exponential and one logarithm, and no share depends on how large they are.
template <typename T>
void join_row(T* context, T& lse, const T* more_context, T more, dim_t v_dim) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  if (more == kHidden) return;
  if (lse == kHidden) {
    std::copy_n(more_context, v_dim, context);
    lse = more;
    return;
  }
  const T smaller = std::exp(-std::abs(lse - more));
  const T larger_share = T{1} / (T{1} + smaller);
  const T smaller_share = smaller * larger_share;
  const T kept = lse >= more ? larger_share : smaller_share;
  const T added = lse >= more ? smaller_share : larger_share;
  for (dim_t d = 0; d < v_dim; ++d) context[d] = context[d] * kept + more_context[d] * added;
  lse = std::max(lse, more) + std::log1p(smaller);
}

template <typename T>
void join(const JoinedRows& rows) {
  const Shape& shape = rows.context.shape();
  const dim_t heads = shape[0] * shape[1];
  const dim_t v_dim = shape[3];
  const Region region{.pieces = heads, .flops = 4.0 * static_cast<double>(numel(shape))};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t b = piece / shape[1];
    const dim_t h = piece % shape[1];
    const MutableTensorView context = rows.context[b][h];
    const MutableTensorView lse = rows.lse[b][h];
    const TensorView more_context = rows.more_context[b][h];
    const TensorView more_lse = rows.more_lse[b][h];
    T* row = context[0].mutable_data_as<T>();
    T* sum = lse.slice(0, 0, 1).mutable_data_as<T>();
    const T* more_row = more_context[0].data_as<T>();
    const T* more = more_lse.slice(0, 0, 1).data_as<T>();
    for (dim_t i = 0; i < shape[2]; ++i) {
      join_row(row + i * context.strides()[0], sum[i * lse.strides()[0]],
               more_row + i * more_context.strides()[0], more[i * more_lse.strides()[0]], v_dim);
    }
  });
}

// One process's part of the ring: its queries, and keys that go by.
class Ring {
 public:
  explicit Ring(const RingCall& call)
      : call_(call),
        context_(
            Tensor::zeros({call.q.dim(0), call.q.dim(1), call.q.dim(2), call.v.dim(3)}, call.sums)),
        lse_(Tensor::full({call.q.dim(0), call.q.dim(1), call.q.dim(2)},
                          -std::numeric_limits<double>::infinity(), call.sums)) {}

  void run_alone() {
    KeyRound round(call_);
    do {
      for (const RingUnit& unit : ring_units(call_, round.owner(), {})) {
        attend_to(unit, round.keys());
        round.progress();
      }
    } while (round.next());
    round.finish();
  }

  // -> how many units of others this process attended to
  std::int64_t run_with_help(const UnitSize& size) {
    KeyRound round(call_);
    RingHelp help(call_);
    do {
      run_step(round, help, size);
    } while (round.next());
    Patience patience(call_.world.timeout());
    while (!help.all_back()) {
      if (serve(round, help)) patience.begin_again();
      pause(help, patience);
    }
    round.forget();
    help.help_others();
    round.finish();
    return help.helped();
  }

  AttendResult result() && {
    AttendResult result;
    result.context = call_.q.dtype() == call_.sums ? std::move(context_)
                                                   : Tensor::copy(context_, call_.q.dtype());
    result.lse = std::move(lse_);
    return result;
  }

 private:
  void run_step(KeyRound& round, RingHelp& help, const UnitSize& size) {
    units_ = UnitQueue(ring_units(call_, round.owner(), size));
    Patience patience(call_.world.timeout());
    while (units_.left() > 0) {
      if (serve(round, help)) patience.begin_again();
      const std::optional<RingUnit> unit =
          units_.take_first([&](const RingUnit& each) { return !help.is_awaited_for(each); });
      if (unit) {
        attend_to(*unit, round.keys());
        round.progress();
        patience.begin_again();
      } else if (units_.left() > 0) {
        pause(help, patience);
      }
    }
  }

  static void pause(const RingHelp& help, const Patience& patience) {
    if (help.all_back()) return;
    if (patience.is_out()) patience.give_up(help.awaited());
    patience.nap();
  }

  // -> did results of others join?
  bool serve(KeyRound& round, RingHelp& help) {
    const auto give = [&](double share, RingHelp::When when) -> std::optional<RingUnit> {
      // The very last is done here sooner than it travels, and the last ones sooner than by one who
      // is busy.
      const bool later = when == RingHelp::When::later;
      if (round.is_last() && (units_.left() < 2 || later)) return std::nullopt;
      const double wanted = share * static_cast<double>(units_.left());
      return units_.take_run(static_cast<std::size_t>(std::max(1.0, wanted)));
    };
    // What has come back first: its memory is the next result's.
    const bool joined =
        help.join_returned([&](const RingUnit& unit, const TensorView& context,
                               const TensorView& lse) { join_unit(unit, context, lse); });
    help.serve(give, round.keys());
    return joined;
  }

  void attend_to(const RingUnit& unit, RingKeys& keys) {
    const TensorView q = unit_queries(call_, unit);
    const MutableTensorView context =
        more_.view(0, {q.dim(0), q.dim(1), q.dim(2), call_.v.dim(3)}, call_.sums);
    const MutableTensorView lse = more_.view(1, {q.dim(0), q.dim(1), q.dim(2)}, call_.sums);
    attend_unit(call_, unit, {context, lse}, q, unit_keys(unit, keys.k()),
                unit_keys(unit, keys.v()));
    join_unit(unit, context, lse);
  }

  void join_unit(const RingUnit& unit, const TensorView& more_context, const TensorView& more_lse) {
    const auto rows = [&](const MutableTensorView& all) {
      const Share heads = q_heads_of(call_, unit);
      const RingPiece& piece = unit.q_rows;
      return all.slice(1, heads.begin, heads.end)
          .slice(2, piece.begin, piece.begin + piece.whole.count());
    };
    const JoinedRows joined{rows(context_), rows(lse_), more_context, more_lse};
    if (call_.sums == DType::f64) {
      join<double>(joined);
    } else {
      join<float>(joined);
    }
  }

  const RingCall& call_;
  Tensor context_;  // [batch, num_heads, mine, v_dim]
  Tensor lse_;      // [batch, num_heads, mine]
  KeptMemory<2> more_;
  UnitQueue units_;  // of the keys at hand
};

}  // namespace

AttendResult attend_ring_in_units(const RingCall& call, double unit_flops, std::int64_t* helped) {
  Ring ring(call);
  if (RingHelp::pays(call, unit_flops)) {
    const std::int64_t runs = ring.run_with_help(RingHelp::unit_size(call, unit_flops));
    if (helped != nullptr) *helped = runs;
  } else {
    ring.run_alone();
  }
  return std::move(ring).result();
}

AttendResult attend_ring(World& world, dim_t tokens, const TensorView& q, const TensorView& k,
                         const TensorView& v, const Mask& mask, const AttendOptions& options) {
  const RingCall call(world, tokens, q, k, v, mask, options, "attend_ring");
  const UseThreads limit(options.threads);
  AttendResult result = attend_ring_in_units(call, RingHelp::kUnitFlops);
  const int dropped = 4 - q.rank();
  result.context = without_leading_ones(std::move(result.context), dropped);
  result.lse = without_leading_ones(std::move(result.lse), dropped);
  return result;
}

}  // namespace cephalo
