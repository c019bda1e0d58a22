#pragma once

// Inside the library only.
#include <array>
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

  dim_t rows_of(int rank) const { return ring_share(tokens, rank, world.size()).tokens(); }
  // Of queries in one piece against keys in another. The tensors of the mask are cut to them.
  Mask mask_of(const RingPiece& q_piece, const RingPiece& kv_piece) const;
  AttendOptions options_of(const RingPiece& q_piece, const RingPiece& kv_piece) const;
  // Do positions leave a key of the one to a query of the other?
  bool meet(const RingPiece& q_piece, const RingPiece& kv_piece) const;
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

// k and v of one process, side by side in memory so that they travel as one message.
class RingKeys {
 public:
  // Of `rows` tokens, empty; k, v: rank 4, for shapes and type.
  RingKeys(const TensorView& k, const TensorView& v, dim_t rows, DType dtype);

  MutableTensorView k() { return k_; }  // [batch, num_kv_heads, rows, head_dim]
  MutableTensorView v() { return v_; }  // [batch, num_kv_heads, rows, v_dim]
  std::span<std::byte> bytes();
  void zero();

 private:
  Tensor memory_;
  MutableTensorView k_, v_;
};

// Begins to pass the keys at hand on to the next process and to receive those of the one before,
// which are returned; in the last step nothing moves. Both may be used when `moving` is done.
RingKeys pass_keys_on(const RingCall& call, Transfers& moving, RingKeys& here, int step);

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
