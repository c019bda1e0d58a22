#include "cephalo/attention/fused/fused_backward.h"

#include <numbers>

#include "cephalo/core/views.h"
#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

// Of the tiles of a chunk: a part of the L2 cache.
constexpr dim_t kChunkBytes = 640 << 10;
// Chunks of all sequences and heads together that are wanted at least: work for many cores. A
// constant, since the order of sums in dq depends on it.
constexpr dim_t kChunksWanted = 32;

kernels::OutRows out_rows(const MutableTensorView& t, dim_t b, dim_t h, dim_t i, dim_t count) {
  const Strides& s = t.strides();
  return {row_address(t, b, h, i), count, t.dim(3), s[2], s[3], t.dtype()};
}

}  // namespace

kernels::Rows rows_of(const TensorView& t, dim_t b, dim_t h, dim_t i, dim_t count,
                      const void** addresses) {
  row_addresses(t, b, h, i, count, addresses);
  return {addresses, count, t.dim(3), t.strides()[3], t.dtype()};
}

template <typename T>
FusedBackward<T>::FusedBackward(const BackwardProblem& problem)
    : f_(problem.forward),
      pass_(problem.pass),
      out_(problem.gradients),
      kernels_(*kernels::attend_kernels<T, T>(kernels::isa_for<T>())),
      backward_(*kernels::backward_kernels<T, T>(kernels::isa_for<T>())),
      batch_(f_.q.dim(0)),
      num_heads_(f_.q.dim(1)),
      num_kv_heads_(f_.k.dim(1)),
      q_tokens_(f_.q.dim(2)),
      kv_tokens_(f_.k.dim(2)),
      head_dim_(f_.q.dim(3)),
      v_dim_(f_.v.dim(3)),
      group_(num_heads_ / num_kv_heads_),
      has_bias_(has_bias(f_)),
      width_(kernels::kMaxColumns * kernels_.lanes),
      head_rows_(round_up(head_dim_, kernels_.rows)),
      v_rows_(round_up(v_dim_, kernels_.rows)),
      key_stride_(round_up(head_dim_, kernels_.lanes)),
      value_stride_(kQTile * kernels_.rows + kValuePadding),
      blocks_((q_tokens_ + kQTile - 1) / kQTile),
      tiles_(cut_queries(0, kv_tokens_, kernels_.lanes)) {
  cut_chunks();
}

template <typename T>
void FusedBackward<T>::prepare() {
  look_at_rows();
  find_key_ranges();
  measure_large_rows();
}

template <typename T>
void FusedBackward<T>::run() {
  prepare();
  if (chunks_ == 0) write_zero_dq();
  for_chunks(scratch_bytes(),
             [&](const Chunk& chunk, std::byte* memory) { run_chunk(chunk, memory); });
  for (const MutableTensorView& dbias : out_.dbias) {
    if (dbias.numel() == 0) continue;
    fill_zero(dbias);
    differentiate_bias(dbias);
  }
}

template <typename T>
typename FusedBackward<T>::Scratch FusedBackward<T>::divide(Arena& arena) const {
  Scratch s{};
  s.mask = TileMaskBuilder<T, Lanes::keys>::divide(arena, f_, kernels_);
  s.rows = arena.take<const void*>(kQTile);
  s.strips = arena.take<kernels::StripColumns>(kQTile);
  s.q = arena.take<T>(kQTile * head_dim_);
  s.dcontext = arena.take<T>(kQTile * v_dim_);
  s.q_values = arena.take<T>(head_rows_ / kernels_.rows * value_stride_);
  s.dcontext_values = arena.take<T>(v_rows_ / kernels_.rows * value_stride_);
  s.minus_lse = arena.take<T>(kQTile);
  s.minus_delta = arena.take<T>(kQTile);
  s.far = arena.take<std::uint8_t>(kQTile);
  s.weights = arena.take<T>(kQTile * width_);
  s.dscores = arena.take<T>(kQTile * width_);
  s.tanhs = arena.take<T>(f_.options.softcap ? kQTile * width_ : 0);
  s.dq = arena.take<T>(kQTile * key_stride_);
  s.factor = arena.take<T>(width_);
  s.tiles = arena.take<T>(chunk_tiles_ * tile_numbers());
  return s;
}

template <typename T>
void FusedBackward<T>::cut_chunks() {
  const auto count = static_cast<dim_t>(tiles_.size());
  const dim_t fitting = std::clamp<dim_t>(
      kChunkBytes / (tile_numbers() * static_cast<dim_t>(sizeof(T))), 1, kChunkTiles);
  const dim_t pairs = std::max<dim_t>(1, batch_ * num_kv_heads_);
  const dim_t wanted = (kChunksWanted + pairs - 1) / pairs;
  const dim_t spread = std::max<dim_t>(2, (count + wanted - 1) / wanted);
  const dim_t most = std::min(fitting, spread);
  chunks_ = (count + most - 1) / most;
  chunk_tiles_ = chunks_ == 0 ? 1 : (count + chunks_ - 1) / chunks_;
  chunks_ = (count + chunk_tiles_ - 1) / chunk_tiles_;
}

template <typename T>
double FusedBackward<T>::flops() const {
  double pairs = 0.0;
  for (dim_t b = 0; b < batch_; ++b) {
    for (dim_t n = 0; n < blocks_; ++n) {
      const auto& range = range_of(b, n);
      pairs += static_cast<double>((range.end - range.begin) * kQTile);
    }
  }
  return pairs * static_cast<double>(num_heads_) *
         (6.0 * static_cast<double>(head_dim_) + 4.0 * static_cast<double>(v_dim_));
}

template <typename T>
void FusedBackward<T>::normalize(const Block& block, const Keys& tile, T* weights) const {
  if (block.factor == nullptr) return;
  const dim_t width = tile.keys.columns * kernels_.lanes;
  for (dim_t x = 0; x < block.queries.count; ++x) {
    if (block.factor[x] == T{1}) continue;
    for (dim_t k = 0; k < width; ++k) weights[x * width + k] *= block.factor[x];
  }
}

template <typename T>
TilePlace FusedBackward<T>::place_of(dim_t b, const Block& block, dim_t t) const {
  const QueryRange& place = tiles_[static_cast<std::size_t>(t)];
  return {b,
          block.h,
          block.i,
          block.queries.count,
          place.columns * kernels_.lanes,
          place.begin,
          tile_begin(t + 1) - place.begin};
}

template <typename T>
void FusedBackward<T>::fill_zero(const MutableTensorView& t) {
  const Tensor zero = Tensor::zeros({1}, t.dtype());
  t.copy_from(broadcast_to(zero, t.shape()));
}

template <typename T>
void FusedBackward<T>::find_key_ranges() {
  ranges_.reserve(static_cast<std::size_t>(batch_ * blocks_));
  for (dim_t b = 0; b < batch_; ++b) {
    for (dim_t n = 0; n < blocks_; ++n) {
      ranges_.push_back(f_.mask.key_range(b, n * kQTile, block_end(n * kQTile)));
    }
  }
}

template <typename T>
void FusedBackward<T>::run_chunk(const Chunk& chunk, std::byte* memory) const {
  Arena arena(memory);
  const Scratch scratch = divide(arena);
  TileMaskBuilder<T, Lanes::keys> masks(f_, kernels_, scratch.mask);
  walk_chunk(chunk, scratch, [&](Block& block, const Keys& tile, dim_t) {
    add_pair(chunk.b, block, tile, masks, scratch);
  });
}

template <typename T>
void FusedBackward<T>::add_pair(dim_t b, Block& block, const Keys& tile,
                                TileMaskBuilder<T, Lanes::keys>& masks, const Scratch& s) const {
  kernels::TileMask<T> built;
  const dim_t width = tile.keys.columns * kernels_.lanes;
  const Tile answer = masks.build(
      {b, block.h, block.i, block.queries.count, width, tile.j, tile.keys.count}, &built);
  if (answer == Tile::hidden) return;
  if (!block.packed) pack_block(b, block, s);
  const kernels::TileMask<T>* mask = answer == Tile::visible ? nullptr : &built;
  // weights = 2^(scores − lse) ⇐ q, k, lse
  backward_.reweigh(block.queries, tile.keys, mask, s.weights, s.tanhs, s.strips);
  normalize(block, tile, s.weights);
  // dscores = weights · (dcontext vᵀ − delta)
  backward_.differentiate(block.queries, tile.keys, mask, s.strips, s.tanhs, s.weights, s.dscores);
  // dv += weightsᵀ dcontext
  const kernels::QueryTile<T, T> dv = gathering(tile.dv, tile.keys.columns);
  kernels_.gather(block.dcontext_values, dv, mask, s.weights, s.strips);
  // dk += dscoresᵀ q
  const kernels::QueryTile<T, T> dk = gathering(tile.dk, tile.keys.columns);
  kernels_.gather(block.q_values, dk, mask, s.dscores, s.strips);
  // dq += dscores k
  backward_.add_dq(block.queries, tile.keys, mask, s.strips, s.dscores, s.dq);
}

template <typename T>
typename FusedBackward<T>::Keys FusedBackward<T>::pack_tile(dim_t b, dim_t kv_head, dim_t number,
                                                            T* memory, const Scratch& s) const {
  const QueryRange& place = tiles_[static_cast<std::size_t>(number)];
  const dim_t width = place.columns * kernels_.lanes;
  const dim_t count = tile_begin(number + 1) - place.begin;
  T* keys = memory;
  T* values = keys + head_dim_ * width_;
  T* key_rows = values + v_dim_ * width_;
  Keys tile{};
  tile.j = place.begin;
  tile.dk = key_rows + key_stride_ * width_;
  tile.dv = tile.dk + head_rows_ * width_;
  const kernels::Rows k = rows_of(f_.k, b, kv_head, place.begin, count, s.rows);
  kernels_.pack_lanes(k, static_cast<T>(f_.scale * std::numbers::log2e), width, keys);
  const bool finite = kernels_.copy_rows(k, key_stride_, key_rows);
  const kernels::Rows v = rows_of(f_.v, b, kv_head, place.begin, count, s.rows);
  kernels_.pack_lanes(v, T{1}, width, values);
  std::fill(tile.dk, tile.dk + head_rows_ * width, T{0});
  std::fill(tile.dv, tile.dv + v_rows_ * width, T{0});
  tile.keys = {keys, values, key_rows, key_stride_, count, place.columns, finite};
  return tile;
}

template <typename T>
typename FusedBackward<T>::Block FusedBackward<T>::start_block(dim_t h, dim_t i,
                                                               const Scratch& s) const {
  const dim_t count = block_end(i) - i;
  Block block{};
  block.h = h;
  block.i = i;
  block.queries = {s.q, s.dcontext, s.minus_lse, s.minus_delta, count, head_dim_, v_dim_, nullptr};
  return block;
}

template <typename T>
void FusedBackward<T>::pack_block(dim_t b, Block& block, const Scratch& s) const {
  const dim_t count = block.queries.count;
  const kernels::Rows q = rows_of(f_.q, b, block.h, block.i, count, s.rows);
  kernels_.pack_broadcast(q, s.q);
  const bool finite_q = kernels_.pack_values(q, value_stride_, s.q_values);
  const kernels::Rows dcontext = rows_of(pass_.dcontext, b, block.h, block.i, count, s.rows);
  kernels_.pack_broadcast(dcontext, s.dcontext);
  const bool finite = kernels_.pack_values(dcontext, value_stride_, s.dcontext_values);
  block.q_values = {nullptr, s.q_values, count, 0, head_dim_, value_stride_, finite_q};
  block.dcontext_values = {nullptr, s.dcontext_values, count, 0, v_dim_, value_stride_, finite};
  const dim_t row = (b * num_heads_ + block.h) * q_tokens_ + block.i;
  std::fill(s.minus_lse, s.minus_lse + kQTile, T{0});
  std::fill(s.minus_delta, s.minus_delta + kQTile, T{0});
  std::copy_n(minus_lse_.data() + row, count, s.minus_lse);
  std::copy_n(minus_delta_.data() + row, count, s.minus_delta);
  if (has_bias_) {
    std::fill(s.far, s.far + kQTile, std::uint8_t{0});
    std::copy_n(far_.data() + row, count, s.far);
    block.queries.far = s.far;
  }
  block.factor = factor_.empty() ? nullptr : factor_.data() + row;
  block.packed = true;
}

template <typename T>
void FusedBackward<T>::take_turn(const Chunk& chunk, dim_t h, dim_t n, const T* dq) const {
  const auto& range = range_of(chunk.b, n);
  const dim_t first = chunk_of(range.begin);
  const dim_t turn = chunk.number - first;
  std::atomic<dim_t>& done =
      turns_[static_cast<std::size_t>((chunk.b * num_heads_ + h) * blocks_ + n)];
  wait_for_turn(done, turn);
  write_dq(chunk.b, h, n * kQTile, dq, {turn == 0, chunk.number == chunk_of(range.end - 1)});
  done.store(turn + 1, std::memory_order_release);
}

template <typename T>
dim_t FusedBackward<T>::chunk_of(dim_t j) const {
  const auto tile = std::upper_bound(tiles_.begin(), tiles_.end(), j,
                                     [](dim_t key, const QueryRange& t) { return key < t.begin; });
  return (tile - tiles_.begin() - 1) / chunk_tiles_;
}

template <typename T>
void FusedBackward<T>::write_dq(dim_t b, dim_t h, dim_t i, const T* part, Turn turn) const {
  if (!sums_in_place()) return write_rounded_dq(b, h, i, part, turn);
  const kernels::OutRows to = out_rows(out_.dq, b, h, i, block_end(i) - i);
  const T scale = static_cast<T>(f_.scale);
  T* rows = static_cast<T*>(to.address);
  for (dim_t x = 0; x < to.count; ++x) {
    T* row = rows + x * to.row_stride;
    const T* from = part + x * key_stride_;
    for (dim_t d = 0; d < to.dim; ++d) {
      const T more = part == nullptr ? T{0} : scale * from[d];
      row[d * to.stride] = turn.first ? more : row[d * to.stride] + more;
    }
  }
}

template <typename T>
void FusedBackward<T>::write_rounded_dq(dim_t b, dim_t h, dim_t i, const T* part, Turn turn) const {
  const kernels::OutRows to = out_rows(out_.dq, b, h, i, block_end(i) - i);
  const T scale = static_cast<T>(f_.scale);
  const auto write = [&](auto* rows) {
    for (dim_t x = 0; x < to.count; ++x) {
      const dim_t first = ((b * num_heads_ + h) * q_tokens_ + i + x) * head_dim_;
      for (dim_t d = 0; d < head_dim_; ++d) {
        T sum = part == nullptr ? T{0} : scale * part[x * key_stride_ + d];
        if (!turn.first) sum = dq_sums_[first + d] + sum;
        if (turn.last) {
          store(static_cast<double>(sum), rows + x * to.row_stride + d * to.stride);
        } else {
          dq_sums_[first + d] = sum;
        }
      }
    }
  };
  if (to.dtype == DType::bf16) {
    write(static_cast<BFloat16*>(to.address));
  } else {
    write(static_cast<Float16*>(to.address));
  }
}

template <typename T>
void FusedBackward<T>::write_zero_dq() const {
  for (dim_t row = 0; row < batch_ * num_heads_ * blocks_; ++row) {
    const dim_t head = row / blocks_;
    write_dq(head / num_heads_, head % num_heads_, row % blocks_ * kQTile, nullptr, {true, true});
  }
}

template <typename T>
void FusedBackward<T>::finish_tile(dim_t b, dim_t kv_head, const Keys& tile,
                                   const Scratch& s) const {
  const dim_t width = tile.keys.columns * kernels_.lanes;
  std::fill(s.factor, s.factor + width_, static_cast<T>(f_.scale));
  kernels_.unpack_lanes(tile.dk, width, s.factor,
                        out_rows(out_.dk, b, kv_head, tile.j, tile.keys.count));
  std::fill(s.factor, s.factor + width_, T{1});
  kernels_.unpack_lanes(tile.dv, width, s.factor,
                        out_rows(out_.dv, b, kv_head, tile.j, tile.keys.count));
}

template class FusedBackward<float>;
template class FusedBackward<double>;

void attend_backward_fused(const BackwardProblem& problem) {
  if (problem.forward.q.dtype() == DType::f64) {
    FusedBackward<double>(problem).run();
  } else {
    FusedBackward<float>(problem).run();
  }
}

}  // namespace cephalo
