#include "cephalo/attention/fused/fused_second.h"

#include <numbers>

#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

// Tiles whose parts of tcontext are summed on their own first: long rows lose less.
constexpr dim_t kRunTiles = 16;

}  // namespace

template <typename T>
FusedSecond<T>::FusedSecond(const SecondProblem& problem)
    : Base(problem.backward),
      along_(problem.along),
      tangents_(problem.tangents),
      second_(*kernels::second_kernels<T, T>(kernels::isa_for<T>())),
      v_stride_(round_up(this->v_dim_, this->kernels_.lanes)),
      minus_tlse_(static_cast<std::size_t>(this->batch_ * this->num_heads_ * this->q_tokens_)) {}

template <typename T>
void FusedSecond<T>::run_tangent() {
  this->prepare();
  const dim_t blocks = this->blocks_;
  const Region region{.pieces = this->batch_ * this->num_heads_ * blocks,
                      .flops = this->flops() / kFusedSpeed,
                      .scratch_bytes = all_scratch_bytes()};
  parallel_for(region, [&](dim_t piece, std::byte* memory) {
    const dim_t head = piece / blocks;
    move_block(head / this->num_heads_, head % this->num_heads_, piece % blocks, memory);
  });
}

template <typename T>
void FusedSecond<T>::run() {
  run_tangent();
  find_tdelta();
  if (this->chunks_ == 0) this->write_zero_dq();
  this->for_chunks(all_scratch_bytes(),
                   [&](const Chunk& chunk, std::byte* memory) { run_second_chunk(chunk, memory); });
  for (const MutableTensorView& hbias : this->out_.dbias) {
    if (hbias.numel() == 0) continue;
    this->fill_zero(hbias);
    this->for_bias_parts(hbias, all_scratch_bytes(), [&](const BiasPart& part, std::byte* memory) {
      add_hbias(part, hbias, memory);
    });
  }
}

template <typename T>
typename FusedSecond<T>::More FusedSecond<T>::divide_more(Arena& arena) const {
  const dim_t pairs = kQTile * this->width_;
  More m{};
  m.uq = arena.take<T>(kQTile * this->head_dim_);
  m.uq_values = arena.take<T>(this->head_rows_ / this->kernels_.rows * this->value_stride_);
  m.minus_tlse = arena.take<T>(kQTile);
  m.minus_tdelta = arena.take<T>(kQTile);
  m.tbias = arena.take<T>(along_.bias.empty() ? 0 : pairs);
  m.tweights = arena.take<T>(pairs);
  m.tslopes = arena.take<T>(this->f_.options.softcap ? pairs : 0);
  m.tdscores = arena.take<T>(pairs);
  m.run = arena.take<T>(kQTile * v_stride_);
  m.tcontext = arena.take<T>(kQTile * v_stride_);
  m.tlse = arena.take<double>(kQTile);
  m.finite_uq = arena.take<bool>(1);
  m.value_rows = arena.take<T>(this->width_ * v_stride_);
  m.tiles = arena.take<T>(this->chunk_tiles_ * direction_numbers());
  return m;
}

template <typename T>
void FusedSecond<T>::move_block(dim_t b, dim_t h, dim_t n, std::byte* memory) {
  Arena arena(memory);
  const Scratch s = this->divide(arena);
  const More m = divide_more(arena);
  Masks masks(this->f_, this->kernels_, s.mask);
  Block block = this->start_block(h, n * kQTile, s);
  const dim_t numbers = kQTile * v_stride_;
  std::fill(m.run, m.run + numbers, T{0});
  std::fill(m.tcontext, m.tcontext + numbers, T{0});
  std::fill(m.tlse, m.tlse + kQTile, 0.0);
  const auto finish_run = [&] {
    for (dim_t k = 0; k < numbers; ++k) m.tcontext[k] += m.run[k];
    std::fill(m.run, m.run + numbers, T{0});
  };
  const auto& range = this->range_of(b, n);
  for (dim_t t = 0; t < static_cast<dim_t>(this->tiles_.size()); ++t) {
    if (this->tile_begin(t + 1) <= range.begin || range.end <= this->tile_begin(t)) continue;
    kernels::TileMask<T> mask;
    if (masks.build(this->place_of(b, block, t), &mask) != Tile::hidden) {
      add_tangent(b, t, block, mask, s, m);
    }
    if (t % kRunTiles == kRunTiles - 1) finish_run();
  }
  finish_run();
  write_tangents(b, h, block.i, s, m);
}

template <typename T>
void FusedSecond<T>::add_tangent(dim_t b, dim_t t, Block& block, const kernels::TileMask<T>& mask,
                                 const Scratch& s, const More& m) const {
  const dim_t kv_head = block.h / this->group_;
  const Keys tile = pack_keys(b, kv_head, t, s.tiles, s);
  const KeyDirection direction{{}, pack_ukeys(b, kv_head, tile, m.tiles, s), nullptr};
  weigh(b, block, tile, direction, mask, s, m);
  second_.add_rows(block.queries, tile.keys, s.strips, m.tweights, m.tlse);
  second_.drop(block.queries, tile.keys, &mask, s.strips, s.weights);
  second_.drop(block.queries, tile.keys, &mask, s.strips, m.tweights);
  // tcontext += tweights v + weights uv
  add_values(this->f_.v, b, block, tile, mask, m.tweights, s, m);
  add_values(along_.v, b, block, tile, mask, s.weights, s, m);
}

// What add_dq does with rows of keys.
template <typename T>
void FusedSecond<T>::add_values(const TensorView& t, dim_t b, const Block& block, const Keys& tile,
                                const kernels::TileMask<T>& mask, const T* pairs, const Scratch& s,
                                const More& m) const {
  const kernels::Rows from = rows_of(t, b, block.h / this->group_, tile.j, tile.keys.count, s.rows);
  kernels::KeyTile<T> rows = tile.keys;
  rows.key_stride = v_stride_;
  rows.key_rows = m.value_rows;
  rows.finite_keys = this->kernels_.copy_rows(from, v_stride_, m.value_rows);
  this->backward_.add_dq(block.queries, rows, &mask, s.strips, pairs, m.run);
}

// tcontext: [batch, num_heads, q_tokens, v_dim]   tlse: [batch, num_heads, q_tokens]
template <typename T>
void FusedSecond<T>::write_tangents(dim_t b, dim_t h, dim_t i, const Scratch& s, const More& m) {
  const dim_t count = this->block_end(i) - i;
  const MutableTensorView& tcontext = tangents_.tcontext;
  const dim_t stride = tcontext.strides()[3];
  T* context = m.run;  // which has been added up
  this->kernels_.copy_rows(rows_of(this->pass_.context, b, h, i, count, s.rows), v_stride_,
                           context);
  for (dim_t x = 0; x < count; ++x) {
    const double tlse = m.tlse[x];
    visit_dtype(tcontext.dtype(), [&](auto zero) {
      auto* to =
          static_cast<decltype(zero)*>(tcontext.mutable_data()) + row_offset(tcontext, b, h, i + x);
      for (dim_t d = 0; d < this->v_dim_; ++d) {
        const auto moved = static_cast<double>(m.tcontext[x * v_stride_ + d]);
        const auto from = static_cast<double>(context[x * v_stride_ + d]);
        // A row that sees nothing has tlse 0, and its context may be anything.
        store(moved - (tlse == 0.0 ? 0.0 : tlse * from), to + d * stride);
      }
    });
    tangents_.tlse.template mutable_data_as<T>()[row_offset(tangents_.tlse, b, h, i + x)] =
        static_cast<T>(tlse);
    const dim_t number = (b * this->num_heads_ + h) * this->q_tokens_ + i + x;
    minus_tlse_[static_cast<std::size_t>(number)] = static_cast<T>(-tlse);
  }
}

template <typename T>
void FusedSecond<T>::find_tdelta() {
  minus_tdelta_.resize(minus_tlse_.size());
  const dim_t blocks = this->blocks_;
  const Region region{.pieces = this->batch_ * this->num_heads_ * blocks,
                      .flops = static_cast<double>(this->pass_.dcontext.numel()),
                      .scratch_bytes = 2 * kQTile * sizeof(void*)};
  parallel_for(region, [&](dim_t piece, std::byte* scratch) {
    auto** addresses = reinterpret_cast<const void**>(scratch);
    const dim_t head = piece / blocks;
    const dim_t b = head / this->num_heads_, h = head % this->num_heads_;
    const dim_t i = piece % blocks * kQTile;
    const dim_t count = this->block_end(i) - i;
    T* tdelta = minus_tdelta_.data() + head * this->q_tokens_ + i;
    this->kernels_.row_products(rows_of(this->pass_.dcontext, b, h, i, count, addresses),
                                rows_of(tangents_.tcontext, b, h, i, count, addresses + kQTile),
                                tdelta);
    for (dim_t x = 0; x < count; ++x) tdelta[x] = -tdelta[x];
  });
}

template <typename T>
typename FusedSecond<T>::Keys FusedSecond<T>::pack_keys(dim_t b, dim_t kv_head, dim_t number,
                                                        T* memory, const Scratch& s) const {
  const QueryRange& place = this->tiles_[static_cast<std::size_t>(number)];
  Keys tile{};
  tile.j = place.begin;
  tile.keys.count = this->tile_begin(number + 1) - place.begin;
  tile.keys.columns = place.columns;
  tile.keys.keys = memory;
  const kernels::Rows k = rows_of(this->f_.k, b, kv_head, tile.j, tile.keys.count, s.rows);
  this->kernels_.pack_lanes(k, static_cast<T>(this->f_.scale * std::numbers::log2e),
                            place.columns * this->kernels_.lanes, memory);
  return tile;
}

template <typename T>
T* FusedSecond<T>::pack_ukeys(dim_t b, dim_t kv_head, const Keys& tile, T* memory,
                              const Scratch& s) const {
  const kernels::Rows uk = rows_of(along_.k, b, kv_head, tile.j, tile.keys.count, s.rows);
  this->kernels_.pack_lanes(uk, static_cast<T>(this->f_.scale * std::numbers::log2e),
                            tile.keys.columns * this->kernels_.lanes, memory);
  return memory;
}

template <typename T>
typename FusedSecond<T>::KeyDirection FusedSecond<T>::pack_direction(dim_t b, dim_t kv_head,
                                                                     const Keys& tile, T* memory,
                                                                     const Scratch& s) const {
  const dim_t width = tile.keys.columns * this->kernels_.lanes;
  const dim_t count = tile.keys.count;
  T* ukeys = pack_ukeys(b, kv_head, tile, memory, s);
  T* uvalues = ukeys + this->head_dim_ * this->width_;
  T* ukey_rows = uvalues + this->v_dim_ * this->width_;
  const kernels::Rows uk = rows_of(along_.k, b, kv_head, tile.j, count, s.rows);
  const bool finite = this->kernels_.copy_rows(uk, this->key_stride_, ukey_rows);
  const kernels::Rows uv = rows_of(along_.v, b, kv_head, tile.j, count, s.rows);
  this->kernels_.pack_lanes(uv, T{1}, width, uvalues);
  KeyDirection direction{tile.keys, ukeys, uvalues};
  direction.rows.key_rows = ukey_rows;
  direction.rows.finite_keys = finite;
  return direction;
}

template <typename T>
void FusedSecond<T>::pack_queries(dim_t b, Block& block, const Scratch& s, const More& m) const {
  this->pack_block(b, block, s);
  const dim_t count = block.queries.count;
  const kernels::Rows uq = rows_of(along_.q, b, block.h, block.i, count, s.rows);
  this->kernels_.pack_broadcast(uq, m.uq);
  *m.finite_uq = this->kernels_.pack_values(uq, this->value_stride_, m.uq_values);
  const dim_t row = (b * this->num_heads_ + block.h) * this->q_tokens_ + block.i;
  std::fill(m.minus_tlse, m.minus_tlse + kQTile, T{0});
  std::fill(m.minus_tdelta, m.minus_tdelta + kQTile, T{0});
  std::copy_n(minus_tlse_.data() + row, count, m.minus_tlse);
  if (!minus_tdelta_.empty()) std::copy_n(minus_tdelta_.data() + row, count, m.minus_tdelta);
}

// to: [kQTile][width] = the sum of all biases' directions
template <typename T>
void FusedSecond<T>::add_up_tbias(dim_t b, const Block& block, const Keys& tile, T* to) const {
  const dim_t width = tile.keys.columns * this->kernels_.lanes;
  std::fill(to, to + kQTile * width, T{0});
  for (const TensorView& tbias : along_.bias) {
    const auto stride = [&](int axis) { return tbias.dim(axis) == 1 ? 0 : tbias.strides()[axis]; };
    const T* from = tbias.data_as<T>() + b * stride(0) + block.h * stride(1) + block.i * stride(2) +
                    tile.j * stride(3);
    for (dim_t x = 0; x < block.queries.count; ++x) {
      for (dim_t k = 0; k < tile.keys.count; ++k) {
        to[x * width + k] += from[x * stride(2) + k * stride(3)];
      }
    }
  }
}

template <typename T>
kernels::TileDirection<T, T> FusedSecond<T>::direction_of(const KeyDirection& direction,
                                                          const More& m) const {
  return {m.uq,         direction.ukeys, direction.uvalues, along_.bias.empty() ? nullptr : m.tbias,
          m.minus_tlse, m.minus_tdelta};
}

template <typename T>
kernels::PairTile<T, T> FusedSecond<T>::pairs_of(const Scratch& s, const More& m) const {
  return {s.strips, s.weights, s.tanhs, m.tweights, m.tslopes, s.dscores, m.tdscores};
}

template <typename T>
void FusedSecond<T>::weigh(dim_t b, Block& block, const Keys& tile, const KeyDirection& direction,
                           const kernels::TileMask<T>& mask, const Scratch& s,
                           const More& m) const {
  if (!block.packed) pack_queries(b, block, s, m);
  this->backward_.reweigh(block.queries, tile.keys, &mask, s.weights, s.tanhs, s.strips);
  this->normalize(block, tile, s.weights);
  if (!along_.bias.empty()) add_up_tbias(b, block, tile, m.tbias);
  second_.move_weights(block.queries, tile.keys, &mask, direction_of(direction, m), pairs_of(s, m));
}

template <typename T>
void FusedSecond<T>::run_second_chunk(const Chunk& chunk, std::byte* memory) const {
  Arena arena(memory);
  const Scratch s = this->divide(arena);
  const More m = divide_more(arena);
  Masks masks(this->f_, this->kernels_, s.mask);
  KeyDirection directions[kChunkTiles];
  bool packed[kChunkTiles] = {};
  this->walk_chunk(chunk, s, [&](Block& block, const Keys& tile, dim_t t) {
    kernels::TileMask<T> mask;
    const dim_t width = tile.keys.columns * this->kernels_.lanes;
    const TilePlace place{chunk.b, block.h, block.i,        block.queries.count,
                          width,   tile.j,  tile.keys.count};
    if (masks.build(place, &mask) == Tile::hidden) return;
    if (!packed[t]) {
      T* to = m.tiles + t * direction_numbers();
      directions[t] = pack_direction(chunk.b, chunk.kv_head, tile, to, s);
      packed[t] = true;
    }
    add_second_pair(chunk.b, block, tile, directions[t], mask, s, m);
  });
}

template <typename T>
void FusedSecond<T>::add_second_pair(dim_t b, Block& block, const Keys& tile,
                                     const KeyDirection& direction,
                                     const kernels::TileMask<T>& mask, const Scratch& s,
                                     const More& m) const {
  weigh(b, block, tile, direction, mask, s, m);
  second_.differentiate(block.queries, tile.keys, &mask, direction_of(direction, m),
                        pairs_of(s, m));
  // hv += tweightsᵀ dcontext
  second_.drop(block.queries, tile.keys, &mask, s.strips, m.tweights);
  const kernels::QueryTile<T, T> hv = this->gathering(tile.dv, tile.keys.columns);
  this->kernels_.gather(block.dcontext_values, hv, &mask, m.tweights, s.strips);
  // hk += tdscoresᵀ q + dscoresᵀ uq
  const kernels::QueryTile<T, T> hk = this->gathering(tile.dk, tile.keys.columns);
  this->kernels_.gather(block.q_values, hk, &mask, m.tdscores, s.strips);
  kernels::KeyBlock<T> uq = block.q_values;
  uq.values = m.uq_values;
  uq.finite_values = *m.finite_uq;
  this->kernels_.gather(uq, hk, &mask, s.dscores, s.strips);
  // hq += tdscores k + dscores uk
  this->backward_.add_dq(block.queries, tile.keys, &mask, s.strips, m.tdscores, s.dq);
  this->backward_.add_dq(block.queries, direction.rows, &mask, s.strips, s.dscores, s.dq);
}

template <typename T>
void FusedSecond<T>::add_hbias(const BiasPart& part, const MutableTensorView& hbias,
                               std::byte* memory) const {
  Arena arena(memory);
  const Scratch s = this->divide(arena);
  const More m = divide_more(arena);
  Masks masks(this->f_, this->kernels_, s.mask);
  Block block = this->start_block(part.h, part.n * kQTile, s);
  for (dim_t t = part.t; t < part.t_end; ++t) {
    kernels::TileMask<T> mask;
    if (masks.build(this->place_of(part.b, block, t), &mask) == Tile::hidden) continue;
    const Keys tile = this->pack_tile(part.b, part.h / this->group_, t, s.tiles, s);
    const KeyDirection direction = pack_direction(part.b, part.h / this->group_, tile, m.tiles, s);
    weigh(part.b, block, tile, direction, mask, s, m);
    mask.softcap = T(0);  // the bias came after it: its gradient is that of capped scores
    second_.differentiate(block.queries, tile.keys, &mask, direction_of(direction, m),
                          pairs_of(s, m));
    this->sum_pairs(part.b, block, tile, s.strips, m.tdscores, hbias);
  }
}

void attend_tangent_fused(const SecondProblem& problem) {
  if (problem.backward.forward.q.dtype() == DType::f64) {
    FusedSecond<double>(problem).run_tangent();
  } else {
    FusedSecond<float>(problem).run_tangent();
  }
}

void attend_second_fused(const SecondProblem& problem) {
  if (problem.backward.forward.q.dtype() == DType::f64) {
    FusedSecond<double>(problem).run();
  } else {
    FusedSecond<float>(problem).run();
  }
}

}  // namespace cephalo
