#pragma once

#include <optional>
#include <vector>

#include "cephalo/attention/engine/problem.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/parameters.h"
#include "cephalo/attention/layer/placed_rows.h"
#include "cephalo/attention/layer/rotary.h"

namespace cephalo {

// One call of the layer, checked.
struct LayerCall {
  TensorView x;                  // [batch, tokens, d_in]
  std::optional<TensorView> kv;  // [batch, kv_tokens, d_kv]; none: keys come from x
  const Mask& mask;
  std::optional<Rotary> rotary;
  AttendOptions options;
  KVCache* cache;             // keys and values are appended to it first
  std::vector<dim_t> counts;  // of x's tokens in each sequence, with a cache; empty: all
  const char* name;           // begins messages
  Spread spread = {};
  std::vector<PlacedRows> placed = {};  // where x's rows are, where tokens are spread
};

// What the call will attend to, before anything is computed: q, k and v are shapes alone, the mask
// is bound. An engine is chosen with it, and whatever attend would refuse is refused here, before
// any product and before the cache changes. The call must outlive it.
AttendProblem problem_ahead(const ParameterSizes& sizes, const LayerCall& call, DType steps);

// Where the rows of a call stand whose tokens are spread over processes; checks as those above.
std::vector<PlacedRows> places_ahead(const ParameterSizes& sizes, const LayerCall& call,
                                     DType steps);

}  // namespace cephalo
