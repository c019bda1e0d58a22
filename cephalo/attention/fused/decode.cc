#include "cephalo/attention/fused/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "cephalo/attention/fused/memory.h"
#include "cephalo/attention/fused/tile_mask.h"
#include "cephalo/attention/fused/tiles.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/rows.h"
#include "cephalo/core/visit.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

using kernels::kKvTile;

constexpr dim_t kChunk = 4 * kKvTile;

template <typename T>
class Decode {
 public:
  Decode(const AttendProblem& problem, const AttendOutput& output)
      : p_(problem),
        out_(output),
        attend_(*kernels::attend_kernels<T, T>(kernels::isa_for<T>())),
        decode_(kernels::decode_kernels<T>(current_isa()).decode),
        q_tokens_(problem.q.dim(2)),
        head_dim_(problem.q.dim(3)),
        v_dim_(problem.v.dim(3)),
        group_(problem.q.dim(1) / problem.k.dim(1)),
        chunks_((problem.k.dim(2) + kChunk - 1) / kChunk),
        record_(v_dim_ + 3) {}

  std::size_t all_scratch_bytes() const {
    return partial_numbers() * sizeof(T) + scratch_bytes() * static_cast<std::size_t>(threads());
  }

  // Each query of each chunk leaves its context, reference, sum and whether it is far.
  std::size_t partial_numbers() const {
    return static_cast<std::size_t>(p_.q.dim(0) * p_.q.dim(1) * q_tokens_ * chunks_ * record_);
  }

  void run() const {
    std::vector<T> partials(partial_numbers());
    const dim_t pieces = p_.q.dim(0) * p_.k.dim(1) * chunks_;
    const double numbers = static_cast<double>(p_.q.dim(0) * p_.q.dim(1) * q_tokens_) *
                           static_cast<double>(p_.k.dim(2) * (head_dim_ + v_dim_));
    const Region region{.pieces = pieces,
                        .flops = numbers / 8.0,  // memory is what it waits for
                        .scratch_bytes = scratch_bytes()};
    parallel_for(region, [&](dim_t piece, std::byte* scratch) {
      const dim_t chunk = piece % chunks_;
      const dim_t kv_head = piece / chunks_ % p_.k.dim(1);
      run_chunk(piece / chunks_ / p_.k.dim(1), kv_head, chunk, scratch, partials.data());
    });
    const Region rows{.pieces = p_.q.dim(0) * p_.q.dim(1) * q_tokens_,
                      .flops = static_cast<double>(partials.size())};
    parallel_for(rows, [&](dim_t row, std::byte*) { join_chunks(row, partials.data()); });
  }

 private:
  // Memory of one thread while it works on one chunk.
  struct Scratch {
    typename TileMaskBuilder<T>::Scratch mask;
    const void** keys;    // [kKvTile]
    const void** values;  // [kKvTile]
    const void** coming;  // [kKvTile], keys of the next block
    T* q;                 // [group · q_tokens][head_dim]
  };
  Scratch divide(Arena& arena) const {
    Scratch s{};
    s.mask = TileMaskBuilder<T>::divide(arena, p_, attend_);
    s.keys = arena.take<const void*>(kKvTile);
    s.values = arena.take<const void*>(kKvTile);
    s.coming = arena.take<const void*>(kKvTile);
    s.q = arena.take<T>(group_ * q_tokens_ * head_dim_);
    return s;
  }
  std::size_t scratch_bytes() const {
    return bytes_taken([&](Arena& arena) { divide(arena); });
  }

  T* partial(T* partials, dim_t b, dim_t h, dim_t i, dim_t chunk) const {
    return partials + (((b * p_.q.dim(1) + h) * q_tokens_ + i) * chunks_ + chunk) * record_;
  }

  void run_chunk(dim_t b, dim_t kv_head, dim_t chunk, std::byte* memory, T* partials) const {
    Arena arena(memory);
    const auto [mask_scratch, keys, values, coming, q] = divide(arena);
    TileMaskBuilder<T> masks(p_, attend_, mask_scratch);
    for (dim_t x = 0; x < group_ * q_tokens_; ++x) {
      const dim_t h = kv_head * group_ + x / q_tokens_;
      load_query(b, h, x % q_tokens_, q + x * head_dim_);
      T* record = partial(partials, b, h, x % q_tokens_, chunk);
      std::fill(record, record + record_, T{0});
      record[v_dim_] = -std::numeric_limits<T>::infinity();
    }
    const auto [key_begin, key_end] = p_.mask.key_range(b, 0, q_tokens_);
    const dim_t end = std::min(key_end, (chunk + 1) * kChunk);
    // Blocks lie at multiples of their size; those before the first visible key are skipped.
    for (dim_t j = std::max(chunk * kChunk, key_begin / kKvTile * kKvTile); j < end; j += kKvTile) {
      const dim_t count = std::min(kKvTile, end - j);
      p_.key_rows({b, kv_head, j, count}, keys);
      p_.value_rows({b, kv_head, j, count}, values);
      const dim_t next = std::clamp<dim_t>(key_end - j - count, 0, kKvTile);
      if (next > 0) p_.key_rows({b, kv_head, j + count, next}, coming);
      const kernels::DecodeBlock block{{keys, count, head_dim_, 1, p_.k.dtype()},
                                       {values, count, v_dim_, 1, p_.v.dtype()},
                                       {coming, next, head_dim_, 1, p_.k.dtype()}};
      for (dim_t x = 0; x < group_ * q_tokens_; ++x) {
        const dim_t h = kv_head * group_ + x / q_tokens_;
        const dim_t i = x % q_tokens_;
        kernels::TileMask<T> mask;
        const TilePlace place{b, h, i, 1, attend_.lanes, j, count};
        const Tile answer = masks.build(place, &mask);
        if (answer == Tile::hidden) continue;
        T* record = partial(partials, b, h, i, chunk);
        kernels::DecodeQuery<T> query{q + x * head_dim_, record, record[v_dim_], record[v_dim_ + 1],
                                      record[v_dim_ + 2] != T{0}};
        decode_(block, answer == Tile::visible ? nullptr : &mask, attend_.lanes, &query);
        record[v_dim_] = query.reference;
        record[v_dim_ + 1] = query.sum;
        record[v_dim_ + 2] = query.far ? T{1} : T{0};
      }
    }
  }

  void load_query(dim_t b, dim_t h, dim_t i, T* to) const {
    const dim_t stride = p_.q.strides()[3];
    const double scale = p_.scale * std::numbers::log2e;
    visit_dtype(p_.q.dtype(), [&](auto zero) {
      const auto* from = p_.q.data_as<decltype(zero)>() + row_offset(p_.q, b, h, i);
      for (dim_t d = 0; d < head_dim_; ++d) to[d] = static_cast<T>(load(from[d * stride]) * scale);
    });
  }

  // The chunks of one query in their order: the same sums for any number of threads.
  void join_chunks(dim_t row, T* partials) const {
    const dim_t b = row / q_tokens_ / p_.q.dim(1);
    const dim_t h = row / q_tokens_ % p_.q.dim(1);
    const dim_t i = row % q_tokens_;
    const T* first = partial(partials, b, h, i, 0);
    Reference reference{-std::numeric_limits<double>::infinity(), false};
    for (dim_t c = 0; c < chunks_; ++c) {
      const Reference next = reference_of(first + c * record_);
      if (next.is_above(reference)) reference = next;
    }
    double sum = 0.0;
    std::vector<double> context(static_cast<std::size_t>(v_dim_), 0.0);
    for (dim_t c = 0; c < chunks_; ++c) {
      const T* record = first + c * record_;
      const double weight = static_cast<double>(record[v_dim_ + 1]);
      if (weight == 0.0) continue;
      const double factor = std::exp2(reference_of(record).less(reference));
      sum += weight * factor;
      for (dim_t d = 0; d < v_dim_; ++d) {
        context[static_cast<std::size_t>(d)] += static_cast<double>(record[d]) * factor;
      }
    }
    store_row(b, h, i, reference, sum, context);
  }

  // The reference of a chunk: natural where it is far (kernels::kFarScore), base 2 otherwise.
  struct Reference {
    double value;
    bool far;
    double base_2() const { return far ? value * std::numbers::log2e : value; }
    double natural() const { return far ? value : value * std::numbers::ln2; }
    bool is_above(const Reference& other) const {
      const bool none = other.value == -std::numeric_limits<double>::infinity();
      return far == other.far || none ? value > other.value : base_2() > other.base_2();
    }
    // The difference in base 2: of two that are far the exact one.
    double less(const Reference& other) const {
      return far && other.far ? (value - other.value) * std::numbers::log2e
                              : base_2() - other.base_2();
    }
  };
  Reference reference_of(const T* record) const {
    return {static_cast<double>(record[v_dim_]), record[v_dim_ + 2] != T{0}};
  }

  void store_row(dim_t b, dim_t h, dim_t i, const Reference& reference, double sum,
                 const std::vector<double>& context) const {
    const dim_t stride = out_.context.strides()[3];
    visit_dtype(out_.context.dtype(), [&](auto zero) {
      auto* to = out_.context.mutable_data_as<decltype(zero)>() + row_offset(out_.context, b, h, i);
      for (dim_t d = 0; d < v_dim_; ++d) {
        const double value = context[static_cast<std::size_t>(d)];
        store(sum == 0.0 ? 0.0 : value / sum, to + d * stride);
      }
    });
    if (out_.lse.numel() == 0) return;
    out_.lse.mutable_data_as<T>()[row_offset(out_.lse, b, h, i)] =
        sum == 0.0 ? -std::numeric_limits<T>::infinity()
                   : static_cast<T>(std::log(sum) + reference.natural());
  }

  const AttendProblem& p_;
  const AttendOutput& out_;
  const kernels::AttendKernels<T, T>& attend_;
  decltype(kernels::DecodeKernels<T>::decode) decode_;
  dim_t q_tokens_;
  dim_t head_dim_;
  dim_t v_dim_;
  dim_t group_;
  dim_t chunks_;
  dim_t record_;  // numbers that one query of one chunk leaves
};

bool rows_are_dense(const AttendProblem& problem) {
  return problem.k.strides()[3] == 1 && problem.v.strides()[3] == 1;
}

}  // namespace

// Strides have no part in it: the same numbers give the same bits however they lie.
bool is_decode(const AttendProblem& problem) {
  return problem.q.dim(2) <= kMostDecodeQueries;
}

void attend_decode(const AttendProblem& problem, const AttendOutput& output) {
  if (!rows_are_dense(problem)) {  // rare, and the kernels read dense rows: copy them
    const Tensor k = Tensor::copy(problem.k);
    const Tensor v = Tensor::copy(problem.v);
    AttendProblem copied = problem;
    copied.k = k;
    copied.v = v;
    return attend_decode(copied, output);
  }
  if (problem.q.dtype() == DType::f64) {
    Decode<double>(problem, output).run();
  } else {
    Decode<float>(problem, output).run();
  }
}

std::size_t decode_scratch_bytes(const AttendProblem& problem) {
  const AttendOutput none{};
  const std::size_t copies = rows_are_dense(problem) ? 0 : problem.k.bytes() + problem.v.bytes();
  return copies + (problem.q.dtype() == DType::f64
                       ? Decode<double>(problem, none).all_scratch_bytes()
                       : Decode<float>(problem, none).all_scratch_bytes());
}

}  // namespace cephalo
