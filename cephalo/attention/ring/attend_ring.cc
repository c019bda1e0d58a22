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
        rank_(call.world.rank()),
        size_(call.world.size()),
        context_(
            Tensor::zeros({call.q.dim(0), call.q.dim(1), call.q.dim(2), call.v.dim(3)}, call.sums)),
        lse_(Tensor::full({call.q.dim(0), call.q.dim(1), call.q.dim(2)},
                          -std::numeric_limits<double>::infinity(), call.sums)) {}

  void run() {
    KeyRound round(call_);
    do {
      attend_to(round);
    } while (round.next());
  }

  AttendResult result() && {
    AttendResult result;
    result.context = call_.q.dtype() == call_.sums ? std::move(context_)
                                                   : Tensor::copy(context_, call_.q.dtype());
    result.lse = std::move(lse_);
    return result;
  }

 private:
  void attend_to(KeyRound& round) {
    for (const RingPiece& q_piece : ring_pieces(call_.tokens, rank_, size_)) {
      for (const RingPiece& kv_piece : ring_pieces(call_.tokens, round.owner(), size_)) {
        if (call_.meet(q_piece, kv_piece)) attend_piece(round.keys(), q_piece, kv_piece);
        round.progress();
      }
    }
  }

  void attend_piece(RingKeys& keys, const RingPiece& q_piece, const RingPiece& kv_piece) {
    const dim_t q_end = q_piece.begin + q_piece.whole.count();
    const dim_t kv_end = kv_piece.begin + kv_piece.whole.count();
    const MutableTensorView context = context_.mutable_view().slice(2, q_piece.begin, q_end);
    const MutableTensorView lse = lse_.mutable_view().slice(2, q_piece.begin, q_end);
    const MutableTensorView more_context = more_.view(0, context.shape(), call_.sums);
    const MutableTensorView more_lse = more_.view(1, lse.shape(), call_.sums);
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
  KeptMemory<2> more_;
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
