#include "cephalo/attention/ring/ring_rows.h"

#include <algorithm>
#include <utility>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/core/fail.h"
#include "cephalo/kernels/kernels.h"

namespace cephalo {
namespace {

constexpr int kKeysTag = 0;

}  // namespace

RingShare ring_share(dim_t tokens, int rank, int size) {
  const int pieces = 2 * size;
  return {share_of(tokens, rank, pieces), share_of(tokens, pieces - 1 - rank, pieces)};
}

std::vector<RingPiece> ring_pieces(dim_t tokens, int rank, int size) {
  const RingShare share = ring_share(tokens, rank, size);
  std::vector<RingPiece> pieces;
  if (share.early.count() > 0) pieces.push_back({0, share.early});
  if (share.late.count() > 0) pieces.push_back({share.early.count(), share.late});
  return pieces;
}

int ring_owner(int rank, int step, int size) {
  return (rank - step % size + size) % size;
}

RingCall::RingCall(World& world_, dim_t tokens_, const TensorView& q_, const TensorView& k_,
                   const TensorView& v_, const Mask& mask_, const AttendOptions& options_,
                   const char* function)
    : world(world_),
      tokens(tokens_),
      q(with_leading_ones(q_, 4)),
      k(with_leading_ones(k_, 4)),
      v(with_leading_ones(v_, 4)),
      mask(mask_),
      by_position(mask_),
      options(options_),
      sums(q_.dtype() == DType::f64 ? DType::f64 : DType::f32) {
  require(q.device().is_host() && k.device().is_host() && v.device().is_host(),
          "{}: rows travel between processes from the host's memory only", function);
  const dim_t mine = rows_of(world.rank());
  for (const TensorView* rows : {&q, &k, &v}) {
    require(rows->dim(2) == mine,
            "{}: process {} of {} has {} of {} tokens (ring_share), not {}: {}", function,
            world.rank(), world.size(), mine, tokens, rows->dim(2), rows->shape());
  }
  // Of all heads: a process may attend to some at a time.
  require(q.dim(1) > 0 && k.dim(1) > 0, "{}: num_heads ({}) and num_kv_heads ({}) must be > 0",
          function, q.dim(1), k.dim(1));
  require(k.dim(1) == v.dim(1), "{}: k has {} heads but v has {}", function, k.dim(1), v.dim(1));
  require(q.dim(1) % k.dim(1) == 0, "{}: num_heads ({}) must be a multiple of num_kv_heads ({})",
          function, q.dim(1), k.dim(1));
  require(options.dropout == 0.0 || options.dropout_stream == DropoutStream::counter,
          "{}: dropout over processes is that of the counter stream", function);
  require(!options.return_weights && options.return_scores == ScoresTap::none,
          "{}: no process has whole rows of weights or scores; weights() with a place computes "
          "those of a rectangle",
          function);
  const Place& place = options.place;
  require(place.heads == Place::Axis() && place.q_tokens == Place::Axis() &&
              place.kv_tokens == Place::Axis(),
          "{}: the place of its rows follows from the world", function);
  by_position.tensors.clear();
}

RingPiece RingCall::seen_keys(const RingPiece& q_piece, const RingPiece& kv_piece) const {
  const MaskExtent extent{q.dim(0), q.dim(1), q_piece.whole.count(), kv_piece.whole.count()};
  const BoundMask bound(by_position, extent, "attend_ring", options_of(q_piece, kv_piece).place,
                        q.device());
  dim_t begin = extent.kv_tokens;
  dim_t end = 0;
  for (dim_t b = 0; b < extent.batch; ++b) {
    const BoundMask::KeyRange seen = bound.key_range(b, 0, extent.q_tokens);
    if (seen.begin >= seen.end) continue;
    begin = std::min(begin, seen.begin / kernels::kKvTile * kernels::kKvTile);
    end = std::max(end, seen.end);
  }
  if (begin >= end) return {kv_piece.begin, {kv_piece.whole.begin, kv_piece.whole.begin}};
  return {kv_piece.begin + begin, {kv_piece.whole.begin + begin, kv_piece.whole.begin + end}};
}

Mask RingCall::mask_of(const RingPiece& q_piece, const RingPiece& kv_piece) const {
  Mask cut = mask;
  for (MaskTensor& tensor : cut.tensors) {
    tensor.view = pairs_of(tensor.view, q_piece, kv_piece);
  }
  return cut;
}

AttendOptions RingCall::options_of(const RingPiece& q_piece, const RingPiece& kv_piece) const {
  AttendOptions own = options;
  own.return_lse = false;
  own.place.q_tokens = {q_piece.whole.begin, tokens};
  own.place.kv_tokens = {kv_piece.whole.begin, tokens};
  return own;
}

RingKeys::RingKeys(const TensorView& k, const TensorView& v, dim_t rows, DType dtype)
    : k_(nullptr, dtype, {k.dim(0), k.dim(1), 0, k.dim(3)}),
      v_(nullptr, dtype, {v.dim(0), v.dim(1), 0, v.dim(3)}) {
  set_rows(rows);
}

void RingKeys::set_rows(dim_t rows) {
  const DType dtype = k_.dtype();
  const Shape k_shape{k_.dim(0), k_.dim(1), rows, k_.dim(3)};
  const Shape v_shape{v_.dim(0), v_.dim(1), rows, v_.dim(3)};
  const dim_t k_count = numel(k_shape);
  const dim_t count = checked_add(k_count, numel(v_shape));
  if (memory_.numel() < count || memory_.dtype() != dtype) memory_ = Tensor::empty({count}, dtype);
  bytes_ = static_cast<std::size_t>(count) * item_size(dtype);
  auto* first = static_cast<std::byte*>(memory_.mutable_view().mutable_data());
  k_ = {first, dtype, k_shape};
  v_ = {first + k_count * static_cast<dim_t>(item_size(dtype)), dtype, v_shape};
}

std::span<std::byte> RingKeys::bytes() {
  return {static_cast<std::byte*>(memory_.mutable_view().mutable_data()), bytes_};
}

void RingKeys::zero() {
  k_.fill(0.0);
  v_.fill(0.0);
}

KeyRound::KeyRound(const RingCall& call)
    : call_(call),
      own_(call.k, call.v, call.rows_of(call.world.rank()), call.k.dtype()),
      here_(call.k, call.v, 0, call.k.dtype()),
      coming_(call.k, call.v, 0, call.k.dtype()),
      sending_(call.world.transfers()) {
  own_.k().copy_from(call.k);
  own_.v().copy_from(call.v);
  const int size = call.world.size();
  for (int step = 1; step < size; ++step) {
    sending_->send(ring_owner(call.world.rank(), -step, size), kKeysTag, own_.bytes());
  }
  receive_next();
}

void KeyRound::receive_next() {
  const int size = call_.world.size();
  if (step_ + 1 >= size) return;
  const int from = ring_owner(call_.world.rank(), step_ + 1, size);
  coming_.set_rows(call_.rows_of(from));
  receiving_ = call_.world.transfers();
  receiving_->receive(from, kKeysTag, coming_.bytes());
}

void KeyRound::progress() {
  sending_->progress();
  if (receiving_ != nullptr) receiving_->progress();
}

bool KeyRound::next() {
  if (is_last()) return false;
  receiving_->wait();
  std::swap(here_, coming_);
  ++step_;
  receive_next();
  return true;
}

void KeyRound::forget() {
  here_ = RingKeys(call_.k, call_.v, 0, call_.k.dtype());
  coming_ = RingKeys(call_.k, call_.v, 0, call_.k.dtype());
}

void KeyRound::finish() {
  sending_->wait();
}

}  // namespace cephalo
