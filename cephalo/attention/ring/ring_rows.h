#pragma once

// Inside the library only.
#include <array>
#include <memory>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/ring/attend_ring.h"

namespace cephalo {

// A piece of a process's rows: where it is among them, and where in the whole.
struct RingPiece {
  dim_t begin;  // among the process's rows
  Share whole;
};
// The pieces of a process that have tokens.
std::vector<RingPiece> ring_pieces(dim_t tokens, int rank, int size);

// Who has the keys that a process works with in a step; its own in step 0.
int ring_owner(int rank, int step, int size);

// What all processes have in common about a call, after checks.
struct RingCall {
  RingCall(World& world, dim_t tokens, const TensorView& q, const TensorView& k,
           const TensorView& v, const Mask& mask, const AttendOptions& options,
           const char* function);

  dim_t group() const { return q.dim(1) / k.dim(1); }  // heads of q to one of k
  dim_t rows_of(int rank) const { return ring_share(tokens, rank, world.size()).tokens(); }
  // Of queries in one piece against keys in another. The tensors of the mask are cut to them.
  Mask mask_of(const RingPiece& q_piece, const RingPiece& kv_piece) const;
  AttendOptions options_of(const RingPiece& q_piece, const RingPiece& kv_piece) const;
  // The keys of the one, of all sequences, that positions leave to a query of the other: a range
  // that begins with a block of keys, so that sums keep their order. No whole keys: none.
  RingPiece seen_keys(const RingPiece& q_piece, const RingPiece& kv_piece) const;
  bool meet(const RingPiece& q_piece, const RingPiece& kv_piece) const {
    return seen_keys(q_piece, kv_piece).whole.count() > 0;
  }
  // A tensor of the mask or its gradient, [batch | 1, heads | 1, mine | 1, tokens | 1].
  template <typename View>
  View pairs_of(const View& t, const RingPiece& q_piece, const RingPiece& kv_piece) const;

  World& world;
  dim_t tokens;
  TensorView q, k, v;  // rank 4
  const Mask& mask;
  Mask by_position;  // without its tensors
  AttendOptions options;
  DType sums;  // what partial results have: float64 for float64, else float32
};

// Memory for the results of a piece, kept for the next one.
template <std::size_t count>
class KeptMemory {
 public:
  // Dense; values undefined.
  MutableTensorView view(std::size_t n, const Shape& shape, DType dtype) {
    Tensor& kept = kept_[n];
    if (kept.numel() < numel(shape) || kept.dtype() != dtype) {
      kept = Tensor::empty({numel(shape)}, dtype);
    }
    return {kept.mutable_view().mutable_data(), dtype, shape};
  }

 private:
  std::array<Tensor, count> kept_;
};

// k and v of one process, side by side in memory so that they travel as one message. Memory is used
// again step after step, so that no step waits for the system to hand out pages.
class RingKeys {
 public:
  // Of `rows` tokens, empty; k, v: rank 4, for shapes and type.
  RingKeys(const TensorView& k, const TensorView& v, dim_t rows, DType dtype);
  void set_rows(dim_t rows);  // of others: values undefined

  MutableTensorView k() { return k_; }  // [batch, num_kv_heads, rows, head_dim]
  MutableTensorView v() { return v_; }  // [batch, num_kv_heads, rows, v_dim]
  std::span<std::byte> bytes();
  void zero();

 private:
  Tensor memory_;
  MutableTensorView k_, v_;
  std::size_t bytes_ = 0;  // of memory_ in use
};

// The keys of all processes as one of them needs them: its own first, then those of the processes
// before it. Everyone sends its own to all others at the beginning, so that nobody waits until
// another has computed; a process holds its own, those at hand and those on their way.
class KeyRound {
 public:
  explicit KeyRound(const RingCall& call);

  RingKeys& keys() { return step_ == 0 ? own_ : here_; }  // at hand
  int owner() const { return ring_owner(call_.world.rank(), step_, call_.world.size()); }
  int step() const { return step_; }

  void progress();  // moves messages on while work is done
  // Waits for the next keys; false after the last.
  bool next();
  bool is_last() const { return step_ + 1 == call_.world.size(); }
  void forget();  // the keys of others, after the last: their memory is free
  void finish();  // waits until all others have the keys of this process

 private:
  void receive_next();

  const RingCall& call_;
  RingKeys own_;
  RingKeys here_, coming_;  // no rows in a world of one
  std::unique_ptr<Transfers> sending_, receiving_;
  int step_ = 0;
};

template <typename View>
View RingCall::pairs_of(const View& t, const RingPiece& q_piece, const RingPiece& kv_piece) const {
  View cut = t;
  const int rank = t.rank();
  if (rank >= 2 && t.dim(-2) != 1) {
    cut = cut.slice(rank - 2, q_piece.begin, q_piece.begin + q_piece.whole.count());
  }
  if (t.dim(-1) != 1) cut = cut.slice(rank - 1, kv_piece.whole.begin, kv_piece.whole.end);
  return cut;
}

}  // namespace cephalo
