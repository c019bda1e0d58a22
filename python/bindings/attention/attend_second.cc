#include "cephalo/attention/attend_second.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

// The arrays of a direction; None stands still.
class Direction {
 public:
  Direction(const std::optional<AnyArray>& uq, const std::optional<AnyArray>& uk,
            const std::optional<AnyArray>& uv, const std::vector<AnyArray>& ubias,
            const char* function)
      : q_(or_absent(uq, function, "uq")),
        k_(or_absent(uk, function, "uk")),
        v_(or_absent(uv, function, "uv")) {
    for (const AnyArray& each : ubias) bias_.emplace_back(each, function, "ubias");
  }
  AttendDirection views() const {
    return {q_, k_, v_, std::vector<TensorView>(bias_.begin(), bias_.end())};
  }

 private:
  static ArrayIn or_absent(const std::optional<AnyArray>& array, const char* function,
                           const char* name) {
    return array ? ArrayIn(*array, function, name) : ArrayIn();
  }
  ArrayIn q_, k_, v_;
  std::vector<ArrayIn> bias_;
};

AnyArray tangent_python(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                        const AnyArray& context, const AnyArray& lse,
                        const std::optional<AnyArray>& uq, const std::optional<AnyArray>& uk,
                        const std::optional<AnyArray>& uv, const std::vector<AnyArray>& ubias,
                        const AnyArray& mask, std::optional<double> scale,
                        std::optional<double> softcap, double dropout, std::uint64_t seed,
                        const std::string& engine, const std::optional<std::string>& require,
                        std::optional<int> threads) {
  constexpr const char* kName = "attend_tangent";
  AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  options.engine = engine_of(engine, kName);
  options.require = required_engine(require, kName);
  const ArrayIn queries(q, kName, "q");
  const ArrayIn keys(k, kName, "k");
  const ArrayIn values(v, kName, "v");
  const ArrayIn forward(context, kName, "context");
  const ArrayIn sums(lse, kName, "lse");
  const Direction along(uq, uk, uv, ubias, kName);
  const Mask& parts = mask_of(mask, kName);
  AttendTangents found;
  {
    const WithoutGil released;
    found = attend_tangent({forward, sums, {}, {}}, queries, keys, values, along.views(), parts,
                           options);
  }
  return nb::borrow<AnyArray>(
      ResultType("AttendTangents")(to_python(std::move(found.tcontext), queries.kind()),
                                   to_python(std::move(found.tlse), queries.kind())));
}

AnyArray second_python(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                       const AnyArray& context, const AnyArray& lse, const AnyArray& dcontext,
                       const std::optional<AnyArray>& uq, const std::optional<AnyArray>& uk,
                       const std::optional<AnyArray>& uv, const std::vector<AnyArray>& ubias,
                       const std::optional<AnyArray>& dlse, const AnyArray& mask,
                       std::optional<double> scale, std::optional<double> softcap, double dropout,
                       std::uint64_t seed, bool with_hbias, const std::string& engine,
                       const std::optional<std::string>& require, std::optional<int> threads) {
  constexpr const char* kName = "attend_second";
  AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  options.engine = engine_of(engine, kName);
  options.require = required_engine(require, kName);
  const ArrayIn queries(q, kName, "q");
  const ArrayIn keys(k, kName, "k");
  const ArrayIn values(v, kName, "v");
  const ArrayIn forward(context, kName, "context");
  const ArrayIn sums(lse, kName, "lse");
  const ArrayIn back(dcontext, kName, "dcontext");
  const ArrayIn back_of_sums = dlse ? ArrayIn(*dlse, kName, "dlse") : ArrayIn();
  const Direction along(uq, uk, uv, ubias, kName);
  const Mask& parts = mask_of(mask, kName);
  AttendSecond found;
  {
    const WithoutGil released;
    found = attend_second({forward, sums, back, back_of_sums}, queries, keys, values, along.views(),
                          parts, options, with_hbias);
  }
  const Kind kind = queries.kind();
  nb::list hbias;
  for (Tensor& h : found.hbias) hbias.append(to_python(std::move(h), kind));
  return nb::borrow<AnyArray>(ResultType("AttendSecond")(
      to_python(std::move(found.hq), kind), to_python(std::move(found.hk), kind),
      to_python(std::move(found.hv), kind), hbias, to_python(std::move(found.hdcontext), kind),
      to_python(std::move(found.hdlse), kind)));
}

}  // namespace

void bind_attend_second(nb::module_& m) {
  m.def(
      "attend_tangent", &tangent_python, "q"_a, "k"_a, "v"_a, "context"_a, "lse"_a,
      "uq"_a = nb::none(), "uk"_a = nb::none(), "uv"_a = nb::none(),
      "ubias"_a = std::vector<AnyArray>(), "mask"_a = nb::none(), "scale"_a = nb::none(),
      "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0, "engine"_a = "auto",
      "require"_a = nb::none(), "threads"_a = nb::none(),
      R"(Forward mode: how context and lse move when q, k, v move along uq, uk, uv. The named tuple (tcontext, tlse).

q, k, v and the other arguments: as passed to attend; q, k and v of one dtype.
context, lse: what it returned, [batch, num_heads, q_tokens, v_dim] and [batch, num_heads, q_tokens]
uq, uk, uv: in the shapes of q, k and v; None: it stands still.
ubias: one for each bias of the mask, in that bias's shape and in lse's dtype, or none.)");
  m.def(
      "attend_second", &second_python, "q"_a, "k"_a, "v"_a, "context"_a, "lse"_a, "dcontext"_a,
      "uq"_a = nb::none(), "uk"_a = nb::none(), "uv"_a = nb::none(),
      "ubias"_a = std::vector<AnyArray>(), "dlse"_a = nb::none(), "mask"_a = nb::none(),
      "scale"_a = nb::none(), "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0,
      "with_hbias"_a = false, "engine"_a = "auto", "require"_a = nb::none(),
      "threads"_a = nb::none(),
      R"(Second derivatives applied to a direction: the named tuple (hq, hk, hv, hbias, hdcontext, hdlse).

hq, hk, hv: how attend_backward's dq, dk, dv move when q, k, v move along uq, uk, uv; also the
gradients of <uq, dq> + <uk, dk> + <uv, dv> for q, k and v. hdcontext, hdlse: its gradients for
dcontext and dlse, which are what attend_tangent returns.
q, k, v, context, lse, dcontext, dlse and the other arguments: as passed to attend_backward.
uq, uk, uv: in the shapes of q, k and v; None: it stands still.
ubias: one for each bias of the mask, in that bias's shape and in lse's dtype, or none.
hbias: with with_hbias, one for each bias of the mask, as ubias.)");
}

}  // namespace cephalo::python
