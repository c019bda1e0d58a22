#include "cephalo/attention/attend_backward.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

AnyArray backward_python(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                         const AnyArray& context, const AnyArray& lse, const AnyArray& dcontext,
                         const std::optional<AnyArray>& dlse, const AnyArray& mask,
                         std::optional<double> scale, std::optional<double> softcap, double dropout,
                         std::uint64_t seed, bool with_dbias, const std::string& engine,
                         const std::optional<std::string>& require, std::optional<int> threads,
                         const std::string& arithmetic) {
  constexpr const char* kName = "attend_backward";
  AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  options.engine = engine_of(engine, kName);
  options.require = required_engine(require, kName);
  options.arithmetic = arithmetic_of(arithmetic, kName);
  const ArrayIn queries = ArrayIn::anywhere(q, kName, "q");
  const ArrayIn keys = ArrayIn::anywhere(k, kName, "k");
  const ArrayIn values = ArrayIn::anywhere(v, kName, "v");
  const ArrayIn forward = ArrayIn::anywhere(context, kName, "context");
  const ArrayIn sums = ArrayIn::anywhere(lse, kName, "lse");
  const ArrayIn back = ArrayIn::anywhere(dcontext, kName, "dcontext");
  const ArrayIn back_of_sums = dlse ? ArrayIn::anywhere(*dlse, kName, "dlse") : ArrayIn();
  const Mask& parts = mask_of(mask, kName);
  options.stream = stream_for(queries);
  AttendGradients found;
  {
    const WithoutGil released;
    found = attend_backward({forward, sums, back, back_of_sums}, queries, keys, values, parts,
                            options, with_dbias);
  }
  nb::list dbias;
  for (Tensor& d : found.dbias) dbias.append(to_python(std::move(d), queries.kind()));
  return nb::borrow<AnyArray>(
      ResultType("AttendGradients")(to_python(std::move(found.dq), queries.kind()),
                                    to_python(std::move(found.dk), queries.kind()),
                                    to_python(std::move(found.dv), queries.kind()), dbias));
}

}  // namespace

void bind_attend_backward(nb::module_& m) {
  m.def(
      "attend_backward", &backward_python, "q"_a, "k"_a, "v"_a, "context"_a, "lse"_a, "dcontext"_a,
      "dlse"_a = nb::none(), "mask"_a = nb::none(), "scale"_a = nb::none(),
      "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0, "with_dbias"_a = false,
      "engine"_a = "auto", "require"_a = nb::none(), "threads"_a = nb::none(), nb::kw_only(),
      "arithmetic"_a = "exact",
      R"(The gradients of q, k and v: the named tuple (dq, dk, dv, dbias), each in the shape of its input.

q, k, v and the other arguments: as passed to attend; q, k and v of one dtype.
context, lse: what it returned, [batch, num_heads, q_tokens, v_dim] and [batch, num_heads, q_tokens]
dcontext, dlse: the incoming gradients, in the shapes and dtypes of context and lse.
dbias: with with_dbias, one for each bias of the mask, in that bias's shape and in lse's dtype.
float16 and bfloat16 are computed in float32, and dq, dk and dv are rounded once.)");
}

}  // namespace cephalo::python
