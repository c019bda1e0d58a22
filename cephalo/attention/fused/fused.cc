#include "cephalo/attention/fused/fused.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "cephalo/attention/fused/decode.h"
#include "cephalo/attention/fused/memory.h"
#include "cephalo/attention/fused/tile_mask.h"
#include "cephalo/attention/fused/tiles.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/rows.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

using kernels::kKvTile;

// Tiles of one item that share each packed block of keys: as many as stay in the L2 cache.
constexpr dim_t kMaxTiles = 24;
constexpr dim_t kTileBytes = 800 << 10;
// A row whose weights add up to less than this looks at keys far below its reference, which counted
// on a growth by alibi that never came (the near keys are hidden). Exponents were rounded at that
// distance, and products with small values were subnormal: the row is computed a second time.
constexpr double kLeastSum = 0x1p-16;

// A piece of work: some query tiles of some heads that share one key head.
struct Item {
  dim_t b, kv_head;
  dim_t head_begin, head_end;
  dim_t tile_begin, tile_end;
  double cost;
};

template <typename T>
class FusedAttention {
 public:
  FusedAttention(const AttendProblem& problem, const AttendOutput& output)
      : p_(problem),
        out_(output),
        kernels_(*kernels::attend_kernels<T, T>(kernels::isa_for<T>())),
        q_tokens_(problem.q.dim(2)),
        head_dim_(problem.q.dim(3)),
        v_dim_(problem.v.dim(3)),
        group_(problem.q.dim(1) / problem.k.dim(1)),
        width_(kernels::kMaxColumns * kernels_.lanes),
        v_rows_(round_up(v_dim_, kernels_.rows)),
        value_stride_(kKvTile * kernels_.rows + kValuePadding),
        tiles_(cut_queries(0, q_tokens_, kernels_.lanes)) {}

  // For all threads that may work.
  std::size_t all_scratch_bytes() const {
    return scratch_bytes() * static_cast<std::size_t>(threads());
  }

  void run() {
    const std::vector<Item> items = make_items();
    double cost = 0.0;
    for (const Item& item : items) cost += item.cost;
    const Region region{.pieces = static_cast<dim_t>(items.size()),
                        .flops = cost * 2.0 * static_cast<double>(head_dim_ + v_dim_) / kFusedSpeed,
                        .scratch_bytes = scratch_bytes()};
    parallel_for(region, [&](dim_t piece, std::byte* scratch) {
      run_item(items[static_cast<std::size_t>(piece)], scratch);
    });
  }

 private:
  // Memory of one thread while it works on one item.
  struct Scratch {
    typename TileMaskBuilder<T>::Scratch mask;
    const void** rows;    // [kKvTile], of the block that is packed
    const void** coming;  // [2][kKvTile], keys and values of the next one
    kernels::StripColumns* strips;
    T* weights;  // [kKvTile][width]
    T* keys;
    T* values;
    T* tiles;  // q, context, reference and sum of every tile
    T* again;  // context, reference and sum of a tile that is computed twice
  };

  dim_t tile_numbers() const { return (head_dim_ + v_rows_ + 2) * width_; }
  dim_t tiles_per_item() const {
    const auto bytes = static_cast<dim_t>(sizeof(T)) * tile_numbers();
    return std::clamp<dim_t>(kTileBytes / bytes, 1, kMaxTiles);
  }

  Scratch divide(Arena& arena) const {
    Scratch s{};
    s.mask = TileMaskBuilder<T>::divide(arena, p_, kernels_);
    s.rows = arena.take<const void*>(kKvTile);
    s.coming = arena.take<const void*>(2 * kKvTile);
    s.strips = arena.take<kernels::StripColumns>(kKvTile);
    s.weights = arena.take<T>(kKvTile * width_);
    s.keys = arena.take<T>(kKvTile * head_dim_);
    s.values = arena.take<T>(v_rows_ / kernels_.rows * value_stride_);
    s.tiles = arena.take<T>(tiles_per_item() * tile_numbers());
    s.again = arena.take<T>(p_.mask.adds() ? tile_numbers() : 0);
    return s;
  }
  std::size_t scratch_bytes() const {
    return bytes_taken([&](Arena& arena) { divide(arena); });
  }

  // All work in pieces, the longest first: the short ones fill the gaps at the end.
  std::vector<Item> make_items() const {
    const dim_t heads = std::min(group_, tiles_per_item());
    const dim_t q_tiles = static_cast<dim_t>(tiles_.size());
    const dim_t pairs = p_.q.dim(0) * p_.k.dim(1) * ((group_ + heads - 1) / heads);
    // Enough pieces for every thread; how tiles are grouped never changes their bits.
    const dim_t wanted = (dim_t{4} * threads() + pairs - 1) / std::max<dim_t>(1, pairs);
    const dim_t most = std::max<dim_t>(1, tiles_per_item() / heads);
    const dim_t fewest = std::max<dim_t>(1, most / 4);
    const dim_t per_item =
        std::clamp((q_tiles + wanted - 1) / std::max<dim_t>(1, wanted), fewest, most);
    std::vector<Item> items;
    for (dim_t b = 0; b < p_.q.dim(0); ++b) {
      for (dim_t kv_head = 0; kv_head < p_.k.dim(1); ++kv_head) {
        for (dim_t first = 0; first < group_; first += heads) {
          for (dim_t tile = 0; tile < q_tiles; tile += per_item) {
            const dim_t head = kv_head * group_ + first;
            Item item{b,    kv_head,
                      head, std::min(head + heads, (kv_head + 1) * group_),
                      tile, std::min(tile + per_item, q_tiles),
                      0.0};
            item.cost = cost_of(item);
            items.push_back(item);
          }
        }
      }
    }
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.cost > b.cost; });
    return items;
  }

  // Pairs that positions let see each other, roughly.
  double cost_of(const Item& item) const {
    double pairs = 0.0;
    for (dim_t t = item.tile_begin; t < item.tile_end; ++t) {
      const QueryRange& tile = tiles_[static_cast<std::size_t>(t)];
      const auto [begin, end] = p_.mask.key_range(item.b, tile.begin, end_of(tile));
      pairs += static_cast<double>(end_of(tile) - tile.begin) * static_cast<double>(end - begin);
    }
    return pairs * static_cast<double>(item.head_end - item.head_begin);
  }

  dim_t end_of(const QueryRange& tile) const {
    return std::min(tile.begin + tile.columns * kernels_.lanes, q_tokens_);
  }

  // One tile of queries on its way through the keys.
  struct Running {
    dim_t h;
    QueryRange queries;
    kernels::QueryTile<T, T> tile;
  };

  void run_item(const Item& item, std::byte* memory) const {
    Arena arena(memory);
    const Scratch scratch = divide(arena);
    TileMaskBuilder<T> masks(p_, kernels_, scratch.mask);
    Running running[kMaxTiles];
    const dim_t count = start_tiles(item, scratch, running);
    const QueryRange& last = tiles_[static_cast<std::size_t>(item.tile_end - 1)];
    const auto [key_begin, key_end] = p_.mask.key_range(
        item.b, tiles_[static_cast<std::size_t>(item.tile_begin)].begin, end_of(last));
    // Blocks begin at multiples of their size wherever a range begins: sums keep their order.
    for (dim_t j = key_begin / kKvTile * kKvTile; j < key_end; j += kKvTile) {
      const dim_t keys = std::min(kKvTile, key_end - j);
      bool packed = false;
      kernels::KeyBlock<T> block{};
      const dim_t coming = std::min(kKvTile, key_end - j - keys);
      if (coming > 0) {
        const RowPlace after{item.b, item.kv_head, j + keys, coming};
        p_.key_rows(after, scratch.coming);
        p_.value_rows(after, scratch.coming + kKvTile);
      }
      for (dim_t t = 0; t < count; ++t) {
        Running& r = running[t];
        const dim_t from = coming * t / count;
        const dim_t to = coming * (t + 1) / count;
        for (dim_t row = from; row < to; ++row) {
          prefetch_to_read(static_cast<const std::byte*>(scratch.coming[row]), dense_bytes(p_.k));
          prefetch_to_read(static_cast<const std::byte*>(scratch.coming[kKvTile + row]),
                           dense_bytes(p_.v));
        }
        kernels::TileMask<T> mask;
        const Tile answer = masks.build(place_of(item, r, j, keys), &mask);
        if (answer == Tile::hidden) continue;
        if (!packed) block = pack_block(item, j, keys, scratch);
        packed = true;
        const kernels::TileMask<T>* applied = answer == Tile::visible ? nullptr : &mask;
        kernels_.weigh(block, r.tile, applied, scratch.weights, scratch.strips);
        kernels_.gather(block, r.tile, applied, scratch.weights, scratch.strips);
      }
    }
    for (dim_t t = 0; t < count; ++t) compute_again(item, running[t], masks, scratch);
    for (dim_t t = 0; t < count; ++t) {
      if (t + 1 < count) {
        const Running& next = running[t + 1];
        for (dim_t i = next.queries.begin; i < end_of(next.queries); ++i) {
          prefetch_to_write(row_address(out_.context, item.b, next.h, i),
                            dense_bytes(out_.context));
        }
      }
      finish_tile(item.b, running[t], scratch);
    }
  }

  TilePlace place_of(const Item& item, const Running& r, dim_t j, dim_t keys) const {
    return {item.b,
            r.h,
            r.queries.begin,
            end_of(r.queries) - r.queries.begin,
            r.tile.columns * kernels_.lanes,
            j,
            keys};
  }

  // Lanes of a tile whose references counted on a growth that never came, from the beginning.
  void compute_again(const Item& item, Running& r, TileMaskBuilder<T>& masks,
                     const Scratch& scratch) const {
    if (p_.mask.slope(r.h) == 0.0) return;
    std::uint64_t lanes = 0;
    for (dim_t x = 0; x < end_of(r.queries) - r.queries.begin; ++x) {
      const bool small = r.tile.sum[x] > T{0} && r.tile.sum[x] < static_cast<T>(kLeastSum);
      lanes |= std::uint64_t{small} << x;
    }
    if (lanes == 0) return;
    Running again = r;
    start_tile(again, scratch.again);
    again.tile.no_growth = true;
    const auto [key_begin, key_end] = p_.mask.key_range(item.b, r.queries.begin, end_of(r.queries));
    for (dim_t j = key_begin / kKvTile * kKvTile; j < key_end; j += kKvTile) {
      const dim_t keys = std::min(kKvTile, key_end - j);
      kernels::TileMask<T> mask;
      const Tile answer = masks.build(place_of(item, r, j, keys), &mask);
      if (answer == Tile::hidden) continue;
      const kernels::KeyBlock<T> block = pack_block(item, j, keys, scratch);
      const kernels::TileMask<T>* applied = answer == Tile::visible ? nullptr : &mask;
      kernels_.weigh(block, again.tile, applied, scratch.weights, scratch.strips);
      kernels_.gather(block, again.tile, applied, scratch.weights, scratch.strips);
    }
    take_lanes(lanes, again.tile, r.tile);
  }

  void take_lanes(std::uint64_t lanes, const kernels::QueryTile<T, T>& from,
                  kernels::QueryTile<T, T>& to) const {
    const dim_t width = to.columns * kernels_.lanes;
    for (dim_t x = 0; x < width; ++x) {
      if ((lanes >> x & 1) == 0) continue;
      for (dim_t d = 0; d < v_dim_; ++d) to.context[d * width + x] = from.context[d * width + x];
      to.minus_reference[x] = from.minus_reference[x];
      to.sum[x] = from.sum[x];
    }
    to.far = (to.far & ~lanes) | (from.far & lanes);
  }

  // A tile that has seen nothing; memory: context, reference and sum.
  void start_tile(Running& r, T* memory) const {
    const dim_t width = r.queries.columns * kernels_.lanes;
    r.tile.context = memory;
    r.tile.minus_reference = r.tile.context + v_rows_ * width_;
    r.tile.sum = r.tile.minus_reference + width_;
    r.tile.columns = r.queries.columns;
    r.tile.seen = 0;
    r.tile.far = 0;
    r.tile.fixed = false;
    r.tile.no_growth = false;
    std::fill(r.tile.context, r.tile.context + v_rows_ * width, T{0});
    std::fill(r.tile.minus_reference, r.tile.minus_reference + width, kernels::kNoReference<T>);
    std::fill(r.tile.sum, r.tile.sum + width, T{0});
  }

  dim_t start_tiles(const Item& item, const Scratch& scratch, Running* running) const {
    dim_t count = 0;
    for (dim_t t = item.tile_begin; t < item.tile_end; ++t) {
      for (dim_t h = item.head_begin; h < item.head_end; ++h, ++count) {
        Running& r = running[count];
        r.h = h;
        r.queries = tiles_[static_cast<std::size_t>(t)];
        const dim_t width = r.queries.columns * kernels_.lanes;
        T* q = scratch.tiles + count * tile_numbers();
        r.tile.q = q;
        start_tile(r, q + head_dim_ * width_);
        for (dim_t i = end_of(r.queries); i < std::min(end_of(r.queries) + width_, q_tokens_);
             ++i) {
          prefetch_to_read(row_address(p_.q, item.b, h, i), dense_bytes(p_.q));
        }
        pack_queries(p_, kernels_, {item.b, h, r.queries.begin, end_of(r.queries)}, width, q);
      }
    }
    return count;
  }

  kernels::KeyBlock<T> pack_block(const Item& item, dim_t j, dim_t keys,
                                  const Scratch& scratch) const {
    const RowPlace place{item.b, item.kv_head, j, keys};
    p_.key_rows(place, scratch.rows);
    kernels_.pack_broadcast({scratch.rows, keys, head_dim_, p_.k.strides()[3], p_.k.dtype()},
                            scratch.keys);
    p_.value_rows(place, scratch.rows);
    const bool finite =
        kernels_.pack_values({scratch.rows, keys, v_dim_, p_.v.strides()[3], p_.v.dtype()},
                             value_stride_, scratch.values);
    return {scratch.keys, scratch.values, keys, head_dim_, v_dim_, value_stride_, finite};
  }

  // context = sum of weighted values / sum of weights; a row that saw nothing is 0.
  void finish_tile(dim_t b, const Running& r, const Scratch& scratch) const {
    const dim_t count = end_of(r.queries) - r.queries.begin;
    T* factor = scratch.weights;
    for (dim_t x = 0; x < count; ++x) {
      factor[x] = r.tile.sum[x] == T{0} ? T{0} : T{1} / r.tile.sum[x];
    }
    const Strides& s = out_.context.strides();
    kernels_.unpack_lanes(r.tile.context, r.tile.columns * kernels_.lanes, factor,
                          {row_address(out_.context, b, r.h, r.queries.begin), count, v_dim_, s[2],
                           s[3], out_.context.dtype()});
    if (out_.lse.numel() > 0) store_lse(b, r, count);
  }

  void store_lse(dim_t b, const Running& r, dim_t count) const {
    T* to = out_.lse.mutable_data_as<T>() + row_offset(out_.lse, b, r.h, r.queries.begin);
    const dim_t stride = out_.lse.strides()[2];
    for (dim_t x = 0; x < count; ++x) {
      const double sum = static_cast<double>(r.tile.sum[x]);
      const bool far = (r.tile.far >> x & 1) != 0;
      const double reference = -static_cast<double>(r.tile.minus_reference[x]);
      const double natural = far ? reference : reference * std::numbers::ln2;
      to[x * stride] = sum == 0.0 ? -std::numeric_limits<T>::infinity()
                                  : static_cast<T>(std::log(sum) + natural);
    }
  }

  const AttendProblem& p_;
  const AttendOutput& out_;
  const kernels::AttendKernels<T, T>& kernels_;
  dim_t q_tokens_;
  dim_t head_dim_;
  dim_t v_dim_;
  dim_t group_;
  dim_t width_;         // of the widest tile
  dim_t v_rows_;        // v_dim in whole register tiles
  dim_t value_stride_;  // between groups of `rows` value columns
  std::vector<QueryRange> tiles_;
};

}  // namespace

void attend_fused(const AttendProblem& problem, const AttendOutput& output) {
  if (is_decode(problem)) return attend_decode(problem, output);
  if (problem.q.dtype() == DType::f64) {
    FusedAttention<double>(problem, output).run();
  } else {
    FusedAttention<float>(problem, output).run();
  }
}

std::size_t fused_scratch_bytes(const AttendProblem& problem) {
  if (is_decode(problem)) return decode_scratch_bytes(problem);
  const AttendOutput none{};
  return problem.q.dtype() == DType::f64 ? FusedAttention<double>(problem, none).all_scratch_bytes()
                                         : FusedAttention<float>(problem, none).all_scratch_bytes();
}

}  // namespace cephalo
