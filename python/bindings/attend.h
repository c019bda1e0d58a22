#pragma once

#include <optional>
#include <string>

#include "bindings/kv_cache.h"
#include "bindings/mask.h"
#include "bindings/words.h"
#include "cephalo/attention/attend.h"

namespace cephalo::python {

// The options that attend shares with what repeats or explains its work, as Python gives them.
inline AttendOptions attend_options(std::optional<double> scale, std::optional<double> softcap,
                                    double dropout, std::uint64_t seed,
                                    std::optional<int> threads) {
  AttendOptions options;
  options.scale = scale;
  options.softcap = softcap;
  options.dropout = dropout;
  options.seed = seed;
  options.threads = threads.value_or(0);
  return options;
}

// A named tuple of the package: cephalo._results has them.
nb::object result_type(const char* name);

}  // namespace cephalo::python
