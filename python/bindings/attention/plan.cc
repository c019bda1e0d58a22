#include "cephalo/attention/plan.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bindings/attention/attend.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

Plan plan_python(const AnyArray& q, const AnyArray& k, const AnyArray& v, const AnyArray& mask,
                 std::optional<double> scale, std::optional<double> softcap, double dropout,
                 bool return_weights, const std::optional<std::string>& return_scores,
                 const std::string& engine, const std::optional<std::string>& require,
                 std::optional<int> threads) {
  AttendOptions options = attend_options(scale, softcap, dropout, 0, threads);
  options.return_weights = return_weights;
  options.return_scores = tap_of(return_scores);
  options.engine = engine_of(engine, "plan");
  options.require = required_engine(require, "plan");
  return plan(ArrayIn::anywhere(q, "plan", "q"), ArrayIn::anywhere(k, "plan", "k"),
              ArrayIn::anywhere(v, "plan", "v"), mask_of(mask, "plan"), options);
}

std::vector<std::pair<std::string, std::string>> refusals(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Plan::Refusal& refusal : plan.refused) {
    all.emplace_back(name(refusal.engine), refusal.reason);
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> other_jobs(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Plan::OtherJob& each : plan.others) all.emplace_back(each.job, name(each.engine));
  return all;
}

}  // namespace

void bind_plan(nb::module_& m) {
  nb::class_<Plan>(m, "Plan", "What a call to attend will do.")
      .def_prop_ro("engine", [](const Plan& p) { return name(p.engine); })
      .def_prop_ro("isa", [](const Plan& p) { return name(p.isa); })
      .def_prop_ro("refused", &refusals, "Engines that cannot do it, each with the reason.")
      .def_prop_ro("others", &other_jobs,
                   "Results besides context and lse, each with the engine that computes it.")
      .def_ro("flops", &Plan::flops)
      .def_ro("bytes", &Plan::bytes)
      .def_ro("scratch", &Plan::scratch)
      .def("__repr__", &Plan::to_string);
  m.def("plan", &plan_python, "q"_a, "k"_a, "v"_a, "mask"_a = nb::none(), "scale"_a = nb::none(),
        "softcap"_a = nb::none(), "dropout"_a = 0.0, "return_weights"_a = false,
        "return_scores"_a = nb::none(), "engine"_a = "auto", "require"_a = nb::none(),
        "threads"_a = nb::none(),
        "What attend would do with these arguments, without doing it: engine, instruction set, "
        "flops, bytes and scratch. Shapes as in attend.");
}

}  // namespace cephalo::python
