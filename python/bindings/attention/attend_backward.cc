#include "cephalo/attention/attend_backward.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "cephalo/core/allocator.h"

namespace cephalo::python {
namespace {

std::vector<TensorView> biases_of(const Mask& mask) {
  std::vector<TensorView> biases;
  for (const MaskTensor& part : mask.tensors) {
    if (part.role == MaskTensor::Role::bias) biases.push_back(part.view);
  }
  return biases;
}

// Gradients on a GPU, in memory that fits the caller's library: [dq, dk, dv, *dbias]
std::vector<AnyArray> gradients_on_gpu(const AttendPass& pass, const ArrayIn& q, const ArrayIn& k,
                                       const ArrayIn& v, const Mask& mask,
                                       const AttendOptions& options, const WorkStream& stream,
                                       bool with_dbias) {
  const UseStream use(options.stream);
  const DType dtype = q.view().dtype();
  std::vector<ResultMemory> memory;
  const auto add = [&](const TensorView& like, DType type) {
    return memory.emplace_back(q, like.shape(), type).view();
  };
  AttendGradientViews views{add(q, dtype), add(k, dtype), add(v, dtype), {}};
  for (const TensorView& bias : with_dbias ? biases_of(mask) : std::vector<TensorView>()) {
    views.dbias.push_back(add(bias, compute_type(dtype)));
  }
  {
    const WithoutGil released;
    attend_backward_into(views, pass, q, k, v, mask, options);
    stream.finish();
  }
  std::vector<AnyArray> arrays;
  for (ResultMemory& each : memory) arrays.push_back(std::move(each).to_python());
  return arrays;
}

// On the host: [dq, dk, dv, *dbias]
std::vector<AnyArray> gradients_on_host(const AttendPass& pass, const ArrayIn& q, const ArrayIn& k,
                                        const ArrayIn& v, const Mask& mask,
                                        const AttendOptions& options, bool with_dbias) {
  AttendGradients found;
  {
    const WithoutGil released;
    found = attend_backward(pass, q, k, v, mask, options, with_dbias);
  }
  std::vector<AnyArray> arrays;
  for (Tensor* t : {&found.dq, &found.dk, &found.dv}) {
    arrays.push_back(to_python(std::move(*t), q.kind()));
  }
  for (Tensor& t : found.dbias) arrays.push_back(to_python(std::move(t), q.kind()));
  return arrays;
}

AnyArray backward_python(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                         const AnyArray& context, const AnyArray& lse, const AnyArray& dcontext,
                         const std::optional<AnyArray>& dlse, const AnyArray& mask,
                         std::optional<double> scale, std::optional<double> softcap, double dropout,
                         std::uint64_t seed, bool with_dbias, const std::string& engine,
                         const std::optional<std::string>& require, std::optional<int> threads,
                         const std::string& arithmetic,
                         const std::optional<AnyArray>& device_seed) {
  constexpr const char* kName = "attend_backward";
  AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  options.engine = engine_of(engine, kName);
  options.require = required_engine(require, kName);
  options.arithmetic = arithmetic_of(arithmetic, kName);
  const ArrayIn queries = ArrayIn::argument(q, kName, "q");
  const ArrayIn keys = ArrayIn::argument(k, kName, "k");
  const ArrayIn values = ArrayIn::argument(v, kName, "v");
  const ArrayIn forward = ArrayIn::argument(context, kName, "context");
  const ArrayIn sums = ArrayIn::argument(lse, kName, "lse");
  const ArrayIn back = ArrayIn::argument(dcontext, kName, "dcontext");
  const ArrayIn back_of_sums = dlse ? ArrayIn::argument(*dlse, kName, "dlse") : ArrayIn();
  const Mask& parts = mask_of(mask, kName);
  const DeviceSeed seed_there(device_seed, kName);
  options.device_seed = seed_there.address();
  const WorkStream stream(queries);
  options.stream = stream.stream();
  const AttendPass pass{forward, sums, back, back_of_sums};
  const std::vector<AnyArray> found =
      queries.view().device().is_host()
          ? gradients_on_host(pass, queries, keys, values, parts, options, with_dbias)
          : gradients_on_gpu(pass, queries, keys, values, parts, options, stream, with_dbias);
  nb::list dbias;
  for (std::size_t n = 3; n < found.size(); ++n) dbias.append(found[n]);
  return nb::borrow<AnyArray>(ResultType("AttendGradients")(found[0], found[1], found[2], dbias));
}

}  // namespace

void bind_attend_backward(nb::module_& m) {
  m.def(
      "attend_backward", &backward_python, "q"_a, "k"_a, "v"_a, "context"_a, "lse"_a, "dcontext"_a,
      "dlse"_a = nb::none(), "mask"_a = nb::none(), "scale"_a = nb::none(),
      "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0, "with_dbias"_a = false,
      "engine"_a = "auto", "require"_a = nb::none(), "threads"_a = nb::none(), nb::kw_only(),
      "arithmetic"_a = "exact", "device_seed"_a = nb::none(),
      R"(The gradients of q, k and v: the named tuple (dq, dk, dv, dbias), each in the shape of its input.

q, k, v and the other arguments: as passed to attend; q, k and v of one dtype.
context, lse: what it returned, [batch, num_heads, q_tokens, v_dim] and [batch, num_heads, q_tokens]
dcontext, dlse: the incoming gradients, in the shapes and dtypes of context and lse.
dbias: with with_dbias, one for each bias of the mask, in that bias's shape and in lse's dtype.
float16 and bfloat16 are computed in float32, and dq, dk and dv are rounded once.)");
}

}  // namespace cephalo::python
