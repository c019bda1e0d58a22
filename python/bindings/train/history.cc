#include "cephalo/train/history.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {

void bind_history(nb::module_& m) {
  nb::class_<StepRecord>(m, "StepRecord", "What one step of training was like.")
      .def_ro("step", &StepRecord::step, "1 for the first")
      .def_ro("loss", &StepRecord::loss, "mean over the tokens of the step, before its update")
      .def_ro("learning_rate", &StepRecord::learning_rate)
      .def_ro("gradient_norm", &StepRecord::gradient_norm, "before clipping")
      .def_ro("skipped", &StepRecord::skipped, "loss or norm was not finite: nothing was changed")
      .def("__repr__", [](const StepRecord& r) {
        return format_text(
            "StepRecord(step={}, loss={:.6g}, learning_rate={:.6g}, "
            "gradient_norm={:.6g}, skipped={})",
            r.step, r.loss, r.learning_rate, r.gradient_norm, r.skipped ? "True" : "False");
      });
  nb::class_<ValidationRecord>(m, "ValidationRecord", "The loss on rows kept out of training.")
      .def_ro("step", &ValidationRecord::step)
      .def_ro("loss", &ValidationRecord::loss)
      .def("__repr__", [](const ValidationRecord& r) {
        return format_text("ValidationRecord(step={}, loss={:.6g})", r.step, r.loss);
      });
  nb::class_<TrainingHistory>(m, "TrainingHistory", "What a run has seen so far.")
      .def_ro("steps", &TrainingHistory::steps)
      .def_ro("validation", &TrainingHistory::validation)
      .def("csv", &loss_csv,
           "\"step,loss,learning_rate,gradient_norm,skipped,validation_loss\", a line for each "
           "step.")
      .def("svg", &loss_svg, "title"_a = "loss", "The two curves as a self-contained picture.")
      .def("_repr_html_", [](const TrainingHistory& h) { return loss_svg(h, "loss"); })
      .def("__repr__", [](const TrainingHistory& h) {
        return format_text("TrainingHistory({} steps, {} validations)", h.steps.size(),
                           h.validation.size());
      });
}

}  // namespace cephalo::python
