#include "bindings/train/trainer.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <string>
#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/bindings.h"
#include "bindings/text/windows.h"
#include "bindings/train/trainer_options.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Trainer";
using Path = std::filesystem::path;

void construct(TrainerOfGpt* self, const nb::object& model, const nb::object& rows,
               const Schedule& schedule, dim_t batch, dim_t context_length, dim_t accumulate,
               dim_t shards, double beta1, double beta2, double eps, double weight_decay,
               double clip, int max_skipped) {
  if (!nb::isinstance<Model>(model)) throw nb::type_error("Trainer: model must be a Gpt");
  const TrainerOptions options{.schedule = schedule,
                               .batch = batch,
                               .context_length = context_length,
                               .accumulate = accumulate,
                               .shards = shards,
                               .beta1 = beta1,
                               .beta2 = beta2,
                               .eps = eps,
                               .weight_decay = weight_decay,
                               .clip = clip,
                               .max_skipped = max_skipped};
  new (self) TrainerOfGpt(model, rows, options);
}

// Something that the trainer does while it has the model for itself.
template <typename Lock, typename Do>
auto in_turn(TrainerOfGpt& self, Do work) {
  const WithoutGil released;
  const Lock turn(self);
  return work(self.trainer);
}

StepRecord step(TrainerOfGpt& self) {
  return in_turn<Training>(self, [](Trainer& t) { return t.step(); });
}

double validation_loss(TrainerOfGpt& self, const nb::object& source, std::int64_t count) {
  const Rows rows(source, "source");
  return in_turn<Judging>(self,
                          [&](Trainer& t) { return t.validation_loss(rows.source(), count); });
}

void save(TrainerOfGpt& self, const Path& path) {
  in_turn<Judging>(self, [&](Trainer& t) {
    t.save(path.string());
    return 0;
  });
}

TrainerOfGpt& load(TrainerOfGpt& self, const Path& path) {
  in_turn<Training>(self, [&](Trainer& t) {
    t.load(path.string());
    return 0;
  });
  return self;
}

// A fact about the trainer, between two steps.
template <typename Ask>
auto fact(Ask ask) {
  return [ask](TrainerOfGpt& self) {
    return in_turn<Judging>(self, [&](Trainer& t) { return ask(t); });
  };
}

nb::dict summary(const Path& path) {
  CheckpointSummary found;
  {
    const WithoutGil released;
    found = read_checkpoint_summary(path.string());
  }
  nb::dict named;
  named["step"] = found.step;
  named["options"] = options_dict(found.options);
  named["isa"] = found.isa;
  named["notes"] = nb::module_::import_("json").attr("loads")(found.notes);
  return named;
}

void bind_files(nb::class_<TrainerOfGpt>& trainer) {
  trainer
      .def("save", &save, "path"_a,
           "Parameters, moments, step, position in the data, schedule, options and history.")
      .def("load", &load, "path"_a, nb::rv_policy::none,
           "Continues from a checkpoint, with its options, as if there had been no interruption: "
           "the\n"
           "same bits on the same instruction set. A checkpoint of another model is an error and "
           "changes\n"
           "nothing.")
      .def(
          "set_notes",
          [](TrainerOfGpt& self, const nb::object& notes) {
            const auto json =
                nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(notes));
            in_turn<Judging>(self, [&](Trainer& t) {
              t.set_notes(json);
              return 0;
            });
          },
          "notes"_a, "Your own dict, saved with the checkpoint; checkpoint_summary returns it.");
}

}  // namespace

Rows::Rows(nb::object source, const char* name) : source_(std::move(source)) {
  if (nb::isinstance<WindowsOfText>(source_) || PyCallable_Check(source_.ptr()) != 0) return;
  throw nb::type_error(
      format_text("{}: {} must be Windows, or a function from a row's number to its ids", kName,
                  name)
          .c_str());
}

RowSource Rows::source() const {
  if (nb::isinstance<RowsOfRecipe>(source_)) {
    return nb::cast<const RowsOfRecipe&>(source_).source;
  }
  if (nb::isinstance<WindowsOfText>(source_)) {
    return [windows = nb::cast<const WindowsOfText&>(source_).windows](
               std::int64_t number, std::span<std::int64_t> ids) { windows->row(number, ids); };
  }
  return [this](std::int64_t number, std::span<std::int64_t> ids) {
    const WithGil held;
    const nb::object made = in_python([&] { return source_(number); });
    const std::vector<std::int64_t> row = IdsIn(made, kName, "a row's ids").list();
    require(row.size() == ids.size(),
            "{}: row {} has {} ids, {} are needed: context_length and one "
            "more",
            kName, number, row.size(), ids.size());
    std::copy(row.begin(), row.end(), ids.begin());
  };
}

void bind_trainer(nb::module_& m) {
  const TrainerOptions d;
  nb::class_<TrainerOfGpt> trainer(
      m, kName,
      "Teaches a Gpt to predict the next token: AdamW, warm-up and cosine, clipping, accumulation. "
      "A step whose loss or gradient is not finite changes nothing.");
  trainer.def(
      "__init__", &construct, "model"_a, "rows"_a, nb::kw_only(), "schedule"_a = d.schedule,
      "batch"_a = d.batch, "context_length"_a = d.context_length, "accumulate"_a = d.accumulate,
      "shards"_a = d.shards, "beta1"_a = d.beta1, "beta2"_a = d.beta2, "eps"_a = d.eps,
      "weight_decay"_a = d.weight_decay, "clip"_a = d.clip, "max_skipped"_a = d.max_skipped,
      R"(model: a Gpt, changed in place. rows: Windows, or rows(number) -> context_length + 1 ids, always
the same for the same number; it must not use the model.

batch: rows of one pass; accumulate: passes whose gradients make one step; shards: parts of a pass, which
are computed side by side and added in a fixed order. context_length: tokens of a row, 0: the model's. weight_decay: of matrices. clip: largest norm of all gradients together; 0: no limit.
max_skipped: this many steps in a row without finite gradients are an error.)");
  trainer.def("step", &step, "One step -> StepRecord.")
      .def(
          "run", &run_trainer, nb::kw_only(), "folder"_a = nb::none(), "save_every"_a = 0,
          "validation"_a = nb::none(), "validation_rows"_a = 0, "validate_every"_a = 0,
          "on_step"_a = nb::none(), "on_validation"_a = nb::none(), "on_saved"_a = nb::none(),
          "stop"_a = nb::none(),
          R"(Trains to the end of the schedule and returns True, or until stop() returns True and returns False.

folder: a path or a RunFolder; a checkpoint goes there before the first step, after the last and after
each save_every. validation: rows kept out of training, given like rows; validation_rows of
them are evaluated after every validate_every steps and after the last.
on_step(StepRecord), on_validation(ValidationRecord), on_saved(step) and stop() are called between
steps and may use model and trainer. Exceptions they raise end the run. So does Ctrl-C: the step is
finished and saved, then KeyboardInterrupt is raised.)")
      .def("validation_loss", &validation_loss, "source"_a, "rows"_a,
           "Mean loss over rows 0 .. rows of a source as the constructor takes it; no dropout.")
      .def(
          "set_steps",
          [](TrainerOfGpt& self, std::int64_t steps) {
            in_turn<Training>(self, [&](Trainer& t) {
              t.set_steps(steps);
              return 0;
            });
          },
          "steps"_a, "Changes the length of the run; the cosine is stretched to fit.")
      .def_prop_ro("steps_done", fact([](const Trainer& t) { return t.steps_done(); }))
      .def_prop_ro(
          "options",
          [](TrainerOfGpt& self) {
            return options_dict(
                in_turn<Judging>(self, [](const Trainer& t) { return t.options(); }));
          },
          nb::sig("def options(self) -> dict[str, typing.Any]"))
      .def_prop_ro("history", fact([](const Trainer& t) { return TrainingHistory(t.history()); }),
                   "Losses, rates and norms so far: a copy.")
      .def_prop_ro(
          "model", [](const TrainerOfGpt& self) { return self.model_object; },
          nb::sig("def model(self) -> Gpt"));
  bind_files(trainer);
  m.def("checkpoint_summary", &summary, "path"_a,
        "What a checkpoint says about itself: a dict of step, options, isa, notes.");
}

}  // namespace cephalo::python
