// The gradient of a bias.
#include "cephalo/attention/fused/fused_backward.h"

#include "cephalo/core/parallel.h"

namespace cephalo {

template <typename T>
void FusedBackward<T>::differentiate_bias(const MutableTensorView& dbias) const {
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

template <typename T>
void FusedBackward<T>::add_dbias(dim_t b, dim_t h, dim_t n, dim_t t, dim_t t_end,
                                 const MutableTensorView& dbias, const Scratch& s) const {
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

template <typename T>
void FusedBackward<T>::sum_dscores(dim_t b, const Block& block, const Keys& tile, const Scratch& s,
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

template void FusedBackward<float>::differentiate_bias(const MutableTensorView& dbias) const;
template void FusedBackward<double>::differentiate_bias(const MutableTensorView& dbias) const;

}  // namespace cephalo
