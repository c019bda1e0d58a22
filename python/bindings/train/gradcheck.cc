#include "cephalo/train/gradcheck.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/attention/call.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

GradcheckReport check_attend(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                             const AnyArray& mask, std::optional<double> scale,
                             std::optional<double> softcap, double dropout, std::uint64_t seed,
                             const std::string& engine, int projections) {
  AttendOptions options = attend_options(scale, softcap, dropout, seed, std::nullopt);
  options.engine = engine_of(engine, "gradcheck");
  const ArrayIn queries(q, "gradcheck", "q");
  const ArrayIn keys(k, "gradcheck", "k");
  const ArrayIn values(v, "gradcheck", "v");
  const Mask& parts = mask_of(mask, "gradcheck");
  GradcheckOptions how;
  how.projections = projections;
  const WithoutGil released;
  return gradcheck(queries, keys, values, parts, options, how);
}

GradcheckReport check_layer(const Layer& layer, const AnyArray& x,
                            const std::optional<AnyArray>& kv, const AnyArray& mask,
                            const nb::object& generator, std::optional<std::uint64_t> call,
                            int projections) {
  LayerCall ready(layer, x, kv, mask, generator, call);
  return ready.run(
      [&](const MultiHeadAttention& checked, const TensorView& input, const CallOptions& options) {
        GradcheckOptions how;
        how.projections = projections;
        return gradcheck(checked, input, options, how);
      });
}

void bind_report(nb::module_& m) {
  nb::class_<GradcheckTensor>(m, "GradcheckTensor", "What was found for one tensor.")
      .def_ro("name", &GradcheckTensor::name)
      .def_ro("checked", &GradcheckTensor::checked)
      .def_ro("failed", &GradcheckTensor::failed)
      .def_prop_ro("error", [](const GradcheckTensor& t) { return t.worst.error; })
      .def_prop_ro("allowed", [](const GradcheckTensor& t) { return t.worst.allowed; })
      .def_prop_ro("passed", &GradcheckTensor::passed);
  nb::class_<GradcheckReport>(m, "GradcheckReport", "True when every gradient agrees.")
      .def_ro("tensors", &GradcheckReport::tensors)
      .def_prop_ro("passed", &GradcheckReport::passed)
      .def("__bool__", &GradcheckReport::passed)
      .def("__repr__", &GradcheckReport::to_string);
}

}  // namespace

void bind_gradcheck(nb::module_& m) {
  bind_report(m);
  m.def("gradcheck", &check_layer, "layer"_a, "x"_a, "kv"_a = nb::none(), "mask"_a = nb::none(),
        "generator"_a = nb::none(), "call"_a = nb::none(), "projections"_a = 0,
        "Compares the gradients of a float64 copy of the layer with central differences: x, kv and "
        "every\n"
        "parameter. projections: this many random directions instead of every element.");
  m.def("gradcheck", &check_attend, "q"_a, "k"_a, "v"_a, "mask"_a = nb::none(),
        "scale"_a = nb::none(), "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0,
        "engine"_a = "auto", "projections"_a = 0,
        "The same for attend with these arguments, copied to float64.");
}

}  // namespace cephalo::python
