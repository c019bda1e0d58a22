#include "cephalo/attention/fused/weights.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "cephalo/attention/engine/looks.h"
#include "cephalo/attention/fused/memory.h"
#include "cephalo/attention/fused/tile_mask.h"
#include "cephalo/attention/fused/tiles.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/rows.h"

namespace cephalo {
namespace {

using kernels::kKvTile;

// Consecutive rows of one head; `row` counts the selected rows before them.
struct RowRun {
  dim_t b, h;
  dim_t head;  // its number in the selection
  dim_t i, count;
  dim_t row;
};

// Weights of a tile as the kernel leaves them: key by key, queries in lanes.
template <typename T>
struct WeightTile {
  TilePlace place;
  const T* weights;              // [keys][width]
  const std::uint64_t* visible;  // [keys], null: all are
  T at(dim_t k, dim_t x) const { return weights[k * place.width + x]; }
  bool sees(dim_t k, dim_t x) const { return visible == nullptr || ((visible[k] >> x) & 1) != 0; }
};

// Walks through runs of rows in parallel and hands every tile that is not all hidden to
// consume(run, tile). A run is one thread's, its tiles come in order of rows and then of keys.
template <typename T>
class WeightsPass {
 public:
  WeightsPass(const AttendProblem& problem, const TensorView& lse)
      : p_(problem),
        lse_(lse),
        kernels_(*kernels::attend_kernels<T, T>(kernels::isa_for<T>())),
        has_bias_(has_bias(problem)),
        head_dim_(problem.q.dim(3)),
        width_(kernels::kMaxColumns * kernels_.lanes) {}

  template <typename Consume>
  void run(const std::vector<RowRun>& runs, const Consume& consume) const {
    double rows = 0.0;
    for (const RowRun& each : runs) rows += static_cast<double>(each.count);
    const double pairs = rows * static_cast<double>(p_.k.dim(2));
    const Region region{.pieces = static_cast<dim_t>(runs.size()),
                        .flops = pairs * (2.0 * static_cast<double>(head_dim_) / kFusedSpeed + 2.0),
                        .scratch_bytes = scratch_bytes()};
    parallel_for(region, [&](dim_t piece, std::byte* scratch) {
      run_rows(runs[static_cast<std::size_t>(piece)], scratch, consume);
    });
  }

 private:
  // Memory of one thread while it works on one run.
  struct Scratch {
    typename TileMaskBuilder<T>::Scratch mask;
    const void** addresses;  // [kKvTile]
    kernels::StripColumns* strips;
    T* weights;    // [kKvTile][width]
    T* keys;       // [kKvTile][head_dim]
    T* q;          // [head_dim][width]
    T* minus_lse;  // [width]
    T* sum;        // [width]
    T* factor;     // [width]
  };
  Scratch divide(Arena& arena) const {
    Scratch s{};
    s.mask = TileMaskBuilder<T>::divide(arena, p_, kernels_);
    s.addresses = arena.take<const void*>(kKvTile);
    s.strips = arena.take<kernels::StripColumns>(kKvTile);
    s.weights = arena.take<T>(kKvTile * width_);
    s.keys = arena.take<T>(kKvTile * head_dim_);
    s.q = arena.take<T>(head_dim_ * width_);
    s.minus_lse = arena.take<T>(width_);
    s.sum = arena.take<T>(width_);
    s.factor = arena.take<T>(width_);
    return s;
  }
  std::size_t scratch_bytes() const {
    return bytes_taken([&](Arena& arena) { divide(arena); });
  }

  template <typename Consume>
  void run_rows(const RowRun& rows, std::byte* memory, const Consume& consume) const {
    Arena arena(memory);
    const Scratch s = divide(arena);
    TileMaskBuilder<T> masks(p_, kernels_, s.mask);
    const dim_t kv_head = rows.h / (p_.q.dim(1) / p_.k.dim(1));

    const dim_t end = rows.i + rows.count;
    for (dim_t i = rows.i; i < end; i += width_) {
      const dim_t count = std::min(width_, end - i);
      const dim_t columns = (count + kernels_.lanes - 1) / kernels_.lanes;
      const dim_t width = columns * kernels_.lanes;
      pack_queries(p_, kernels_, {rows.b, rows.h, i, i + count}, width, s.q);
      const std::uint64_t far = load_references(rows, i, count, width, s.minus_lse);
      kernels::QueryTile<T, T> tile{s.q, nullptr, s.minus_lse, s.sum, static_cast<int>(columns),
                                    0,   true,    far,         false};
      std::fill(s.sum, s.sum + width, T{0});
      const BoundMask::KeyRange range = p_.mask.key_range(rows.b, i, i + count);
      const auto walk = [&](const auto& use) {
        for (dim_t j = range.begin / kKvTile * kKvTile; j < range.end; j += kKvTile) {
          const TilePlace place{
              rows.b, rows.h, i, count, width, j, std::min(kKvTile, range.end - j)};
          kernels::TileMask<T> mask;
          const Tile answer = masks.build(place, &mask);
          if (answer == Tile::hidden) continue;
          p_.key_rows({rows.b, kv_head, j, place.keys}, s.addresses);
          kernels_.pack_broadcast(
              {s.addresses, place.keys, head_dim_, p_.k.strides()[3], p_.k.dtype()}, s.keys);
          const kernels::KeyBlock<T> block{s.keys, nullptr, place.keys, head_dim_, 0, 0, true};
          kernels_.weigh(block, tile, answer == Tile::visible ? nullptr : &mask, s.weights,
                         s.strips);
          use(place, answer == Tile::mixed ? mask.visible : nullptr);
        }
      };
      // The reference is an lse that was rounded, and this sums in another order than the call
      // did: a first walk finds what the row adds up to, the second divides by it. Where keys of
      // the whole are missing, rows are to add up to less.
      if (p_.mask.has_all_keys()) walk([](const TilePlace&, const std::uint64_t*) {});
      for (dim_t x = 0; x < width; ++x) s.factor[x] = s.sum[x] > T{0} ? T{1} / s.sum[x] : T{1};
      walk([&](const TilePlace& place, const std::uint64_t* visible) {
        clear_unseen(place, s.strips, s.weights);
        scale(place, s.factor, s.weights);
        consume(rows, WeightTile<T>{place, s.weights, visible});
      });
    }
  }

  static void scale(const TilePlace& place, const T* factor, T* weights) {
    for (dim_t k = 0; k < place.keys; ++k) {
      for (dim_t x = 0; x < place.width; ++x) weights[k * place.width + x] *= factor[x];
    }
  }

  // −lse of every lane, in the units that kernels want; the bits of lanes that are far.
  std::uint64_t load_references(const RowRun& rows, dim_t i, dim_t count, dim_t width,
                                T* to) const {
    std::uint64_t far = 0;
    const T* from = lse_.data_as<T>() + row_offset(lse_, rows.b, rows.h, i);
    const dim_t stride = lse_.strides()[2];
    std::fill(to, to + width, T{0});
    for (dim_t x = 0; x < count; ++x) {
      const T value = from[x * stride];
      // A row that saw nothing has weights of 0 whatever the reference is.
      if (value == -std::numeric_limits<T>::infinity()) continue;
      if (has_bias_ && is_far(static_cast<double>(value))) {
        to[x] = -value;
        far |= std::uint64_t{1} << x;
      } else {
        to[x] = static_cast<T>(-static_cast<double>(value) * std::numbers::log2e);
      }
    }
    return far;
  }

  // Columns of a strip that the kernel skipped hold what was there before.
  void clear_unseen(const TilePlace& place, const kernels::StripColumns* strips, T* weights) const {
    for (dim_t k = 0; k < place.keys; ++k) {
      const kernels::StripColumns seen = strips[k / kernels_.rows];
      T* row = weights + k * place.width;
      std::fill(row, row + seen.first * kernels_.lanes, T{0});
      std::fill(row + (seen.first + seen.count) * kernels_.lanes, row + place.width, T{0});
    }
  }

  const AttendProblem& p_;
  const TensorView& lse_;
  const kernels::AttendKernels<T, T>& kernels_;
  bool has_bias_;
  dim_t head_dim_;
  dim_t width_;
};

constexpr dim_t kRowsPerRun = 192;  // four tiles of the widest lanes: enough to be worth a piece

// Selected rows of all selected heads, neighbours together.
std::vector<RowRun> runs_of(dim_t batch, const std::vector<dim_t>& heads,
                            const std::vector<dim_t>& rows) {
  std::vector<RowRun> runs;
  for (dim_t b = 0; b < batch; ++b) {
    for (std::size_t head = 0; head < heads.size(); ++head) {
      for (std::size_t first = 0; first < rows.size();) {
        std::size_t next = first + 1;
        while (next < rows.size() && rows[next] == rows[next - 1] + 1 &&
               next - first < static_cast<std::size_t>(kRowsPerRun)) {
          ++next;
        }
        runs.push_back({b, heads[head], static_cast<dim_t>(head), rows[first],
                        static_cast<dim_t>(next - first), static_cast<dim_t>(first)});
        first = next;
      }
    }
  }
  return runs;
}

template <typename T>
Tensor selected_weights(const AttendProblem& p, const TensorView& lse,
                        const WeightsSelection& selection) {
  const std::vector<dim_t> heads = selected_or_all(selection.heads, p.q.dim(1), "head");
  const std::vector<dim_t> rows = selected_or_all(selection.rows, p.q.dim(2), "row");
  const dim_t kv_tokens = p.k.dim(2);
  Tensor out = Tensor::zeros(
      {p.q.dim(0), static_cast<dim_t>(heads.size()), static_cast<dim_t>(rows.size()), kv_tokens},
      DTypeOf<T>::value);
  if (out.numel() == 0) return out;
  T* data = out.mutable_data_as<T>();
  const auto row_count = static_cast<dim_t>(rows.size());
  const auto head_count = static_cast<dim_t>(heads.size());
  WeightsPass<T>(p, lse).run(
      runs_of(p.q.dim(0), heads, rows), [&](const RowRun& run, const WeightTile<T>& tile) {
        const dim_t first = run.row + tile.place.i - run.i;
        T* to = data + ((run.b * head_count + run.head) * row_count + first) * kv_tokens;
        for (dim_t x = 0; x < tile.place.count; ++x) {
          for (dim_t k = 0; k < tile.place.keys; ++k) {
            to[x * kv_tokens + tile.place.j + k] = tile.at(k, x);
          }
        }
      });
  return out;
}

template <typename T>
PooledWeights pool(const AttendProblem& p, const TensorView& lse, const HeadCells& cells) {
  CellGrid grid(p, cells.cells);
  // A row of cells is one piece: nobody else adds to it.
  std::vector<RowRun> runs;
  for (dim_t y = 0; y < grid.queries().cells; ++y) {
    runs.push_back(
        {cells.batch, cells.head, y, grid.queries().begin_of(y), grid.queries().size_of(y), 0});
  }
  WeightsPass<T>(p, lse).run(runs, [&](const RowRun& run, const WeightTile<T>& tile) {
    for (dim_t k = 0; k < tile.place.keys; ++k) {
      T high{0};
      T sum{0};
      for (dim_t x = 0; x < tile.place.count; ++x) {
        high = std::max(high, tile.at(k, x));
        sum += tile.at(k, x);
      }
      grid.add(run.head, tile.place.j + k, static_cast<double>(high), static_cast<double>(sum));
    }
  });
  return std::move(grid).finish();
}

template <typename T>
Tensor sum_rows(const AttendProblem& p, const TensorView& lse, const TensorView& tokens) {
  const dim_t q_tokens = p.q.dim(2);
  Tensor out = Tensor::zeros({p.q.dim(0), p.q.dim(1), q_tokens, kRowSums}, DType::f64);
  if (out.numel() == 0) return out;
  auto* data = out.mutable_data_as<double>();
  const RowSummer summer(tokens);
  const std::vector<dim_t> heads = selected_or_all({}, p.q.dim(1), "head");
  const std::vector<dim_t> rows = selected_or_all({}, q_tokens, "row");
  WeightsPass<T>(p, lse).run(
      runs_of(p.q.dim(0), heads, rows), [&](const RowRun& run, const WeightTile<T>& tile) {
        double* to = data + ((run.b * p.q.dim(1) + run.h) * q_tokens + tile.place.i) * kRowSums;
        for (dim_t x = 0; x < tile.place.count; ++x) {
          const dim_t position = p.mask.position(tile.place.b, tile.place.i + x);
          double sums[kRowSums];  // a row's own, which no store in between can change
          std::copy_n(to + x * kRowSums, kRowSums, sums);
          for (dim_t k = 0; k < tile.place.keys; ++k) {
            if (!tile.sees(k, x)) continue;
            summer.add(position, p.mask.key_position(tile.place.j + k),
                       static_cast<double>(tile.at(k, x)), sums);
          }
          std::copy_n(sums, kRowSums, to + x * kRowSums);
        }
      });
  return out;
}

}  // namespace

Tensor weights_fused(const AttendProblem& problem, const TensorView& lse,
                     const WeightsSelection& selection) {
  return problem.q.dtype() == DType::f64 ? selected_weights<double>(problem, lse, selection)
                                         : selected_weights<float>(problem, lse, selection);
}

PooledWeights pooled_weights_fused(const AttendProblem& problem, const TensorView& lse,
                                   const HeadCells& cells) {
  return problem.q.dtype() == DType::f64 ? pool<double>(problem, lse, cells)
                                         : pool<float>(problem, lse, cells);
}

Tensor row_sums_fused(const AttendProblem& problem, const TensorView& lse,
                      const TensorView& tokens) {
  return problem.q.dtype() == DType::f64 ? sum_rows<double>(problem, lse, tokens)
                                         : sum_rows<float>(problem, lse, tokens);
}

}  // namespace cephalo
