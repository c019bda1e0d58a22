// Weights from products, and the gradients of scores, in kernels that look at positions and at no
// more than one thing besides.
//
// Rows are keys: element e of a thread's accumulator is key lane / 4 + 8 · (e / 2 % 2) of the
// warp's 16 and query 8 · (e / 4) + 2 · (lane % 4) + e % 2.
#pragma once

#include <math_constants.h>

#include "cephalo/kernels/cuda/backward_keys.cuh"
#include "cephalo/kernels/cuda/dropout_bits.cuh"
#include "cephalo/kernels/cuda/simple.h"
#include "cephalo/kernels/cuda/softcap.cuh"

namespace cephalo::kernels::cuda {

template <typename C, int kGroup>
struct BackwardWeights : BackwardKeys<C, kGroup> {
  using Base = BackwardKeys<C, kGroup>;
  using Base::a, Base::sm, Base::warp, Base::lane;
  using Base::Base;
  using Element = typename C::Element;
  static constexpr int kQueries = C::kQueries;

  // What a step keeps of softcap or dropout from weights to gradients.
  struct Kept {
    // P where S is no longer P alone.
    std::uint32_t P[C::kSoftcap ? kQueries / 4 : 1];
    std::uint32_t dropped[C::kDropout ? kQueries / 64 : 1];
  };

  __device__ void draw(Kept& kept, const BackwardTile& tile, int head, int query) const {
    if constexpr (C::kDropout) {
      const int shift = short_rule(a.rules[tile.batch * a.rule_stride]).shift;
      const DropoutCounter counter(a.pairs, head, tile.batch, shift);
      const SharedKeys keys{sm.round_keys()};
      ColumnDraws draws(a.pairs, counter, query, this->key_of_thread(tile), lane);
      draw_all<kQueries / 2>(draws, keys, lane, kept.dropped);
    }
  }

  __device__ void weights(float (&S)[kQueries / 2], int s) {  // S becomes P = exp2(scale S − lse)
    const float scale = a.scale * 1.44269504F;
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float lse[2];
      hopper::get_two(sm.lse(s) + 4 * (8 * j + 2 * (lane % 4)), lse);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        S[4 * j + e] = hopper::exp2_approx(fmaf(S[4 * j + e], scale, -lse[e % 2]));
      }
    }
  }
  // The same with alibi. On the left of all queries it is one straight line, whose parts for keys
  // and for queries are added up apart.
  __device__ void sloped_weights(float (&S)[kQueries / 2], const BackwardTile& tile, int head,
                                 int query, int s) {
    const float scale = a.scale * kLog2e;
    const double* slopes = a.pairs.mask.slopes;
    const float slope = slopes != nullptr ? static_cast<float>(slopes[head]) * kLog2e : 0.0F;
    const int shift = short_rule(a.rules[tile.batch * a.rule_stride]).shift;
    const bool left = tile.key + C::kKeys - 1 <= query + shift;
    const auto away =
        static_cast<float>(this->key_of_thread(tile) - query - 2 * (lane % 4) - shift);
    const float of_key[2] = {slope * away, slope * (away + 8.0F)};
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float lse[2];
      hopper::get_two(sm.lse(s) + 4 * (8 * j + 2 * (lane % 4)), lse);
      if (left) {
        const float of_query[2] = {fmaf(-slope, static_cast<float>(8 * j), -lse[0]),
                                   fmaf(-slope, static_cast<float>(8 * j + 1), -lse[1])};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float added = of_key[e / 2] + of_query[e % 2];
          S[4 * j + e] = hopper::exp2_approx(fmaf(S[4 * j + e], scale, added));
        }
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float distance = fabsf(away + static_cast<float>(8 * (e / 2) - 8 * j - e % 2));
          const float added = fmaf(-slope, distance, -lse[e % 2]);
          S[4 * j + e] = hopper::exp2_approx(fmaf(S[4 * j + e], scale, added));
        }
      }
    }
  }
  // Is the lse of any of a block's rows so far away that its share is kept apart? That of others is
  // 0 in base 2.
  __device__ bool has_far_rows(int s) const {
    bool is_far = false;
#pragma unroll
    for (int row = 0; row < kQueries; row += 64) {
      float top[2];
      hopper::get_two(sm.lse(s) + 4 * row + 8 * lane, top);
      is_far = is_far || fabsf(top[0]) > kFarTop || fabsf(top[1]) > kFarTop;
    }
    return __any_sync(~0u, is_far) != 0;
  }
  // The same with a bias, rounded once it is added; natural numbers, since it may be -3.4e38.
  // number: the block's, of all heads'.
  __device__ void biased_weights(float (&S)[kQueries / 2], int number, int s) {
    add_bias(S, s);
    const bool is_far = has_far_rows(s);
    hopper::threads_sync(2 + kGroup, 128);  // ds comes where the bias was
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float share[2] = {0, 0};
      if (is_far) {
        const std::int64_t row = std::int64_t{number} * kQueries + 8 * j + 2 * (lane % 4);
        share[0] = hopper::get_global(a.share2 + row);
        share[1] = hopper::get_global(a.share2 + row + 1);
      }
#pragma unroll
      for (int e = 4 * j; e < 4 * j + 4; ++e) {
        S[e] = hopper::exp2_approx(fmaf(S[e], kLog2e, share[e % 2]));
      }
    }
  }
  // S becomes scale S + bias − lse.
  __device__ void add_bias(float (&S)[kQueries / 2], int s) {
    // Fragments are of 8 queries and 8 keys, and turned over: those of keys and keys + 8, then of
    // the next 8 queries.
    const int query = lane % 8 + lane / 16 * 8, chunk = warp * 2 + lane / 8 % 2;
    const std::uint32_t at = sm.ds(s) + kGroup * 8192 + query * 128 + (chunk ^ (query % 8)) * 16;
#pragma unroll
    for (int j = 0; j < kQueries / 8; j += 2) {
      std::uint32_t w[4];
      hopper::load_fragments<true>(at + j / 8 * 16384 + j % 8 * 1024, w);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int e = 4 * j + 2 * n, column = 8 * (j + n / 2) + 2 * (lane % 4);
        float added[2], top[2];
        hopper::unpack(Element{}, w[n], added);
        hopper::get_two(sm.lse(s) + 4 * column, top);
#pragma unroll
        for (int c = 0; c < 2; ++c) S[e + c] = fmaf(S[e + c], a.scale, added[c]) - top[c];
      }
    }
  }
  // The same with softcap: S becomes P (1 − tanh²), of which the gradient is a multiple.
  __device__ void capped_weights(float (&S)[kQueries / 2], Kept& kept, int s) {
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float lse[2];
      hopper::get_two(sm.lse(s) + 4 * (8 * j + 2 * (lane % 4)), lse);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float weight[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = S[4 * j + 2 * r + c];
          const float t = tanh_by_exp2(score * a.pairs.scale_in_caps);
          weight[c] = hopper::exp2_approx(fmaf(t, a.pairs.softcap2, -lse[c]));
          score = weight[c] * fmaf(-t, t, 1.0F);
        }
        kept.P[2 * j + r] = hopper::pack(Element{}, weight[0], weight[1]);
      }
    }
  }

  // The queries of a key's document.
  __device__ IndexSpan document_of(const BackwardTile& tile, int key) const {
    const IndexSpan* spans = a.pairs.documents.of_key;
    return spans[tile.batch * a.pairs.mask.kv_documents_stride + min(key, a.kv_tokens - 1)];
  }
  // No weight for a key outside of the query's span. query: the block's first.
  __device__ void hide(float (&S)[kQueries / 2], Kept& kept, const BackwardTile& tile, int query) {
    const int key = this->key_of_thread(tile), first = query + 2 * (lane % 4);
    ShortRule rule{};
    if (C::kSpans) rule = short_rule(a.rules[tile.batch * a.rule_stride]);
#pragma unroll
    for (int j = 0; j < kQueries / 4; ++j) {  // queries of this thread
      const int i = first + j / 2 * 8 + j % 2;
      int begin = 0, end = a.kv_tokens;
      if (C::kSpans) {
        begin = rule.begin(i);
        end = i < rule.q_len ? max(begin, rule.end(i)) : begin;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned at = static_cast<unsigned>(key + 8 * r - begin);
        if (at >= static_cast<unsigned>(end - begin)) forget(S, kept, j, r);
      }
    }
    if constexpr (C::kOneThing) {
      if (a.pairs.documents.of_key == nullptr) return;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const IndexSpan document = document_of(tile, key + 8 * r);
        const auto count = static_cast<unsigned>(document.end - document.begin);
#pragma unroll
        for (int j = 0; j < kQueries / 4; ++j) {
          const int at = first + j / 2 * 8 + j % 2 - document.begin;
          if (static_cast<unsigned>(at) >= count) forget(S, kept, j, r);
        }
      }
    }
  }
  // The thread's j-th query and r-th key.
  __device__ static void forget(float (&S)[kQueries / 2], Kept& kept, int j, int r) {
    S[j / 2 * 4 + 2 * r + j % 2] = 0;
    if constexpr (C::kSoftcap) kept.P[j / 2 * 2 + r] &= j % 2 == 0 ? 0xFFFF0000U : 0x0000FFFFU;
  }

  // Scores' products to weights, with nothing for what is hidden. number: the block's, of all
  // heads'.
  __device__ void finish_weights(float (&S)[kQueries / 2], Kept& kept, const BackwardTile& tile,
                                 int head, int query, int number, bool hides, int s) {
    if constexpr (C::kAlibi) {
      sloped_weights(S, tile, head, query, s);
    } else if constexpr (C::kBias) {
      biased_weights(S, number, s);
    } else if constexpr (C::kSoftcap) {
      capped_weights(S, kept, s);
    } else {
      weights(S, s);
    }
    hopper::tie(S);
    if (hides) hide(S, kept, tile, query);
  }

  __device__ void score_gradient(const float (&S)[kQueries / 2], const float (&dP)[kQueries / 2],
                                 std::uint32_t (&P)[kQueries / 4],
                                 std::uint32_t (&dS)[kQueries / 4], const Kept& kept, int s) {
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      float delta[2];
      hopper::get_two(sm.delta(s) + 4 * (8 * j + 2 * (lane % 4)), delta);
      if (C::kDropout) {  // its factor comes at the end, for sums of dS
        delta[0] *= a.pairs.shrunk;
        delta[1] *= a.pairs.shrunk;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int e = 4 * j + 2 * r;
        const float low = S[e], high = S[e + 1];
        if constexpr (C::kDropout) {
          float weight[2] = {low, high}, gradient[2] = {dP[e], dP[e + 1]};
          drop_both(kept.dropped[e / 32], e % 32, weight[0], gradient[0]);
          drop_both(kept.dropped[e / 32], (e + 1) % 32, weight[1], gradient[1]);
          P[2 * j + r] = hopper::pack(Element{}, weight[0], weight[1]);
          dS[2 * j + r] = hopper::pack(Element{}, low * (gradient[0] - delta[0]),
                                       high * (gradient[1] - delta[1]));
        } else {
          P[2 * j + r] = C::kSoftcap ? kept.P[2 * j + r] : hopper::pack(Element{}, low, high);
          dS[2 * j + r] =
              hopper::pack(Element{}, low * (dP[e] - delta[0]), high * (dP[e + 1] - delta[1]));
        }
      }
    }
  }
};

}  // namespace cephalo::kernels::cuda
