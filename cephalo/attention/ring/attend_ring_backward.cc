#include <utility>
#include <vector>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"

namespace cephalo {
namespace {

constexpr int kGradientsTag = 1;  // that of keys is 0

// to += from; rank 4, any strides along the first three axes. No view is made for a row: that takes
// longer than adding it.
template <typename T>
void add_rows(const MutableTensorView& to, const TensorView& from) {
  const Shape& shape = to.shape();
  const Region region{.pieces = shape[0] * shape[1], .flops = static_cast<double>(to.numel())};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const MutableTensorView rows = to[piece / shape[1]][piece % shape[1]];
    const TensorView more = from[piece / shape[1]][piece % shape[1]];
    T* sum = rows.mutable_data_as<T>();
    const T* row = more.data_as<T>();
    for (dim_t i = 0; i < shape[2]; ++i) {
      for (dim_t d = 0; d < shape[3]; ++d) sum[d] += row[d];
      sum += rows.strides()[0];
      row += more.strides()[0];
    }
  });
}

void add(const MutableTensorView& to, const TensorView& from) {
  if (to.dtype() == DType::f64) {
    add_rows<double>(with_leading_ones(to, 4), with_leading_ones(from, 4));
  } else {
    add_rows<float>(with_leading_ones(to, 4), with_leading_ones(from, 4));
  }
}

// Rows in the type of sums: what is 16 bits wide is widened, so that no share of a gradient is
// rounded before the last is added.
class Wide {
 public:
  Wide(const TensorView& rows, DType sums) {
    if (rows.dtype() != sums && rows.numel() > 0) copy_ = Tensor::copy(rows, sums);
    view_ = rows.dtype() != sums && rows.numel() > 0 ? TensorView(copy_) : rows;
  }
  const TensorView& view() const { return view_; }

 private:
  Tensor copy_;
  TensorView view_;
};

class RingBackward {
 public:
  RingBackward(const RingCall& call, const AttendPass& pass, bool with_dbias)
      : call_(call),
        rank_(call.world.rank()),
        size_(call.world.size()),
        q_(call.q, call.sums),
        context_(with_leading_ones(pass.context, 4), call.sums),
        dcontext_(with_leading_ones(pass.dcontext, 4), call.sums),
        lse_(with_leading_ones(pass.lse, 3)),
        dlse_(pass.dlse.numel() > 0 ? with_leading_ones(pass.dlse, 3) : TensorView()),
        dq_(Tensor::zeros(call.q.shape(), call.sums)) {
    if (!with_dbias) return;
    for (const MaskTensor& part : call.mask.tensors) {
      if (part.role == MaskTensor::Role::bias) {
        dbias_.push_back(Tensor::zeros(part.view.shape(), call.sums));
      }
    }
  }

  AttendGradients run() {
    KeyRound round(call_);
    RingKeys shares = gradients_of(rank_);
    do {
      shares.set_rows(call_.rows_of(round.owner()));
      shares.zero();
      go_back(round, shares);
      RingKeys sums = sums_before(round);
      add(sums.k(), shares.k());
      add(sums.v(), shares.v());
      if (size_ == 1) return finish(sums);
      send_sums(std::move(sums));
    } while (round.next());
    RingKeys sums = receive_sums(rank_);
    finish_sends();
    round.finish();
    return finish(sums);
  }

 private:
  // Memory that has left is used again.
  RingKeys gradients_of(int owner) {
    if (free_.empty()) return {call_.k, call_.v, call_.rows_of(owner), call_.sums};
    RingKeys kept = std::move(free_.back());
    free_.pop_back();
    kept.set_rows(call_.rows_of(owner));
    return kept;
  }

  // Gradients of the keys at hand, from those who had them before.
  RingKeys sums_before(const KeyRound& round) {
    if (round.step() > 0) return receive_sums(round.owner());
    RingKeys sums = gradients_of(rank_);
    sums.zero();
    return sums;
  }

  // What the process before has added up follows its keys while the next step is computed here.
  void send_sums(RingKeys sums) {
    finish_sends();
    leaving_.push_back(std::move(sums));
    sending_ = call_.world.transfers();
    sending_->send(ring_owner(rank_, -1, size_), kGradientsTag, leaving_.back().bytes());
  }

  void finish_sends() {
    if (sending_ != nullptr) sending_->wait();
    sending_.reset();
    for (RingKeys& sums : leaving_) free_.push_back(std::move(sums));
    leaving_.clear();
  }

  RingKeys receive_sums(int owner) {
    RingKeys sums = gradients_of(owner);
    const auto moving = call_.world.transfers();
    moving->receive(ring_owner(rank_, 1, size_), kGradientsTag, sums.bytes());
    moving->wait();
    return sums;
  }

  void go_back(KeyRound& round, RingKeys& shares) {
    const Wide k(round.keys().k(), call_.sums);
    const Wide v(round.keys().v(), call_.sums);
    for (const RingPiece& q_piece : ring_pieces(call_.tokens, rank_, size_)) {
      for (const RingPiece& kv_piece : ring_pieces(call_.tokens, round.owner(), size_)) {
        if (call_.meet(q_piece, kv_piece)) {
          go_back_piece(k.view(), v.view(), shares, q_piece, kv_piece);
        }
        round.progress();
        if (sending_ != nullptr) sending_->progress();
      }
    }
  }

  void go_back_piece(const TensorView& k, const TensorView& v, RingKeys& shares,
                     const RingPiece& q_piece, const RingPiece& kv_piece) {
    const dim_t q_end = q_piece.begin + q_piece.whole.count();
    const dim_t kv_end = kv_piece.begin + kv_piece.whole.count();
    const auto rows = [&](const TensorView& t) {
      return t.numel() > 0 ? t.slice(2, q_piece.begin, q_end) : t;
    };
    const AttendPass pass{rows(context_.view()), rows(lse_), rows(dcontext_.view()), rows(dlse_)};
    const TensorView my_q = rows(q_.view());
    const TensorView my_k = k.slice(2, kv_piece.begin, kv_end);
    const TensorView my_v = v.slice(2, kv_piece.begin, kv_end);
    const Mask mask = call_.mask_of(q_piece, kv_piece);
    AttendGradientViews own{piece_.view(0, my_q.shape(), call_.sums),
                            piece_.view(1, my_k.shape(), call_.sums),
                            piece_.view(2, my_v.shape(), call_.sums),
                            {}};
    std::vector<Tensor> dbias;
    for (std::size_t n = 0; n < dbias_.size(); ++n) {
      dbias.push_back(Tensor::empty(
          call_.pairs_of(TensorView(dbias_[n]), q_piece, kv_piece).shape(), call_.sums));
      own.dbias.push_back(dbias.back());
    }
    attend_backward_into(own, pass, my_q, my_k, my_v, mask, call_.options_of(q_piece, kv_piece));
    add(dq_.mutable_view().slice(2, q_piece.begin, q_end), own.dq);
    add(shares.k().slice(2, kv_piece.begin, kv_end), own.dk);
    add(shares.v().slice(2, kv_piece.begin, kv_end), own.dv);
    for (std::size_t n = 0; n < dbias_.size(); ++n) {
      add(call_.pairs_of(dbias_[n].mutable_view(), q_piece, kv_piece), own.dbias[n]);
    }
  }

  // A bias with one row has it for all queries, or for the only one of this process: then another
  // process has more or none.
  bool is_one_row_for_all(const TensorView& dbias) {
    return !call_.world.any(dbias.rank() >= 2 && dbias.dim(-2) != 1);
  }

  AttendGradients finish(RingKeys& sums) {
    for (Tensor& dbias : dbias_) {
      if (is_one_row_for_all(dbias)) call_.world.sum(dbias);
    }
    const DType dtype = call_.q.dtype();
    return {Tensor::copy(dq_, dtype), Tensor::copy(sums.k(), dtype), Tensor::copy(sums.v(), dtype),
            std::move(dbias_)};
  }

  const RingCall& call_;
  int rank_, size_;
  Wide q_, context_, dcontext_;
  TensorView lse_, dlse_;
  Tensor dq_;
  std::vector<Tensor> dbias_;
  std::vector<RingKeys> leaving_;  // what is on its way to the next process
  std::vector<RingKeys> free_;
  KeptMemory<3> piece_;
  std::unique_ptr<Transfers> sending_;
};

}  // namespace

AttendGradients attend_ring_backward(World& world, dim_t tokens, const AttendPass& pass,
                                     const TensorView& q, const TensorView& k, const TensorView& v,
                                     const Mask& mask, const AttendOptions& options,
                                     bool with_dbias) {
  constexpr const char* kName = "attend_ring_backward";
  const RingCall call(world, tokens, q, k, v, mask, options, kName);
  require(q.dtype() == k.dtype() && k.dtype() == v.dtype(), "{}: q, k and v must be of one type",
          kName);
  const UseThreads limit(options.threads);
  AttendGradients found = RingBackward(call, pass, with_dbias).run();
  const int dropped = 4 - q.rank();
  found.dq = without_leading_ones(std::move(found.dq), dropped);
  found.dk = without_leading_ones(std::move(found.dk), dropped);
  found.dv = without_leading_ones(std::move(found.dv), dropped);
  return found;
}

}  // namespace cephalo
