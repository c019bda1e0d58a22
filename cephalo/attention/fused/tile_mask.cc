#include "cephalo/attention/fused/tile_mask.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "cephalo/attention/fused/tiles.h"
#include "cephalo/core/random.h"

namespace cephalo {
namespace {

// Eight elements of a mask tensor as bytes that are 1 where the element is nonzero.
std::uint64_t nonzero_bytes(const std::byte* from, std::size_t size, dim_t stride, dim_t count) {
  std::uint64_t bytes = 0;
  if (size == 1 && stride == 1 && count == 8) {
    std::memcpy(&bytes, from, 8);
    // Adding 0x7F to the low seven bits carries into the top bit unless they are all 0.
    constexpr std::uint64_t kLow = 0x7F7F7F7F7F7F7F7FULL;
    return (((bytes & kLow) + kLow) | bytes) >> 7 & 0x0101010101010101ULL;
  }
  for (dim_t k = 0; k < count; ++k) {
    std::uint64_t element = 0;
    std::memcpy(&element, from + k * stride * static_cast<dim_t>(size), size);
    bytes |= std::uint64_t{element != 0} << (8 * k);
  }
  return bytes;
}

// visible[j] keeps the bits of rows whose element j is nonzero (zero, when `drop`). Eight rows by
// eight keys at a time: byte k of the merged word holds the bits of the rows for key k.
void and_nonzero(const kernels::Rows& queries, std::size_t size, bool drop,
                 std::uint64_t* visible) {
  static_assert(std::endian::native == std::endian::little);
  for (dim_t key = 0; key < queries.dim; key += 8) {
    const dim_t keys = std::min<dim_t>(8, queries.dim - key);
    std::uint8_t words[8][8] = {};  // [key][byte of the word]
    for (dim_t row = 0; row < queries.count; row += 8) {
      const dim_t rows = std::min<dim_t>(8, queries.count - row);
      std::uint64_t merged = 0;
      for (dim_t x = 0; x < rows; ++x) {
        const auto* from = static_cast<const std::byte*>(queries.address[row + x]) +
                           key * queries.stride * static_cast<dim_t>(size);
        merged |= nonzero_bytes(from, size, queries.stride, keys) << x;
      }
      for (dim_t k = 0; k < 8; ++k) {
        words[k][row / 8] = static_cast<std::uint8_t>(merged >> (8 * k));
      }
    }
    for (dim_t k = 0; k < keys; ++k) {
      std::uint64_t word = 0;
      std::memcpy(&word, words[k], 8);
      visible[key + k] &= drop ? ~word : word;
    }
  }
}

// The same with keys across the lanes: visible[x] is of row x, bit j of its element j.
void and_nonzero_by_row(const kernels::Rows& queries, std::size_t size, bool drop,
                        std::uint64_t* visible) {
  for (dim_t x = 0; x < queries.count; ++x) {
    std::uint64_t word = 0;
    for (dim_t key = 0; key < queries.dim; key += 8) {
      const auto* from = static_cast<const std::byte*>(queries.address[x]) +
                         key * queries.stride * static_cast<dim_t>(size);
      const std::uint64_t bytes =
          nonzero_bytes(from, size, queries.stride, std::min<dim_t>(8, queries.dim - key));
      // The product brings the eight low bits together in the top byte.
      word |= (bytes * 0x0102040810204080ULL >> 56) << key;
    }
    visible[x] &= drop ? ~word : word;
  }
}

}  // namespace

template <typename T, Lanes lanes>
TileMaskBuilder<T, lanes>::TileMaskBuilder(const AttendProblem& problem,
                                           const kernels::MaskKernels<T>& kernels,
                                           const Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      visible_(scratch.visible),
      kept_(scratch.kept),
      bias_(scratch.bias) {}

template <typename T, Lanes lanes>
typename TileMaskBuilder<T, lanes>::Scratch TileMaskBuilder<T, lanes>::divide(
    Arena& arena, const AttendProblem& problem, const kernels::MaskKernels<T>& kernels) {
  const dim_t width = kernels::kMaxColumns * kernels.lanes;
  Scratch s{};
  s.visible = arena.take<std::uint64_t>(kernels::kKvTile);
  s.kept = arena.take<std::uint64_t>(kernels::kKvTile);
  s.bias = arena.take<T>(problem.mask.adds() ? kernels::kKvTile * width : 0);
  return s;
}

template <typename T, Lanes lanes>
void TileMaskBuilder<T, lanes>::hide_by_document(const TilePlace& place) {
  const std::int64_t* q_ids = problem_.mask.q_documents(place.b) + place.i;
  const std::int64_t* kv_ids = problem_.mask.kv_documents(place.b) + place.j;
  const std::int64_t* row_ids = lanes == Lanes::queries ? kv_ids : q_ids;
  const std::int64_t* lane_ids = lanes == Lanes::queries ? q_ids : kv_ids;
  std::uint64_t same = 0;
  for (dim_t r = 0; r < rows_of(place); ++r) {
    if (r == 0 || row_ids[r] != row_ids[r - 1]) {  // documents come in runs
      same = 0;
      for (dim_t x = 0; x < lanes_of(place) && row_ids[r] >= 0; ++x) {
        same |= std::uint64_t{lane_ids[x] == row_ids[r]} << x;
      }
    }
    visible_[r] &= same;
  }
}

// The same keys of the queries that come next: short pieces of rows far apart, which no hardware
// foresees.
template <typename T, Lanes lanes>
void TileMaskBuilder<T, lanes>::ask_for_next(const TilePlace& place,
                                             const BoundMask::Part& part) const {
  const auto size = static_cast<dim_t>(item_size(part.view.dtype()));
  const auto* data = static_cast<const std::byte*>(part.view.data());
  const dim_t begin = place.i + place.count;
  const dim_t end = std::min(begin + place.width, problem_.mask.extent().q_tokens);
  for (dim_t i = begin; i < end; ++i) {
    prefetch_to_read(data + part.offset(place.b, place.h, i, place.j) * size, place.keys * size);
  }
}

template <typename T, Lanes lanes>
void TileMaskBuilder<T, lanes>::apply_tensor(const TilePlace& place, const BoundMask::Part& part,
                                             bool* bias_begun) {
  const std::size_t size = item_size(part.view.dtype());
  const auto* data = static_cast<const std::byte*>(part.view.data());
  const void* addresses[kernels::kKvTile];
  for (dim_t x = 0; x < place.count; ++x) {
    addresses[x] =
        data + part.offset(place.b, place.h, place.i + x, place.j) * static_cast<dim_t>(size);
  }
  const kernels::Rows rows{addresses, place.count, place.keys, part.stride[3], part.view.dtype()};
  if (lanes == Lanes::queries && part.stride[2] != 0 && part.stride[3] == 1) {
    ask_for_next(place, part);
  }
  const bool drop = part.role == MaskTensor::Role::drop;
  if (part.role == MaskTensor::Role::bias) {
    const auto add = lanes == Lanes::queries ? kernels_.add_bias : kernels_.add_bias_rows;
    add(rows, place.width, !*bias_begun, bias_, visible_);
    *bias_begun = true;
  } else if (lanes == Lanes::queries) {
    and_nonzero(rows, size, drop, visible_);
  } else {
    and_nonzero_by_row(rows, size, drop, visible_);
  }
}

template <typename T, Lanes lanes>
void TileMaskBuilder<T, lanes>::draw_kept(const TilePlace& place) {
  const double threshold = std::ceil(problem_.options.dropout * 0x1p32);
  std::fill(kept_, kept_ + kernels::kKvTile, std::uint64_t{0});
  if (threshold >= 0x1p32) return;  // no word is that large
  // Counters are the whole's, wherever in it this problem lies.
  const Place& whole = problem_.mask.place();
  const kernels::KeptStream stream{problem_.options.seed,
                                   static_cast<std::uint32_t>(whole.heads.begin + place.h),
                                   static_cast<std::uint32_t>(whole.batch.begin + place.b),
                                   static_cast<std::uint32_t>(threshold)};
  // Four keys share a counter; a tile may begin between them.
  const dim_t key = problem_.mask.key_position(place.j);
  const dim_t four = key / 4;
  const dim_t fours = (key + place.keys + 3) / 4 - four;
  const dim_t skipped = key - 4 * four;
  const dim_t position = problem_.mask.position(place.b, place.i);
  if (lanes == Lanes::keys) {
    for (dim_t x = 0; x < place.count; ++x) {
      kept_[x] = kernels_.kept_by_key(stream, static_cast<std::uint32_t>(four),
                                      static_cast<std::uint32_t>(position + x), fours) >>
                 skipped;
    }
    return;
  }
  for (dim_t g = 0; g < fours; ++g) {
    std::uint64_t kept[4];
    kernels_.kept_by_query(stream, static_cast<std::uint32_t>(four + g),
                           static_cast<std::uint32_t>(position), place.count, kept);
    for (dim_t w = 0; w < 4; ++w) {
      const dim_t row = 4 * g + w - skipped;
      if (row >= 0 && row < place.keys) kept_[row] = kept[w];
    }
  }
}

// Everything that hides, as bits, and the biases, which hide where they are −inf.
template <typename T, Lanes lanes>
Tile TileMaskBuilder<T, lanes>::build_bits(const TilePlace& place, kernels::TileMask<T>* mask,
                                           bool by_position, bool by_document) {
  const BoundMask& bound = problem_.mask;
  const dim_t rows = rows_of(place);
  const std::uint64_t all = (std::uint64_t{1} << lanes_of(place)) - 1;
  std::fill(visible_, visible_ + rows, all);
  std::fill(visible_ + rows, visible_ + kernels::kKvTile, std::uint64_t{0});
  if (by_position && lanes == Lanes::queries) {
    bound.position_bits(place.b, place.i, place.i + place.count, place.j, place.j + place.keys,
                        visible_);
  } else if (by_position) {
    for (dim_t r = 0; r < rows; ++r) {
      visible_[r] = bound.key_bits(place.b, place.i + r, place.j, place.j + place.keys);
    }
  }
  if (by_document) hide_by_document(place);
  bool bias_begun = false;
  for (const BoundMask::Part& part : bound.parts()) apply_tensor(place, part, &bias_begun);
  if (bias_begun) {
    mask->bias = bias_;
    std::fill(bias_ + rows * place.width, bias_ + round_up(rows, kernels_.rows) * place.width,
              T{0});
  }
  std::uint64_t any = 0;
  std::uint64_t every = all;
  for (dim_t r = 0; r < rows; ++r) {
    any |= visible_[r];
    every &= visible_[r];
  }
  if (any == 0) return Tile::hidden;
  if (every != all) mask->visible = visible_;
  return Tile::mixed;
}

template <typename T, Lanes lanes>
Tile TileMaskBuilder<T, lanes>::build(const TilePlace& place, kernels::TileMask<T>* mask) {
  const BoundMask& bound = problem_.mask;
  const dim_t i_end = place.i + place.count;
  const dim_t j_end = place.j + place.keys;
  const Tile by_position = bound.tile_by_position(place.b, place.i, i_end, place.j, j_end);
  if (by_position == Tile::hidden) return Tile::hidden;
  const Tile by_document = bound.has_documents()
                               ? bound.tile_by_document(place.b, place.i, i_end, place.j, j_end)
                               : Tile::visible;
  if (by_document == Tile::hidden) return Tile::hidden;

  *mask = {};
  if (by_position == Tile::mixed || by_document == Tile::mixed || !bound.parts().empty()) {
    const Tile bits =
        build_bits(place, mask, by_position == Tile::mixed, by_document == Tile::mixed);
    if (bits == Tile::hidden) return Tile::hidden;
  }
  const double slope = bound.slope(place.h);
  if (slope != 0.0) {
    const double base_2 = slope * std::numbers::log2e;
    mask->slope = static_cast<T>(base_2);
    // What T could not hold; for float64, what the product lost.
    mask->slope_low =
        static_cast<T>(sizeof(T) == 4 ? base_2 - static_cast<double>(mask->slope)
                                      : std::fma(slope, std::numbers::log2e, -base_2) +
                                            slope * 2.0355273740931033e-17);
    mask->distance = static_cast<T>(bound.position(place.b, place.i) - bound.key_position(place.j));
  }
  if (problem_.options.softcap) {
    mask->softcap = static_cast<T>(*problem_.options.softcap * std::numbers::log2e);
  }
  if (problem_.options.dropout > 0.0) {
    draw_kept(place);
    mask->kept = kept_;
    mask->grown = static_cast<T>(dropout_scale(problem_.options.dropout, DTypeOf<T>::value));
  }
  const bool plain = mask->visible == nullptr && mask->bias == nullptr && mask->slope == T{0} &&
                     mask->softcap == T{0} && mask->kept == nullptr;
  return plain ? Tile::visible : Tile::mixed;
}

template class TileMaskBuilder<float, Lanes::queries>;
template class TileMaskBuilder<double, Lanes::queries>;
template class TileMaskBuilder<float, Lanes::keys>;
template class TileMaskBuilder<double, Lanes::keys>;

}  // namespace cephalo
