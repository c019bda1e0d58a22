#include "cephalo/attention/ring/attend_ring.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

// Rows that see some more keys: their result so far, and that of these keys alone.
struct JoinedRows {
  MutableTensorView context, lse;  // [batch, heads, rows, v_dim] and [batch, heads, rows]
  TensorView more_context, more_lse;
};

// One row: lse = log(exp(lse) + exp(more)), context by the shares of the two in it. Where these
// keys are all hidden more is −inf, and nothing changes.
template <typename T>
void join_row(T* context, T& lse, const T* more_context, T more, dim_t v_dim) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  if (more == kHidden) return;
  if (lse == kHidden) {
    std::copy_n(more_context, v_dim, context);
    lse = more;
    return;
  }
  const T high = std::max(lse, more);
  const T sum = high + std::log(std::exp(lse - high) + std::exp(more - high));
  const T kept = std::exp(lse - sum);
  const T added = std::exp(more - sum);
  for (dim_t d = 0; d < v_dim; ++d) context[d] = context[d] * kept + more_context[d] * added;
  lse = sum;
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
    for (dim_t i = 0; i < shape[2]; ++i) {
      join_row(context[i].mutable_data_as<T>(), *lse.slice(0, i, i + 1).mutable_data_as<T>(),
               more_context[i].data_as<T>(), *more_lse.slice(0, i, i + 1).data_as<T>(), v_dim);
    }
  });
}

// One process's part of the ring: its queries, and keys that go by.
class Ring {
 public:
  explicit Ring(const RingCall& call)
      : call_(call),
        rank_(call.world.rank()),
        size_(call.world.size()),
        context_(
            Tensor::zeros({call.q.dim(0), call.q.dim(1), call.q.dim(2), call.v.dim(3)}, call.sums)),
        lse_(Tensor::full({call.q.dim(0), call.q.dim(1), call.q.dim(2)},
                          -std::numeric_limits<double>::infinity(), call.sums)) {}

  void run() {
    RingKeys here(call_.k, call_.v, call_.rows_of(rank_), call_.k.dtype());
    here.k().copy_from(call_.k);
    here.v().copy_from(call_.v);
    for (int step = 0; step < size_; ++step) {
      const auto moving = call_.world.transfers();
      RingKeys next = pass_keys_on(call_, *moving, here, step);
      attend_to(here, ring_owner(rank_, step, size_), *moving);
      moving->wait();
      here = std::move(next);
    }
  }

  AttendResult result() && {
    AttendResult result;
    result.context = call_.q.dtype() == call_.sums ? std::move(context_)
                                                   : Tensor::copy(context_, call_.q.dtype());
    result.lse = std::move(lse_);
    return result;
  }

 private:
  void attend_to(RingKeys& keys, int owner, Transfers& moving) {
    for (const RingPiece& q_piece : ring_pieces(call_.tokens, rank_, size_)) {
      for (const RingPiece& kv_piece : ring_pieces(call_.tokens, owner, size_)) {
        if (call_.meet(q_piece, kv_piece)) attend_piece(keys, q_piece, kv_piece);
        moving.progress();
      }
    }
  }

  void attend_piece(RingKeys& keys, const RingPiece& q_piece, const RingPiece& kv_piece) {
    const dim_t q_end = q_piece.begin + q_piece.whole.count();
    const dim_t kv_end = kv_piece.begin + kv_piece.whole.count();
    const MutableTensorView context = context_.mutable_view().slice(2, q_piece.begin, q_end);
    const MutableTensorView lse = lse_.mutable_view().slice(2, q_piece.begin, q_end);
    Tensor more_context = Tensor::empty(context.shape(), call_.sums);
    Tensor more_lse = Tensor::empty(lse.shape(), call_.sums);
    attend_into({more_context, more_lse}, call_.q.slice(2, q_piece.begin, q_end),
                keys.k().slice(2, kv_piece.begin, kv_end),
                keys.v().slice(2, kv_piece.begin, kv_end), call_.mask_of(q_piece, kv_piece),
                call_.options_of(q_piece, kv_piece));
    const JoinedRows rows{context, lse, more_context, more_lse};
    if (call_.sums == DType::f64) {
      join<double>(rows);
    } else {
      join<float>(rows);
    }
  }

  const RingCall& call_;
  int rank_, size_;
  Tensor context_;  // [batch, num_heads, mine, v_dim]
  Tensor lse_;      // [batch, num_heads, mine]
};

}  // namespace

AttendResult attend_ring(World& world, dim_t tokens, const TensorView& q, const TensorView& k,
                         const TensorView& v, const Mask& mask, const AttendOptions& options) {
  const RingCall call(world, tokens, q, k, v, mask, options, "attend_ring");
  const UseThreads limit(options.threads);
  Ring ring(call);
  ring.run();
  AttendResult result = std::move(ring).result();
  const int dropped = 4 - q.rank();
  result.context = without_leading_ones(std::move(result.context), dropped);
  result.lse = without_leading_ones(std::move(result.lse), dropped);
  return result;
}

}  // namespace cephalo
