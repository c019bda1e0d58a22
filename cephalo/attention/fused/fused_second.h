#pragma once

#include <vector>

#include "cephalo/attention/engine/second_problem.h"
#include "cephalo/attention/fused/fused_backward.h"

namespace cephalo {

// How the backward pass moves along a direction (uq, uk, uv and those of biases), tile by tile;
// what moves is called t + its name:
//
//   tscores = slope · scale · (uq kᵀ + q ukᵀ) + tbias,  tlse = Σ weights tscores
//   tweights = weights · (tscores − tlse),  tcontext = tweights v + weights uv
//   dscores = weights · (dcontext vᵀ − delta),  tdelta = Σ dcontext tcontext
//   tdscores = tweights · (dcontext vᵀ − delta) + weights · (dcontext uvᵀ − tdelta)
//   hq = scale · (tdscores k + dscores uk),  hk = scale · (tdscoresᵀ q + dscoresᵀ uq)
//   hv = tweightsᵀ dcontext
//
// The first pass goes over the keys of each block of queries and makes tlse and tcontext: forward
// mode. Since tlse is known at its end only, it sums weights · tscores, and takes tlse · context
// from that: Σ weights (tscores − tlse) v, in one go. The second pass is the backward pass's, with
// the same chunks, turns and order of sums: hq, hk and hv are in the places of dq, dk and dv.
template <typename T>
class FusedSecond : private FusedBackward<T> {
  using Base = FusedBackward<T>;
  using typename Base::BiasPart;
  using typename Base::Block;
  using typename Base::Chunk;
  using typename Base::Keys;
  using typename Base::Scratch;

 public:
  explicit FusedSecond(const SecondProblem& problem);
  void run_tangent();
  void run();

 private:
  using Masks = TileMaskBuilder<T, Lanes::keys>;

  // The direction of a tile of keys.
  struct KeyDirection {
    kernels::KeyTile<T> rows;  // as add_dq wants them
    T* ukeys;                  // [head_dim][width], times scale · log2(e)
    T* uvalues;                // [v_dim][width]
  };
  // Memory of one thread besides the backward pass's.
  struct More {
    T *uq, *uq_values;                         // broadcast and values layout
    T *minus_tlse, *minus_tdelta;              // [kQTile]
    T *tbias, *tweights, *tslopes, *tdscores;  // [kQTile][width]
    T *run, *tcontext;                         // [kQTile][v_stride]: of a few tiles, and of all
    double* tlse;                              // [kQTile]
    bool* finite_uq;                           // of the block: no NaN or infinity
    T* value_rows;                             // [width][v_stride]
    T* tiles;
  };
  More divide_more(Arena& arena) const;
  std::size_t all_scratch_bytes() const {
    return bytes_taken([&](Arena& arena) {
      this->divide(arena);
      divide_more(arena);
    });
  }
  dim_t direction_numbers() const {
    return (this->head_dim_ + this->v_dim_ + this->key_stride_) * this->width_;
  }

  // tcontext and tlse of one block of queries.
  void move_block(dim_t b, dim_t h, dim_t n, std::byte* memory);
  // The part of one tile of keys.
  void add_tangent(dim_t b, dim_t t, Block& block, const kernels::TileMask<T>& mask,
                   const Scratch& s, const More& m) const;
  // run += pairs · rows of t, a tensor like v
  void add_values(const TensorView& t, dim_t b, const Block& block, const Keys& tile,
                  const kernels::TileMask<T>& mask, const T* pairs, const Scratch& s,
                  const More& m) const;
  void write_tangents(dim_t b, dim_t h, dim_t i, const Scratch& s, const More& m);
  // minus_tdelta of every row, from tcontext.
  void find_tdelta();

  // A tile and its direction as far as the first pass needs them: keys in lanes, and nothing else.
  Keys pack_keys(dim_t b, dim_t kv_head, dim_t number, T* memory, const Scratch& s) const;
  T* pack_ukeys(dim_t b, dim_t kv_head, const Keys& tile, T* memory, const Scratch& s) const;

  KeyDirection pack_direction(dim_t b, dim_t kv_head, const Keys& tile, T* memory,
                              const Scratch& s) const;
  // The block itself and its direction.
  void pack_queries(dim_t b, Block& block, const Scratch& s, const More& m) const;
  void add_up_tbias(dim_t b, const Block& block, const Keys& tile, T* to) const;

  // Weights, and how they move: what both passes begin with.
  void weigh(dim_t b, Block& block, const Keys& tile, const KeyDirection& direction,
             const kernels::TileMask<T>& mask, const Scratch& s, const More& m) const;
  kernels::TileDirection<T, T> direction_of(const KeyDirection& direction, const More& m) const;
  kernels::PairTile<T, T> pairs_of(const Scratch& s, const More& m) const;

  void run_second_chunk(const Chunk& chunk, std::byte* memory) const;
  void add_second_pair(dim_t b, Block& block, const Keys& tile, const KeyDirection& direction,
                       const kernels::TileMask<T>& mask, const Scratch& s, const More& m) const;
  void add_hbias(const BiasPart& part, const MutableTensorView& hbias, std::byte* memory) const;

  const AttendDirection& along_;
  const AttendTangentViews& tangents_;
  const kernels::SecondKernels<T, T>& second_;
  dim_t v_stride_;                            // v_dim in whole vectors
  std::vector<T> minus_tlse_, minus_tdelta_;  // [batch, num_heads, q_tokens]
};

// In tiles, in memory linear in tokens.
void attend_tangent_fused(const SecondProblem& problem);
void attend_second_fused(const SecondProblem& problem);

}  // namespace cephalo
