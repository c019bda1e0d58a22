// What a consumer of the forward pass has in its registers, and which keys its rows see.
//
// Element i of a thread's accumulator: row warp · 16 + lane / 4 + 8 · (i / 2 % 2), column
// 8 · (i / 4) + 2 · (lane % 4) + i % 2. So a thread holds two rows, and P[i] = {S[2i], S[2i + 1]}
// (row i % 2) is at once the A operand of the second product.
#pragma once

#include <math_constants.h>

#include <type_traits>

#include "cephalo/kernels/cuda/forward_plan.cuh"

namespace cephalo::kernels::cuda {

// What a thread is told of its two rows once for each tile.
struct RowsOfThread {
  int begin[2], end[2];  // the keys that positions and documents leave
  float slope;           // alibi's; dropout: not read
};
struct NothingTold {};

template <typename C>
struct ForwardRows {
  static constexpr int kVWidth = C::kVWidth, kKeys = C::kKeys;

  const HopperForward& a;
  ForwardShared<C> sm;
  const int group, warp, lane;
  const float scale;  // in base 2
  int x;              // this tile's q buffer
  float O[kVWidth / 2], S[kKeys / 2], m[2], sum[2];
  std::conditional_t<C::kOneThing, RowsOfThread, NothingTold> rows;

  __device__ ForwardRows(const HopperForward& args, const ForwardShared<C>& shared, int role)
      : a(args),
        sm(shared),
        group(role - 1),
        warp(static_cast<int>(threadIdx.x / 32 % 4)),
        lane(static_cast<int>(threadIdx.x % 32)),
        scale(args.scale * 1.44269504F) {}

  __device__ int row_of_thread(int r) const { return warp * 16 + lane / 4 + 8 * r; }
  __device__ int query_of_thread(const ForwardTile& tile, int r) const {
    return tile.row + group * 64 + row_of_thread(r);
  }
  __device__ ShortRule rule_of(const ForwardTile& tile) const {
    return short_rule(a.rules[tile.batch * a.rule_stride]);
  }
  // The keys of a query's document: all, where there are none.
  __device__ IndexSpan document_of(const ForwardTile& tile, int i) const {
    const IndexSpan* spans = a.pairs.documents.of_query;
    if (spans == nullptr) return {0, a.kv_tokens};
    return spans[tile.batch * a.pairs.mask.q_documents_stride + min(i, a.q_tokens - 1)];
  }

  __device__ void begin_tile(const ForwardTile& tile) {
    if constexpr (C::kOneThing) {
      const ShortRule rule = rule_of(tile);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = query_of_thread(tile, r);
        const IndexSpan document = document_of(tile, i);
        rows.begin[r] = max(rule.begin(i), document.begin);
        rows.end[r] = i < rule.q_len ? min(rule.end(i), document.end) : 0;
        rows.end[r] = max(rows.begin[r], rows.end[r]);
      }
      if (C::kAlibi) {
        const double* slopes = a.pairs.mask.slopes;
        rows.slope = slopes != nullptr ? static_cast<float>(slopes[tile.head] / a.scale) : 0.0F;
      }
    }
  }

  // −inf where the key is outside of the row's span.
  __device__ void hide(const ForwardTile& tile, int key) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int begin = 0, end = a.kv_tokens;
      if constexpr (C::kOneThing) {
        begin = rows.begin[r];
        end = rows.end[r];
      } else if constexpr (C::kSpans) {
        const ShortRule rule = rule_of(tile);
        const int i = query_of_thread(tile, r);
        begin = rule.begin(i);
        end = max(begin, rule.end(i));
      }
      const int column = key + 2 * (lane % 4) - begin;
      const unsigned count = end - begin;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 2 % 2 == r && static_cast<unsigned>(column + i / 4 * 8 + i % 2) >= count) {
          S[i] = -CUDART_INF_F;
        }
      }
    }
  }

  // The blocks of a tile of which every row of this warpgroup sees every key: found out once, since
  // what stands between two steps is time that the tensor cores wait.
  __device__ IndexSpan clean_blocks(const ForwardTile& tile) const {
    if (C::kPairs) return {tile.blocks, tile.blocks};
    int first = 0, last = a.kv_tokens;  // the keys that all rows see
    if (C::kSpans) {
      const ShortRule rule = rule_of(tile);
      const int row = tile.row + group * 64;
      first = rule.begin(max(row, min(row + 64, rule.q_len) - 1));
      last = rule.end(row);
      // Alibi is one straight line on the left of all rows alone.
      if (C::kAlibi) last = min(last, row + rule.shift + 1);
      if (C::kOneThing && a.pairs.documents.of_query != nullptr) {
        const DocumentSpans& d = a.pairs.documents;
        const int some = min(row, a.q_tokens - 1);
        const IndexSpan document = document_of(tile, some);
        const int one = d.q_one[tile.batch * d.blocks_stride + some / kDocumentQueries];
        first = max(first, document.begin);
        last = one < 0 ? 0 : min(last, document.end);
      }
    }
    const int hidden_left = (max(0, first - tile.first_key) + kKeys - 1) / kKeys;
    return {tile.blocks - max(0, last - tile.first_key) / kKeys, tile.blocks - hidden_left};
  }

  // Does positions' and documents' part of the mask leave the row anything?
  __device__ bool may_see(const ForwardTile& tile, int r) const {
    const int i = query_of_thread(tile, r);
    if constexpr (C::kOneThing) {
      return rows.begin[r] < rows.end[r];
    } else if constexpr (C::kSpans) {
      const ShortRule rule = rule_of(tile);
      return i < rule.q_len && rule.begin(i) < rule.end(i);
    } else {
      return i < a.q_tokens;
    }
  }
};

}  // namespace cephalo::kernels::cuda
