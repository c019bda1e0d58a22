#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <vector>

#include "cephalo/attention/backward_problem.h"
#include "cephalo/attention/tile_mask.h"
#include "cephalo/attention/tiles.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

constexpr dim_t kQTile = kernels::kKvTile;  // queries in one packed block
// Tiles of keys that share each packed block of queries: as many as stay in the L2 cache.
constexpr dim_t kChunkTiles = 16;
constexpr dim_t kChunkBytes = 640 << 10;
// Chunks of all sequences and heads together that are wanted at least: work for many cores. A
// constant, since the order of sums in dq hangs on it.
constexpr dim_t kChunksWanted = 32;
constexpr dim_t kLine = 64;  // bytes of a cache line
// Rows of packed values would otherwise lie 4 KiB apart and fall into the same lines of the cache.
constexpr dim_t kValuePadding = 16;

const std::byte* row_address(const TensorView& t, dim_t b, dim_t h, dim_t i) {
  const Strides& s = t.strides();
  return static_cast<const std::byte*>(t.data()) +
         (b * s[0] + h * s[1] + i * s[2]) * static_cast<dim_t>(item_size(t.dtype()));
}

// Rows [i, i + count) of head h of a [batch, heads, tokens, dim] tensor.
kernels::Rows rows_of(const TensorView& t, dim_t b, dim_t h, dim_t i, dim_t count,
                      const void** addresses) {
  const dim_t step = t.strides()[2] * static_cast<dim_t>(item_size(t.dtype()));
  const std::byte* first = row_address(t, b, h, i);
  for (dim_t x = 0; x < count; ++x) addresses[x] = first + x * step;
  return {addresses, count, t.dim(3), t.strides()[3], t.dtype()};
}

kernels::OutRows out_rows(const MutableTensorView& t, dim_t b, dim_t h, dim_t i, dim_t count) {
  const Strides& s = t.strides();
  auto* first = static_cast<std::byte*>(t.mutable_data()) +
                (b * s[0] + h * s[1] + i * s[2]) * static_cast<dim_t>(item_size(t.dtype()));
  return {first, count, t.dim(3), s[2], s[3], t.dtype()};
}

// Divides memory into arrays, each on a line of its own; without memory it only measures.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <typename U>
  U* take(dim_t count) {
    std::byte* array = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_up(count * static_cast<dim_t>(sizeof(U)), kLine);
    return reinterpret_cast<U*>(array);
  }
  dim_t used() const { return used_; }

 private:
  std::byte* memory_;
  dim_t used_ = 0;
};

// The forward pass in reverse, tile by tile, with weights computed anew from q, k and lse:
//
//   4d  context = weights v         ⇒  dv += weightsᵀ dcontext,  dweights = dcontext vᵀ
//   4c  weights = softmax(scores)   ⇒  dscores = weights · (dweights − delta)
//   4a  scores = scale · q kᵀ       ⇒  dq += scale · dscores k,  dk += scale · dscoresᵀ q
//
// A piece of work is a chunk of keys of one sequence and key head, with every query that sees it:
// it owns its rows of dk and dv. Rows of dq get something from many chunks, which add in the order
// of their keys, each waiting for its turn: chunks that run at the same time walk through the
// queries in step, one block behind each other.
template <typename T>
class FusedBackward {
 public:
  explicit FusedBackward(const BackwardProblem& problem)
      : f_(problem.forward),
        pass_(problem.pass),
        out_(problem.gradients),
        kernels_(kernels::attend_kernels<T>(current_isa())),
        backward_(kernels::backward_kernels<T>(current_isa())),
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

  void run() {
    look_at_rows();
    find_key_ranges();
    measure_large_rows();
    if (chunks_ == 0) write_zero_dq();
    const dim_t rows = batch_ * num_heads_ * blocks_;
    turns_ = std::make_unique<std::atomic<dim_t>[]>(static_cast<std::size_t>(rows));
    // The longest first, under a causal mask; and all heads before the next chunk, so that turns
    // come without waiting where there are many heads.
    const dim_t pairs = batch_ * num_kv_heads_;
    const Region region{.pieces = chunks_ * pairs,
                        .flops = flops() / kFusedSpeed,
                        .scratch_bytes = scratch_bytes()};
    parallel_for(region, [&](dim_t piece, std::byte* scratch) {
      const dim_t pair = piece % pairs;
      run_chunk({pair / num_kv_heads_, pair % num_kv_heads_, piece / pairs}, scratch);
    });
    for (const MutableTensorView& dbias : out_.dbias) {
      if (dbias.numel() == 0) continue;
      fill_zero(dbias);
      differentiate_bias(dbias);
    }
  }

 private:
  struct Chunk {
    dim_t b, kv_head;
    dim_t number;
  };
  // A tile of keys with its gradients.
  struct Keys {
    dim_t j;
    kernels::KeyTile<T> keys;
    T* dk;  // [head_dim in whole register tiles][width]
    T* dv;  // [v_dim in whole register tiles][width]
  };
  // A block of queries, and whether its rows are packed.
  struct Block {
    dim_t h;
    dim_t i;
    kernels::QueryBlock<T> queries;
    kernels::KeyBlock<T> q_values;         // for dk: what `gather` multiplies
    kernels::KeyBlock<T> dcontext_values;  // for dv
    const T* factor;                       // [count], of the weights of each row; null: all are 1
    bool packed;
  };
  // Memory of one thread.
  struct Scratch {
    std::byte* mask;
    const void** rows;  // [kQTile]
    kernels::StripColumns* strips;
    T *q, *dcontext;                // broadcast layout
    T *q_values, *dcontext_values;  // values layout
    T *minus_lse, *minus_delta;     // [kQTile]
    std::uint8_t* far;              // [kQTile]
    T *weights, *dscores, *slopes;  // [kQTile][width]
    T* dq;                          // [kQTile][key_stride]
    T* factor;                      // [width]
    T* tiles;
  };

  dim_t tile_numbers() const {
    return (head_dim_ + v_dim_ + head_rows_ + v_rows_ + key_stride_) * width_;
  }

  Scratch divide(Arena& arena) const {
    Scratch s{};
    s.mask = arena.take<std::byte>(
        static_cast<dim_t>(TileMaskBuilder<T, Lanes::keys>::scratch_bytes(f_, kernels_)));
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
    s.slopes = arena.take<T>(f_.options.softcap ? kQTile * width_ : 0);
    s.dq = arena.take<T>(kQTile * key_stride_);
    s.factor = arena.take<T>(width_);
    s.tiles = arena.take<T>(chunk_tiles_ * tile_numbers());
    return s;
  }

  std::size_t scratch_bytes() const {
    Arena arena(nullptr);
    divide(arena);
    return static_cast<std::size_t>(arena.used());
  }

  // Chunks of whole tiles, as many as the shape asks for, whatever the threads.
  void cut_chunks() {
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

  dim_t tile_begin(dim_t t) const {
    return t < static_cast<dim_t>(tiles_.size()) ? tiles_[static_cast<std::size_t>(t)].begin
                                                 : kv_tokens_;
  }
  dim_t block_end(dim_t i) const { return std::min(i + kQTile, q_tokens_); }

  double flops() const {
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

  // delta = Σ dcontext · context − dlse, and lse in base 2, for every row.
  void look_at_rows() {
    const dim_t rows = batch_ * num_heads_ * q_tokens_;
    minus_delta_.resize(static_cast<std::size_t>(rows));
    minus_lse_.resize(static_cast<std::size_t>(rows));
    if (has_bias_) far_.resize(static_cast<std::size_t>(rows));
    const Region region{.pieces = batch_ * num_heads_ * blocks_,
                        .flops = static_cast<double>(rows * v_dim_),
                        .scratch_bytes = 2 * kQTile * sizeof(void*)};
    parallel_for(region, [&](dim_t piece, std::byte* scratch) {
      auto** addresses = reinterpret_cast<const void**>(scratch);
      const dim_t head = piece / blocks_;
      const dim_t b = head / num_heads_;
      const dim_t h = head % num_heads_;
      const dim_t i = piece % blocks_ * kQTile;
      const dim_t count = block_end(i) - i;
      T* delta = minus_delta_.data() + head * q_tokens_ + i;
      T* minus_lse = minus_lse_.data() + head * q_tokens_ + i;
      kernels_.row_products(rows_of(pass_.dcontext, b, h, i, count, addresses),
                            rows_of(pass_.context, b, h, i, count, addresses + kQTile), delta);
      for (dim_t x = 0; x < count; ++x) {
        const double dlse = pass_.dlse.numel() > 0 ? number(pass_.dlse, b, h, i + x) : 0.0;
        delta[x] = static_cast<T>(dlse - static_cast<double>(delta[x]));
        // A row that saw nothing has no lse; its weights are 0 whatever stands here.
        const double lse = number(pass_.lse, b, h, i + x);
        const bool far = has_bias_ && is_far(lse);
        if (has_bias_) far_[static_cast<std::size_t>(head * q_tokens_ + i + x)] = far ? 1 : 0;
        const double in_units = far ? lse : lse * std::numbers::log2e;
        minus_lse[x] =
            lse == -std::numeric_limits<double>::infinity() ? T{0} : static_cast<T>(-in_units);
      }
    });
  }

  bool is_large(dim_t b, dim_t h, dim_t i) const {
    return lse_is_large(number(pass_.lse, b, h, i));
  }

  // Rows whose lse is large: what their weights add up to, by which they are divided, and their
  // delta, from those weights. A rounded lse, and scores that round to another side than the
  // forward pass's did, then cost neither: weights add up to 1, and gradients of scores to dlse.
  void measure_large_rows() {
    std::vector<dim_t> blocks;
    for (dim_t block = 0; block < batch_ * num_heads_ * blocks_; ++block) {
      const dim_t head = block / blocks_;
      const dim_t begin = block % blocks_ * kQTile;
      bool any = false;
      for (dim_t i = begin; i < block_end(begin) && !any; ++i) {
        any = is_large(head / num_heads_, head % num_heads_, i);
      }
      if (any) blocks.push_back(block);
    }
    if (blocks.empty()) return;
    factor_.assign(minus_lse_.size(), T{1});
    const double share =
        static_cast<double>(blocks.size()) / static_cast<double>(batch_ * num_heads_ * blocks_);
    const Region region{.pieces = static_cast<dim_t>(blocks.size()),
                        .flops = share * flops() / kFusedSpeed,
                        .scratch_bytes = scratch_bytes()};
    parallel_for(region, [&](dim_t piece, std::byte* memory) {
      Arena arena(memory);
      const dim_t block = blocks[static_cast<std::size_t>(piece)];
      const dim_t head = block / blocks_;
      measure_block(head / num_heads_, head % num_heads_, block % blocks_, divide(arena));
    });
  }

  void measure_block(dim_t b, dim_t h, dim_t n, const Scratch& s) {
    TileMaskBuilder<T, Lanes::keys> masks(f_, kernels_, s.mask);
    Block block = start_block(h, n * kQTile, s);
    double sums[kQTile] = {};
    double deltas[kQTile] = {};
    const auto& range = range_of(b, n);
    for (dim_t t = 0; t < static_cast<dim_t>(tiles_.size()); ++t) {
      if (tile_begin(t + 1) <= range.begin || range.end <= tile_begin(t)) continue;
      kernels::TileMask<T> mask;
      if (masks.build(place_of(b, block, t), &mask) == Tile::hidden) continue;
      if (!block.packed) pack_block(b, block, s);
      std::fill(s.minus_delta, s.minus_delta + kQTile, T{0});
      const Keys tile = pack_tile(b, h / group_, t, s.tiles, s);
      backward_.reweigh(block.queries, tile.keys, &mask, s.weights, s.slopes, s.strips);
      add_rows(block, tile, s.strips, s.weights, sums);
      // weights · dweights: the gradient of capped scores, were delta 0
      mask.softcap = T(0);
      backward_.differentiate(block.queries, tile.keys, &mask, s.strips, s.slopes, s.weights,
                              s.dscores);
      add_rows(block, tile, s.strips, s.dscores, deltas);
    }
    for (dim_t x = 0; x < block.queries.count; ++x) {
      if (!is_large(b, h, block.i + x) || !(sums[x] > 0.0)) continue;
      const auto row = static_cast<std::size_t>((b * num_heads_ + h) * q_tokens_ + block.i + x);
      const double dlse = pass_.dlse.numel() > 0 ? number(pass_.dlse, b, h, block.i + x) : 0.0;
      factor_[row] = static_cast<T>(1.0 / sums[x]);
      minus_delta_[row] = static_cast<T>(dlse - deltas[x] / sums[x]);
    }
  }

  // sums[x] += the numbers of row x of a tile.
  void add_rows(const Block& block, const Keys& tile, const kernels::StripColumns* strips,
                const T* numbers, double* sums) const {
    const dim_t width = tile.keys.columns * kernels_.lanes;
    for (dim_t x = 0; x < block.queries.count; ++x) {
      const kernels::StripColumns columns = strips[x / kernels_.rows];
      const dim_t begin = columns.first * kernels_.lanes;
      const dim_t end = std::min(begin + columns.count * kernels_.lanes, tile.keys.count);
      for (dim_t k = begin; k < end; ++k) sums[x] += static_cast<double>(numbers[x * width + k]);
    }
  }

  // weights ·= factor, for rows that need it.
  void normalize(const Block& block, const Keys& tile, T* weights) const {
    if (block.factor == nullptr) return;
    const dim_t width = tile.keys.columns * kernels_.lanes;
    for (dim_t x = 0; x < block.queries.count; ++x) {
      if (block.factor[x] == T{1}) continue;
      for (dim_t k = 0; k < width; ++k) weights[x * width + k] *= block.factor[x];
    }
  }

  TilePlace place_of(dim_t b, const Block& block, dim_t t) const {
    const QueryRange& place = tiles_[static_cast<std::size_t>(t)];
    return {b,
            block.h,
            block.i,
            block.queries.count,
            place.columns * kernels_.lanes,
            place.begin,
            tile_begin(t + 1) - place.begin};
  }

  static double number(const TensorView& t, dim_t b, dim_t h, dim_t i) {
    const Strides& s = t.strides();
    return static_cast<double>(t.data_as<T>()[b * s[0] + h * s[1] + i * s[2]]);
  }

  static void fill_zero(const MutableTensorView& t) {
    const Tensor zero = Tensor::zeros({1}, t.dtype());
    t.copy_from(broadcast_to(zero, t.shape()));
  }

  void find_key_ranges() {
    ranges_.reserve(static_cast<std::size_t>(batch_ * blocks_));
    for (dim_t b = 0; b < batch_; ++b) {
      for (dim_t n = 0; n < blocks_; ++n) {
        ranges_.push_back(f_.mask.key_range(b, n * kQTile, block_end(n * kQTile)));
      }
    }
  }
  const BoundMask::KeyRange& range_of(dim_t b, dim_t n) const {
    return ranges_[static_cast<std::size_t>(b * blocks_ + n)];
  }

  void run_chunk(const Chunk& chunk, std::byte* memory) const {
    Arena arena(memory);
    const Scratch scratch = divide(arena);
    TileMaskBuilder<T, Lanes::keys> masks(f_, kernels_, scratch.mask);
    Keys tiles[kChunkTiles];
    const dim_t first = chunk.number * chunk_tiles_;
    const dim_t count = std::min(chunk_tiles_, static_cast<dim_t>(tiles_.size()) - first);
    for (dim_t t = 0; t < count; ++t) {
      tiles[t] =
          pack_tile(chunk.b, chunk.kv_head, first + t, scratch.tiles + t * tile_numbers(), scratch);
    }
    const dim_t j = tile_begin(first);
    const dim_t j_end = tile_begin(first + count);
    for (dim_t h = chunk.kv_head * group_; h < (chunk.kv_head + 1) * group_; ++h) {
      for (dim_t n = blocks_ - 1; n >= 0; --n) {
        const auto& range = range_of(chunk.b, n);
        if (range.begin >= range.end) {
          if (chunk.number == 0) write_dq(chunk.b, h, n * kQTile, nullptr, false);
          continue;
        }
        if (range.end <= j || j_end <= range.begin) continue;
        Block block = start_block(h, n * kQTile, scratch);
        std::fill(scratch.dq, scratch.dq + kQTile * key_stride_, T{0});
        for (dim_t t = 0; t < count; ++t) {
          add_pair(chunk.b, block, tiles[t], masks, scratch);
        }
        take_turn(chunk, h, n, scratch.dq);
      }
    }
    for (dim_t t = 0; t < count; ++t) finish_tile(chunk.b, chunk.kv_head, tiles[t], scratch);
  }

  // A tile for `gather`, which knows nothing of references.
  static kernels::QueryTile<T> gathering(T* sums, int columns) {
    return {nullptr, sums, nullptr, nullptr, columns, 0, true, 0, false};
  }

  // One block of queries against one tile of keys: the steps in reverse.
  void add_pair(dim_t b, Block& block, const Keys& tile, TileMaskBuilder<T, Lanes::keys>& masks,
                const Scratch& s) const {
    kernels::TileMask<T> built;
    const dim_t width = tile.keys.columns * kernels_.lanes;
    const Tile answer = masks.build(
        {b, block.h, block.i, block.queries.count, width, tile.j, tile.keys.count}, &built);
    if (answer == Tile::hidden) return;
    if (!block.packed) pack_block(b, block, s);
    const kernels::TileMask<T>* mask = answer == Tile::visible ? nullptr : &built;
    // weights = 2^(scores − lse) ⇐ q, k, lse
    backward_.reweigh(block.queries, tile.keys, mask, s.weights, s.slopes, s.strips);
    normalize(block, tile, s.weights);
    // dscores = weights · (dcontext vᵀ − delta)
    backward_.differentiate(block.queries, tile.keys, mask, s.strips, s.slopes, s.weights,
                            s.dscores);
    // dv += weightsᵀ dcontext
    const kernels::QueryTile<T> dv = gathering(tile.dv, tile.keys.columns);
    kernels_.gather(block.dcontext_values, dv, mask, s.weights, s.strips);
    // dk += dscoresᵀ q
    const kernels::QueryTile<T> dk = gathering(tile.dk, tile.keys.columns);
    kernels_.gather(block.q_values, dk, mask, s.dscores, s.strips);
    // dq += dscores k
    backward_.add_dq(block.queries, tile.keys, mask, s.strips, s.dscores, s.dq);
  }

  Keys pack_tile(dim_t b, dim_t kv_head, dim_t number, T* memory, const Scratch& s) const {
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

  Block start_block(dim_t h, dim_t i, const Scratch& s) const {
    const dim_t count = block_end(i) - i;
    Block block{};
    block.h = h;
    block.i = i;
    block.queries = {s.q,   s.dcontext, s.minus_lse, s.minus_delta,
                     count, head_dim_,  v_dim_,      nullptr};
    return block;
  }

  void pack_block(dim_t b, Block& block, const Scratch& s) const {
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

  // Adds a chunk's part of dq when all chunks before it that see the block have done so.
  void take_turn(const Chunk& chunk, dim_t h, dim_t n, const T* dq) const {
    const dim_t first = chunk_of(range_of(chunk.b, n).begin);
    const dim_t turn = chunk.number - first;
    std::atomic<dim_t>& done =
        turns_[static_cast<std::size_t>((chunk.b * num_heads_ + h) * blocks_ + n)];
    wait_for_turn(done, turn);
    write_dq(chunk.b, h, n * kQTile, dq, turn > 0);
    done.store(turn + 1, std::memory_order_release);
  }

  dim_t chunk_of(dim_t j) const {
    const auto tile =
        std::upper_bound(tiles_.begin(), tiles_.end(), j,
                         [](dim_t key, const QueryRange& t) { return key < t.begin; });
    return (tile - tiles_.begin() - 1) / chunk_tiles_;
  }

  // Rows of dq (+)= scale · part; without a part they are 0.
  void write_dq(dim_t b, dim_t h, dim_t i, const T* part, bool add) const {
    const kernels::OutRows to = out_rows(out_.dq, b, h, i, block_end(i) - i);
    const T scale = static_cast<T>(f_.scale);
    T* rows = static_cast<T*>(to.address);
    for (dim_t x = 0; x < to.count; ++x) {
      T* row = rows + x * to.row_stride;
      const T* from = part + x * key_stride_;
      for (dim_t d = 0; d < to.dim; ++d) {
        const T more = part == nullptr ? T{0} : scale * from[d];
        row[d * to.stride] = add ? row[d * to.stride] + more : more;
      }
    }
  }

  void write_zero_dq() const {
    for (dim_t row = 0; row < batch_ * num_heads_ * blocks_; ++row) {
      const dim_t head = row / blocks_;
      write_dq(head / num_heads_, head % num_heads_, row % blocks_ * kQTile, nullptr, false);
    }
  }

  void finish_tile(dim_t b, dim_t kv_head, const Keys& tile, const Scratch& s) const {
    const dim_t width = tile.keys.columns * kernels_.lanes;
    std::fill(s.factor, s.factor + width_, static_cast<T>(f_.scale));
    kernels_.unpack_lanes(tile.dk, width, s.factor,
                          out_rows(out_.dk, b, kv_head, tile.j, tile.keys.count));
    std::fill(s.factor, s.factor + width_, T{1});
    kernels_.unpack_lanes(tile.dv, width, s.factor,
                          out_rows(out_.dv, b, kv_head, tile.j, tile.keys.count));
  }

  // dbias = dscores, summed over the axes along which the bias was repeated. A pass of its own,
  // since a piece must own what it adds to: tiles are computed anew, for each piece of dbias over
  // the batches and heads that share it, in index order.
  void differentiate_bias(const MutableTensorView& dbias) const {
    constexpr dim_t kTiles = 8;  // of keys in one piece
    const auto all_tiles = static_cast<dim_t>(tiles_.size());
    const dim_t key_groups = dbias.dim(3) == 1 ? 1 : (all_tiles + kTiles - 1) / kTiles;
    const dim_t q_groups = dbias.dim(2) == 1 ? 1 : blocks_;
    const dim_t per_group = dbias.dim(3) == 1 ? all_tiles : kTiles;
    const dim_t blocks = dbias.dim(2) == 1 ? blocks_ : 1;
    const dim_t batch = batch_ / dbias.dim(0);
    const dim_t heads = num_heads_ / dbias.dim(1);
    const Region region{.pieces = dbias.dim(0) * dbias.dim(1) * q_groups * key_groups,
                        .flops = flops() / kFusedSpeed,
                        .scratch_bytes = scratch_bytes()};
    parallel_for(region, [&](dim_t piece, std::byte* memory) {
      Arena arena(memory);
      const Scratch scratch = divide(arena);
      const dim_t tile = piece % key_groups * per_group;
      const dim_t block = piece / key_groups % q_groups * blocks;
      const dim_t head = piece / key_groups / q_groups % dbias.dim(1) * heads;
      const dim_t b = piece / key_groups / q_groups / dbias.dim(1) * batch;
      for (dim_t each = 0; each < batch * heads; ++each) {
        for (dim_t n = block; n < block + blocks; ++n) {
          add_dbias(b + each / heads, head + each % heads, n, tile,
                    std::min(tile + per_group, all_tiles), dbias, scratch);
        }
      }
    });
  }

  // The part of one block of queries and the tiles [t, t_end) of keys.
  void add_dbias(dim_t b, dim_t h, dim_t n, dim_t t, dim_t t_end, const MutableTensorView& dbias,
                 const Scratch& s) const {
    TileMaskBuilder<T, Lanes::keys> masks(f_, kernels_, s.mask);
    Block block = start_block(h, n * kQTile, s);
    for (; t < t_end; ++t) {
      kernels::TileMask<T> mask;
      if (masks.build(place_of(b, block, t), &mask) == Tile::hidden) continue;
      if (!block.packed) pack_block(b, block, s);
      const Keys tile = pack_tile(b, h / group_, t, s.tiles, s);
      backward_.reweigh(block.queries, tile.keys, &mask, s.weights, s.slopes, s.strips);
      normalize(block, tile, s.weights);
      mask.softcap = T(0);  // the bias came after it: its gradient is that of capped scores
      backward_.differentiate(block.queries, tile.keys, &mask, s.strips, s.slopes, s.weights,
                              s.dscores);
      sum_dscores(b, block, tile, s, dbias);
    }
  }

  void sum_dscores(dim_t b, const Block& block, const Keys& tile, const Scratch& s,
                   const MutableTensorView& dbias) const {
    const auto stride = [&](int axis) { return dbias.dim(axis) == 1 ? 0 : dbias.strides()[axis]; };
    const dim_t width = tile.keys.columns * kernels_.lanes;
    T* to = dbias.template mutable_data_as<T>() + b * stride(0) + block.h * stride(1) +
            block.i * stride(2) + tile.j * stride(3);
    for (dim_t x = 0; x < block.queries.count; ++x) {
      const kernels::StripColumns columns = s.strips[x / kernels_.rows];
      const dim_t begin = columns.first * kernels_.lanes;
      const dim_t end = std::min(begin + columns.count * kernels_.lanes, tile.keys.count);
      for (dim_t k = begin; k < end; ++k) {
        to[x * stride(2) + k * stride(3)] += s.dscores[x * width + k];
      }
    }
  }

  const AttendProblem& f_;
  const AttendPass& pass_;
  const AttendGradientViews& out_;
  const kernels::AttendKernels<T>& kernels_;
  const kernels::BackwardKernels<T>& backward_;
  dim_t batch_, num_heads_, num_kv_heads_;
  dim_t q_tokens_, kv_tokens_, head_dim_, v_dim_;
  dim_t group_;
  bool has_bias_;
  dim_t width_;                    // of the widest tile
  dim_t head_rows_, v_rows_;       // head_dim and v_dim in whole register tiles
  dim_t key_stride_;               // head_dim in whole vectors
  dim_t value_stride_;             // between groups of `rows` columns of packed values
  dim_t blocks_;                   // of queries
  std::vector<QueryRange> tiles_;  // of keys
  dim_t chunks_ = 0;
  dim_t chunk_tiles_ = 1;
  std::vector<T> minus_delta_, minus_lse_;       // [batch, num_heads, q_tokens]
  std::vector<T> factor_;                        // the same; empty: no lse is large
  std::vector<std::uint8_t> far_;                // 1: is_far; empty without a bias
  std::vector<BoundMask::KeyRange> ranges_;      // [batch, blocks]
  std::unique_ptr<std::atomic<dim_t>[]> turns_;  // [batch, num_heads, blocks]
};

}  // namespace

void attend_backward_fused(const BackwardProblem& problem) {
  if (problem.forward.q.dtype() == DType::f64) {
    FusedBackward<double>(problem).run();
  } else {
    FusedBackward<float>(problem).run();
  }
}

}  // namespace cephalo
