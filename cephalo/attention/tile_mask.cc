#include "cephalo/attention/tile_mask.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

namespace cephalo {
namespace {

constexpr dim_t kMaxWidth = 48;

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

}  // namespace

template <typename T>
TileMaskBuilder<T>::TileMaskBuilder(const AttendProblem& problem,
                                    const kernels::AttendKernels<T>& kernels, std::byte* scratch)
    : problem_(problem),
      kernels_(kernels),
      visible_(reinterpret_cast<std::uint64_t*>(scratch)),
      kept_(visible_ + kernels::kKvTile),
      bias_(reinterpret_cast<T*>(kept_ + kernels::kKvTile)) {}

template <typename T>
std::size_t TileMaskBuilder<T>::scratch_bytes(const AttendProblem& problem,
                                              const kernels::AttendKernels<T>& kernels) {
  const auto keys = static_cast<std::size_t>(kernels::kKvTile);
  const auto width = static_cast<std::size_t>(kernels::kMaxColumns * kernels.lanes);
  const std::size_t bias = problem.mask.adds() ? keys * width * sizeof(T) : 0;
  return 2 * keys * sizeof(std::uint64_t) + bias;
}

template <typename T>
void TileMaskBuilder<T>::hide_by_document(const TilePlace& place) {
  const std::int64_t* q_ids = problem_.mask.q_documents(place.b) + place.i;
  const std::int64_t* kv_ids = problem_.mask.kv_documents(place.b) + place.j;
  std::uint64_t same = 0;
  for (dim_t k = 0; k < place.keys; ++k) {
    if (k == 0 || kv_ids[k] != kv_ids[k - 1]) {  // documents come in runs
      same = 0;
      for (dim_t x = 0; x < place.count && kv_ids[k] >= 0; ++x) {
        same |= std::uint64_t{q_ids[x] == kv_ids[k]} << x;
      }
    }
    visible_[k] &= same;
  }
}

template <typename T>
void TileMaskBuilder<T>::apply_tensor(const TilePlace& place, const BoundMask::Part& part,
                                      bool* bias_begun) {
  const std::size_t size = item_size(part.view.dtype());
  const auto* data = static_cast<const std::byte*>(part.view.data());
  const void* addresses[kMaxWidth];
  for (dim_t x = 0; x < place.count; ++x) {
    addresses[x] =
        data + part.offset(place.b, place.h, place.i + x, place.j) * static_cast<dim_t>(size);
  }
  const kernels::Rows rows{addresses, place.count, place.keys, part.stride[3], part.view.dtype()};
  if (part.role == MaskTensor::Role::bias) {
    kernels_.add_bias(rows, place.width, !*bias_begun, bias_, visible_);
    *bias_begun = true;
  } else {
    and_nonzero(rows, size, part.role == MaskTensor::Role::drop, visible_);
  }
}

template <typename T>
void TileMaskBuilder<T>::draw_kept(const TilePlace& place) {
  const auto threshold = static_cast<std::uint64_t>(std::ceil(problem_.options.dropout * 0x1p32));
  std::fill(kept_, kept_ + kernels::kKvTile, std::uint64_t{0});
  for (dim_t x = 0; x < place.count; ++x) {
    const auto position = static_cast<std::uint32_t>(problem_.mask.position(place.b, place.i + x));
    for (dim_t k = 0; k < place.keys; k += 4) {
      const PhiloxCounter words =
          philox(problem_.options.seed,
                 {static_cast<std::uint32_t>((place.j + k) / 4), position,
                  static_cast<std::uint32_t>(place.h), static_cast<std::uint32_t>(place.b)});
      for (std::size_t w = 0; w < 4; ++w) {
        kept_[k + static_cast<dim_t>(w)] |= std::uint64_t{words[w] >= threshold} << x;
      }
    }
  }
}

template <typename T>
Tile TileMaskBuilder<T>::build(const TilePlace& place, kernels::TileMask<T>* mask) {
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
    const std::uint64_t all = (std::uint64_t{1} << place.count) - 1;
    std::fill(visible_, visible_ + place.keys, all);
    std::fill(visible_ + place.keys, visible_ + kernels::kKvTile, std::uint64_t{0});
    if (by_position == Tile::mixed) {
      bound.position_bits(place.b, place.i, i_end, place.j, j_end, visible_);
    }
    if (by_document == Tile::mixed) hide_by_document(place);
    bool bias_begun = false;
    for (const BoundMask::Part& part : bound.parts()) apply_tensor(place, part, &bias_begun);
    if (bias_begun) {
      mask->bias = bias_;
      const dim_t padded = (place.keys + kernels_.rows - 1) / kernels_.rows * kernels_.rows;
      std::fill(bias_ + place.keys * place.width, bias_ + padded * place.width, T{0});
    }
    std::uint64_t any = 0;
    std::uint64_t every = all;
    for (dim_t k = 0; k < place.keys; ++k) {
      any |= visible_[k];
      every &= visible_[k];
    }
    if (any == 0) return Tile::hidden;
    if (every != all) mask->visible = visible_;
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
    mask->distance = static_cast<T>(bound.position(place.b, place.i) - place.j);
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

template class TileMaskBuilder<float>;
template class TileMaskBuilder<double>;

}  // namespace cephalo
