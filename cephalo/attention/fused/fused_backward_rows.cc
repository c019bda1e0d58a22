// What the backward pass knows of each row before it looks at tiles: lse, delta, and for rows whose
// lse is large what their weights add up to.
#include "cephalo/attention/fused/fused_backward.h"

#include <limits>
#include <numbers>

#include "cephalo/core/parallel.h"

namespace cephalo {

template <typename T>
void FusedBackward<T>::look_at_rows() {
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

template <typename T>
void FusedBackward<T>::measure_large_rows() {
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

template <typename T>
void FusedBackward<T>::measure_block(dim_t b, dim_t h, dim_t n, const Scratch& s) {
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
    backward_.reweigh(block.queries, tile.keys, &mask, s.weights, s.tanhs, s.strips);
    add_rows(block, tile, s.strips, s.weights, sums);
    // weights · dweights: the gradient of capped scores, were delta 0
    mask.softcap = T(0);
    backward_.differentiate(block.queries, tile.keys, &mask, s.strips, s.tanhs, s.weights,
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

template <typename T>
void FusedBackward<T>::add_rows(const Block& block, const Keys& tile,
                                const kernels::StripColumns* strips, const T* numbers,
                                double* sums) const {
  const dim_t width = tile.keys.columns * kernels_.lanes;
  for (dim_t x = 0; x < block.queries.count; ++x) {
    const kernels::StripColumns columns = strips[x / kernels_.rows];
    const dim_t begin = columns.first * kernels_.lanes;
    const dim_t end = std::min(begin + columns.count * kernels_.lanes, tile.keys.count);
    for (dim_t k = begin; k < end; ++k) sums[x] += static_cast<double>(numbers[x * width + k]);
  }
}

template void FusedBackward<float>::look_at_rows();
template void FusedBackward<float>::measure_large_rows();
template void FusedBackward<double>::look_at_rows();
template void FusedBackward<double>::measure_large_rows();

}  // namespace cephalo
