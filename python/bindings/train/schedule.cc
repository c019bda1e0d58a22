#include "cephalo/train/schedule.h"

#include <nanobind/stl/string.h>

#include <new>

#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {

void bind_schedule(nb::module_& m) {
  const Schedule defaults;
  nb::class_<Schedule>(m, "Schedule",
                       "The learning rate over a run: a straight rise, then half a cosine down to "
                       "a floor.")
      .def(
          "__init__",
          [](Schedule* self, double learning_rate, std::int64_t warmup, std::int64_t steps,
             double min_lr_share) {
            new (self) Schedule{learning_rate, warmup, steps, min_lr_share};
          },
          "learning_rate"_a = defaults.learning_rate, "warmup"_a = defaults.warmup,
          "steps"_a = defaults.steps, "min_lr_share"_a = defaults.min_lr_share,
          "learning_rate: the peak. warmup: steps of the rise. steps: of the whole run.\n"
          "min_lr_share: the floor, as a share of learning_rate.")
      .def_rw("learning_rate", &Schedule::learning_rate)
      .def_rw("warmup", &Schedule::warmup)
      .def_rw("steps", &Schedule::steps)
      .def_rw("min_lr_share", &Schedule::min_lr_share)
      .def("__repr__", [](const Schedule& s) {
        return format_text("Schedule(learning_rate={}, warmup={}, steps={}, min_lr_share={})",
                           s.learning_rate, s.warmup, s.steps, s.min_lr_share);
      });
  m.def("learning_rate_at", &learning_rate_at, "schedule"_a, "step"_a,
        "The learning rate of a step, counted from 0.");
}

}  // namespace cephalo::python
