#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cephalo/attention/engine/backward_problem.h"
#include "cephalo/attention/fused/memory.h"
#include "cephalo/attention/fused/tile_mask.h"
#include "cephalo/attention/fused/tiles.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/rows.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {

inline constexpr dim_t kQTile = kernels::kKvTile;  // queries in one packed block

// Rows [i, i + count) of head h of a [batch, heads, tokens, dim] tensor.
kernels::Rows rows_of(const TensorView& t, dim_t b, dim_t h, dim_t i, dim_t count,
                      const void** addresses);

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
  explicit FusedBackward(const BackwardProblem& problem);
  void run();

 protected:
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
    kernels::QueryBlock<T, T> queries;
    kernels::KeyBlock<T> q_values;         // for dk: what `gather` multiplies
    kernels::KeyBlock<T> dcontext_values;  // for dv
    const T* factor;                       // [count], of the weights of each row; null: all are 1
    bool packed;
  };
  // Memory of one thread.
  struct Scratch {
    typename TileMaskBuilder<T, Lanes::keys>::Scratch mask;
    const void** rows;  // [kQTile]
    kernels::StripColumns* strips;
    T *q, *dcontext;                // broadcast layout
    T *q_values, *dcontext_values;  // values layout
    T *minus_lse, *minus_delta;     // [kQTile]
    std::uint8_t* far;              // [kQTile]
    T *weights, *dscores, *tanhs;   // [kQTile][width]
    T* dq;                          // [kQTile][key_stride]
    T* factor;                      // [width]
    T* tiles;
  };

  dim_t tile_numbers() const {
    return (head_dim_ + v_dim_ + head_rows_ + v_rows_ + key_stride_) * width_;
  }

  Scratch divide(Arena& arena) const;
  std::size_t scratch_bytes() const {
    return bytes_taken([&](Arena& arena) { divide(arena); });
  }

  // Chunks of whole tiles, as many as the shape asks for, whatever the threads.
  void cut_chunks();

  dim_t tile_begin(dim_t t) const {
    return t < static_cast<dim_t>(tiles_.size()) ? tiles_[static_cast<std::size_t>(t)].begin
                                                 : kv_tokens_;
  }
  dim_t tiles_of(const Chunk& chunk) const {
    return std::min(chunk_tiles_, static_cast<dim_t>(tiles_.size()) - chunk.number * chunk_tiles_);
  }
  dim_t block_end(dim_t i) const { return std::min(i + kQTile, q_tokens_); }

  double flops() const;

  // delta = Σ dcontext · context − dlse, and lse in base 2, for every row.
  void look_at_rows();

  bool is_large(dim_t b, dim_t h, dim_t i) const {
    return divides_by_sum(f_, number(pass_.lse, b, h, i));
  }

  // Rows whose lse is large: what their weights add up to, by which they are divided, and their
  // delta, from those weights. A rounded lse, and scores that round to another side than the
  // forward pass's did, then cost neither: weights add up to 1, and gradients of scores to dlse.
  void measure_large_rows();

  void measure_block(dim_t b, dim_t h, dim_t n, const Scratch& s);

  // sums[x] += the numbers of row x of a tile.
  void add_rows(const Block& block, const Keys& tile, const kernels::StripColumns* strips,
                const T* numbers, double* sums) const;

  // weights ·= factor, for rows that need it.
  void normalize(const Block& block, const Keys& tile, T* weights) const;

  TilePlace place_of(dim_t b, const Block& block, dim_t t) const;

  static double number(const TensorView& t, dim_t b, dim_t h, dim_t i) {
    return static_cast<double>(t.data_as<T>()[row_offset(t, b, h, i)]);
  }

  static void fill_zero(const MutableTensorView& t);

  void find_key_ranges();
  const BoundMask::KeyRange& range_of(dim_t b, dim_t n) const {
    return ranges_[static_cast<std::size_t>(b * blocks_ + n)];
  }

  // What is known before tiles are looked at.
  void prepare();

  // Calls body(chunk, scratch) for each chunk; `scratch` is bytes for one thread.
  template <typename Body>
  void for_chunks(std::size_t scratch, const Body& body);

  // A chunk's pairs of blocks and tiles, each block's part of dq added in its turn, and its tiles
  // written: add(block, tile, t), the t-th tile of the chunk.
  template <typename Add>
  void walk_chunk(const Chunk& chunk, const Scratch& s, const Add& add) const;

  void run_chunk(const Chunk& chunk, std::byte* memory) const;

  // A tile for `gather`, which knows nothing of references.
  static kernels::QueryTile<T, T> gathering(T* sums, int columns) {
    return {nullptr, sums, nullptr, nullptr, columns, 0, true, 0, false};
  }

  // One block of queries against one tile of keys: the steps in reverse.
  void add_pair(dim_t b, Block& block, const Keys& tile, TileMaskBuilder<T, Lanes::keys>& masks,
                const Scratch& s) const;

  Keys pack_tile(dim_t b, dim_t kv_head, dim_t number, T* memory, const Scratch& s) const;

  Block start_block(dim_t h, dim_t i, const Scratch& s) const;

  void pack_block(dim_t b, Block& block, const Scratch& s) const;

  // Adds a chunk's part of dq when all chunks before it that see the block have done so.
  void take_turn(const Chunk& chunk, dim_t h, dim_t n, const T* dq) const;

  dim_t chunk_of(dim_t j) const;

  // Is dq stored as it is summed? 16 bits are not: their sums are float32 until the last part.
  bool sums_in_place() const { return out_.dq.dtype() == DTypeOf<T>::value; }

  // Which of a block's parts of dq comes.
  struct Turn {
    bool first, last;
  };
  // Rows of dq (+)= scale · part; without a part they are 0.
  void write_dq(dim_t b, dim_t h, dim_t i, const T* part, Turn turn) const;
  // The same for rows that are rounded once, when the last part has come.
  void write_rounded_dq(dim_t b, dim_t h, dim_t i, const T* part, Turn turn) const;

  void write_zero_dq() const;

  void finish_tile(dim_t b, dim_t kv_head, const Keys& tile, const Scratch& s) const;

  // One block of queries against the tiles [t, t_end) of keys: a part of what a bias's gradient is
  // the sum of.
  struct BiasPart {
    dim_t b, h, n;
    dim_t t, t_end;
  };
  // dbias = dscores, summed over the axes along which the bias was repeated. A pass of its own,
  // since a piece must own what it adds to: tiles are computed anew, for each piece of dbias over
  // the batches and heads that share it, in index order. add(part, scratch) is to add a part.
  template <typename Add>
  void for_bias_parts(const MutableTensorView& dbias, std::size_t scratch, const Add& add) const;

  void differentiate_bias(const MutableTensorView& dbias) const;
  void add_dbias(const BiasPart& part, const MutableTensorView& dbias, const Scratch& s) const;

  // dbias += a number for every pair
  void sum_pairs(dim_t b, const Block& block, const Keys& tile, const kernels::StripColumns* strips,
                 const T* pairs, const MutableTensorView& dbias) const;

  const AttendProblem& f_;
  const AttendPass& pass_;
  const AttendGradientViews& out_;
  const kernels::AttendKernels<T, T>& kernels_;
  const kernels::BackwardKernels<T, T>& backward_;
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
  Tensor dq_memory_;
  T* dq_sums_ = nullptr;  // [batch, num_heads, q_tokens, head_dim], where dq's own memory cannot
};

// Tiles of keys that share each packed block of queries: as many as stay in the L2 cache.
inline constexpr dim_t kChunkTiles = 16;

template <typename T>
template <typename Body>
void FusedBackward<T>::for_chunks(std::size_t scratch, const Body& body) {
  const dim_t rows = batch_ * num_heads_ * blocks_;
  turns_ = std::make_unique<std::atomic<dim_t>[]>(static_cast<std::size_t>(rows));
  if (!sums_in_place() && chunks_ > 1) {
    dq_memory_ = Tensor::empty(out_.dq.shape(), DTypeOf<T>::value);
    dq_sums_ = dq_memory_.template mutable_data_as<T>();
  }
  // The longest first, under a causal mask; and all heads before the next chunk, so that turns
  // come without waiting where there are many heads.
  const dim_t pairs = batch_ * num_kv_heads_;
  const Region region{
      .pieces = chunks_ * pairs, .flops = flops() / kFusedSpeed, .scratch_bytes = scratch};
  parallel_for(region, [&](dim_t piece, std::byte* memory) {
    const dim_t pair = piece % pairs;
    body(Chunk{pair / num_kv_heads_, pair % num_kv_heads_, piece / pairs}, memory);
  });
}

template <typename T>
template <typename Add>
void FusedBackward<T>::walk_chunk(const Chunk& chunk, const Scratch& s, const Add& add) const {
  Keys tiles[kChunkTiles];
  const dim_t first = chunk.number * chunk_tiles_;
  const dim_t count = tiles_of(chunk);
  for (dim_t t = 0; t < count; ++t) {
    tiles[t] = pack_tile(chunk.b, chunk.kv_head, first + t, s.tiles + t * tile_numbers(), s);
  }
  const dim_t j = tile_begin(first);
  const dim_t j_end = tile_begin(first + count);
  for (dim_t h = chunk.kv_head * group_; h < (chunk.kv_head + 1) * group_; ++h) {
    for (dim_t n = blocks_ - 1; n >= 0; --n) {
      const auto& range = range_of(chunk.b, n);
      if (range.begin >= range.end) {
        if (chunk.number == 0) write_dq(chunk.b, h, n * kQTile, nullptr, {true, true});
        continue;
      }
      if (range.end <= j || j_end <= range.begin) continue;
      Block block = start_block(h, n * kQTile, s);
      std::fill(s.dq, s.dq + kQTile * key_stride_, T{0});
      for (dim_t t = 0; t < count; ++t) add(block, tiles[t], t);
      take_turn(chunk, h, n, s.dq);
    }
  }
  for (dim_t t = 0; t < count; ++t) finish_tile(chunk.b, chunk.kv_head, tiles[t], s);
}

template <typename T>
template <typename Add>
void FusedBackward<T>::for_bias_parts(const MutableTensorView& dbias, std::size_t scratch,
                                      const Add& add) const {
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
                      .scratch_bytes = scratch};
  parallel_for(region, [&](dim_t piece, std::byte* memory) {
    const dim_t tile = piece % key_groups * per_group;
    const dim_t block = piece / key_groups % q_groups * blocks;
    const dim_t head = piece / key_groups / q_groups % dbias.dim(1) * heads;
    const dim_t b = piece / key_groups / q_groups / dbias.dim(1) * batch;
    for (dim_t each = 0; each < batch * heads; ++each) {
      for (dim_t n = block; n < block + blocks; ++n) {
        add(BiasPart{b + each / heads, head + each % heads, n, tile,
                     std::min(tile + per_group, all_tiles)},
            memory);
      }
    }
  });
}

// In tiles, in memory linear in tokens.
void attend_backward_fused(const BackwardProblem& problem);

}  // namespace cephalo
