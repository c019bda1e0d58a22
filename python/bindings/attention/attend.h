#pragma once

#include <optional>
#include <string>
#include <utility>

#include "bindings/arrays/gpu.h"
#include "bindings/arrays/spellings.h"
#include "bindings/attention/kv_cache.h"
#include "bindings/attention/mask.h"
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

// device_seed=: one int64 number in the memory of a GPU, which kernels read when they run.
class DeviceSeed {
 public:
  DeviceSeed(const std::optional<AnyArray>& seed, const char* function);
  const std::uint64_t* address() const {
    return static_cast<const std::uint64_t*>(array_.view().data());
  }

 private:
  ArrayIn array_;
};

// A named tuple of the package, cephalo._results has them: ResultType("TrainPass")(loss, sums). It
// is made as tuples are. Its own constructor is Python's code, in which a daemon thread may meet
// the interpreter's end.
class ResultType {
 public:
  explicit ResultType(const char* name);
  template <typename... Fields>
  nb::object operator()(Fields&&... fields) const {
    return made_of(nb::make_tuple(std::forward<Fields>(fields)...));
  }

 private:
  nb::object made_of(const nb::tuple& fields) const;
  nb::object type_;
};

}  // namespace cephalo::python
