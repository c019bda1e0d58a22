#include "cephalo/attention/ring/attend_heads.h"

#include <utility>
#include <vector>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

constexpr int kHeadsTag = 0;

std::span<std::byte> bytes_of(Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_view().mutable_data()), t.bytes()};
}

// Which heads a process computes, of tensors with as many heads as q or as k.
class HeadSpread {
 public:
  explicit HeadSpread(const RingCall& call)
      : call_(call),
        rank_(call.world.rank()),
        size_(call.world.size()),
        kv_heads_(call.k.dim(1)),
        group_(call.k.dim(1) == 0 ? 0 : call.q.dim(1) / call.k.dim(1)) {}

  // Of a tensor with `heads` heads.
  Share heads_of(int rank, dim_t heads) const {
    const Share kv = share_of(kv_heads_, rank, size_);
    return heads == kv_heads_ ? kv : Share{kv.begin * group_, kv.end * group_};
  }
  Share queries() const { return heads_of(rank_, call_.q.dim(1)); }
  bool has_work() const { return share_of(kv_heads_, rank_, size_).count() > 0; }

  // rows: [batch, heads, mine, dim] -> [batch, my heads, tokens, dim]
  Tensor to_heads(const TensorView& rows) const {
    const Share mine = heads_of(rank_, rows.dim(1));
    Tensor whole =
        Tensor::empty({rows.dim(0), mine.count(), call_.tokens, rows.dim(3)}, rows.dtype());
    const auto out = [&](int to) {
      const Share theirs = heads_of(to, rows.dim(1));
      return Tensor::copy(rows.slice(1, theirs.begin, theirs.end));
    };
    const auto room = [&](int from) {
      return Tensor::empty({rows.dim(0), mine.count(), call_.rows_of(from), rows.dim(3)},
                           rows.dtype());
    };
    exchange(out, room, [&](int from, const TensorView& part) {
      for (const RingPiece& piece : ring_pieces(call_.tokens, from, size_)) {
        whole.mutable_view()
            .slice(2, piece.whole.begin, piece.whole.end)
            .copy_from(part.slice(2, piece.begin, piece.begin + piece.whole.count()));
      }
    });
    return whole;
  }

  // heads: [batch, my heads, tokens, dim] -> [batch, all_heads, mine, dim]
  Tensor to_rows(const TensorView& heads, dim_t all_heads) const {
    const dim_t mine = call_.rows_of(rank_);
    Tensor rows = Tensor::empty({heads.dim(0), all_heads, mine, heads.dim(3)}, heads.dtype());
    const auto out = [&](int to) {
      Tensor part = Tensor::empty({heads.dim(0), heads.dim(1), call_.rows_of(to), heads.dim(3)},
                                  heads.dtype());
      for (const RingPiece& piece : ring_pieces(call_.tokens, to, size_)) {
        part.mutable_view()
            .slice(2, piece.begin, piece.begin + piece.whole.count())
            .copy_from(heads.slice(2, piece.whole.begin, piece.whole.end));
      }
      return part;
    };
    const auto room = [&](int from) {
      return Tensor::empty({heads.dim(0), heads_of(from, all_heads).count(), mine, heads.dim(3)},
                           heads.dtype());
    };
    exchange(out, room, [&](int from, const TensorView& part) {
      const Share theirs = heads_of(from, all_heads);
      rows.mutable_view().slice(1, theirs.begin, theirs.end).copy_from(part);
    });
    return rows;
  }

 private:
  // Everyone to everyone: out(rank) goes there, what comes from a rank is put into room(rank), and
  // then placed. What a process sends itself does not travel.
  template <typename Out, typename Room, typename Placed>
  void exchange(const Out& out, const Room& room, const Placed& place) const {
    const auto moving = call_.world.transfers();
    std::vector<Tensor> leaving(static_cast<std::size_t>(size_));
    std::vector<Tensor> coming(static_cast<std::size_t>(size_));
    for (int r = 0; r < size_; ++r) {
      const auto n = static_cast<std::size_t>(r);
      leaving[n] = out(r);
      if (r == rank_) continue;
      coming[n] = room(r);
      moving->receive(r, kHeadsTag, bytes_of(coming[n]));
      moving->send(r, kHeadsTag, bytes_of(leaving[n]));
    }
    moving->wait();
    for (int r = 0; r < size_; ++r) {
      const auto n = static_cast<std::size_t>(r);
      place(r, r == rank_ ? leaving[n] : coming[n]);
    }
  }

  const RingCall& call_;
  int rank_, size_;
  dim_t kv_heads_, group_;
};

void check_mask(const Mask& mask, const char* function) {
  require(
      mask.tensors.empty(),
      "{}: a process has keep, drop and bias for its own query rows only, and computes all rows "
      "of its heads; attend_ring takes them",
      function);
}

AttendOptions options_of(const RingCall& call, const HeadSpread& spread) {
  AttendOptions own = call.options;
  own.return_lse = true;
  own.place.heads = {spread.queries().begin, call.q.dim(1)};
  return own;
}

// [batch, heads, rows] as [batch, heads, rows, 1], and back
TensorView with_width(const TensorView& lse) {
  Strides strides = lse.strides();
  strides.push_back(1);
  Shape shape = lse.shape();
  shape.push_back(1);
  return {lse.data(), lse.dtype(), shape, strides};
}
Tensor without_width(Tensor lse) {
  const Shape shape{lse.dim(0), lse.dim(1), lse.dim(2)};
  return std::move(lse).reshaped(shape);
}

}  // namespace

AttendResult attend_heads(World& world, dim_t tokens, const TensorView& q, const TensorView& k,
                          const TensorView& v, const Mask& mask, const AttendOptions& options) {
  constexpr const char* kName = "attend_heads";
  const RingCall call(world, tokens, q, k, v, mask, options, kName);
  check_mask(mask, kName);
  const UseThreads limit(options.threads);
  const HeadSpread spread(call);
  const Tensor my_q = spread.to_heads(call.q);
  const Tensor my_k = spread.to_heads(call.k);
  const Tensor my_v = spread.to_heads(call.v);
  AttendResult mine;
  if (spread.has_work()) {
    mine = attend(my_q, my_k, my_v, mask, options_of(call, spread));
  } else {
    mine.context = Tensor::empty({call.q.dim(0), 0, tokens, call.v.dim(3)}, call.q.dtype());
    mine.lse = Tensor::empty({call.q.dim(0), 0, tokens}, call.sums);
  }
  AttendResult result;
  const int dropped = 4 - q.rank();
  result.context = without_leading_ones(spread.to_rows(mine.context, call.q.dim(1)), dropped);
  result.lse = without_leading_ones(
      without_width(spread.to_rows(with_width(mine.lse), call.q.dim(1))), dropped);
  return result;
}

AttendGradients attend_heads_backward(World& world, dim_t tokens, const AttendPass& pass,
                                      const TensorView& q, const TensorView& k, const TensorView& v,
                                      const Mask& mask, const AttendOptions& options) {
  constexpr const char* kName = "attend_heads_backward";
  const RingCall call(world, tokens, q, k, v, mask, options, kName);
  check_mask(mask, kName);
  const UseThreads limit(options.threads);
  const HeadSpread spread(call);
  const Tensor my_q = spread.to_heads(call.q);
  const Tensor my_k = spread.to_heads(call.k);
  const Tensor my_v = spread.to_heads(call.v);
  const Tensor context = spread.to_heads(with_leading_ones(pass.context, 4));
  const Tensor dcontext = spread.to_heads(with_leading_ones(pass.dcontext, 4));
  const Tensor lse = without_width(spread.to_heads(with_width(with_leading_ones(pass.lse, 3))));
  Tensor dlse;
  if (world.any(pass.dlse.numel() > 0)) {
    // A process without rows has an empty one in any case.
    const TensorView own = pass.dlse.numel() > 0 ? pass.dlse : pass.lse;
    dlse = without_width(spread.to_heads(with_width(with_leading_ones(own, 3))));
  }
  AttendGradients mine{Tensor::empty(my_q.shape(), q.dtype()),
                       Tensor::empty(my_k.shape(), q.dtype()),
                       Tensor::empty(my_v.shape(), q.dtype()),
                       {}};
  if (spread.has_work()) {
    mine = attend_backward({context, lse, dcontext, dlse}, my_q, my_k, my_v, mask,
                           options_of(call, spread));
  }
  const int dropped = 4 - q.rank();
  return {without_leading_ones(spread.to_rows(mine.dq, call.q.dim(1)), dropped),
          without_leading_ones(spread.to_rows(mine.dk, call.k.dim(1)), dropped),
          without_leading_ones(spread.to_rows(mine.dv, call.k.dim(1)), dropped),
          {}};
}

}  // namespace cephalo
