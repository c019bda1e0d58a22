// The gradient of a bias.
#include "cephalo/attention/fused/fused_backward.h"

namespace cephalo {

template <typename T>
void FusedBackward<T>::differentiate_bias(const MutableTensorView& dbias) const {
  for_bias_parts(dbias, scratch_bytes(), [&](const BiasPart& part, std::byte* memory) {
    Arena arena(memory);
    add_dbias(part, dbias, divide(arena));
  });
}

template <typename T>
void FusedBackward<T>::add_dbias(const BiasPart& part, const MutableTensorView& dbias,
                                 const Scratch& s) const {
  TileMaskBuilder<T, Lanes::keys> masks(f_, kernels_, s.mask);
  Block block = start_block(part.h, part.n * kQTile, s);
  for (dim_t t = part.t; t < part.t_end; ++t) {
    kernels::TileMask<T> mask;
    if (masks.build(place_of(part.b, block, t), &mask) == Tile::hidden) continue;
    if (!block.packed) pack_block(part.b, block, s);
    const Keys tile = pack_tile(part.b, part.h / group_, t, s.tiles, s);
    backward_.reweigh(block.queries, tile.keys, &mask, s.weights, s.tanhs, s.strips);
    normalize(block, tile, s.weights);
    mask.softcap = T(0);  // the bias came after it: its gradient is that of capped scores
    backward_.differentiate(block.queries, tile.keys, &mask, s.strips, s.tanhs, s.weights,
                            s.dscores);
    sum_pairs(part.b, block, tile, s.strips, s.dscores, dbias);
  }
}

template <typename T>
void FusedBackward<T>::sum_pairs(dim_t b, const Block& block, const Keys& tile,
                                 const kernels::StripColumns* strips, const T* pairs,
                                 const MutableTensorView& dbias) const {
  const auto stride = [&](int axis) { return dbias.dim(axis) == 1 ? 0 : dbias.strides()[axis]; };
  const dim_t width = tile.keys.columns * kernels_.lanes;
  T* to = dbias.template mutable_data_as<T>() + b * stride(0) + block.h * stride(1) +
          block.i * stride(2) + tile.j * stride(3);
  for (dim_t x = 0; x < block.queries.count; ++x) {
    const kernels::StripColumns columns = strips[x / kernels_.rows];
    const dim_t begin = columns.first * kernels_.lanes;
    const dim_t end = std::min(begin + columns.count * kernels_.lanes, tile.keys.count);
    for (dim_t k = begin; k < end; ++k) {
      to[x * stride(2) + k * stride(3)] += pairs[x * width + k];
    }
  }
}

template void FusedBackward<float>::differentiate_bias(const MutableTensorView&) const;
template void FusedBackward<double>::differentiate_bias(const MutableTensorView&) const;
template void FusedBackward<float>::sum_pairs(dim_t, const Block&, const Keys&,
                                              const kernels::StripColumns*, const float*,
                                              const MutableTensorView&) const;
template void FusedBackward<double>::sum_pairs(dim_t, const Block&, const Keys&,
                                               const kernels::StripColumns*, const double*,
                                               const MutableTensorView&) const;

}  // namespace cephalo
