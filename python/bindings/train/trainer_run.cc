// Trainer.run: functions of the caller's between steps, Ctrl-C, and a checkpoint before it ends.
#include <nanobind/stl/filesystem.h>

#include <exception>
#include <filesystem>
#include <optional>

#include "bindings/arrays/callback.h"
#include "bindings/arrays/gil.h"
#include "bindings/train/trainer.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Trainer.run";

// folder=: None, a path, or a RunFolder.
class FolderArgument {
 public:
  explicit FolderArgument(const nb::object& folder) {
    if (folder.is_none()) return;
    if (nb::isinstance<RunFolder>(folder)) {
      used_ = nb::cast<RunFolder*>(folder);
      return;
    }
    std::filesystem::path path;
    if (!nb::try_cast(folder, path)) {
      throw nb::type_error("Trainer.run: folder must be a path, a RunFolder or None");
    }
    used_ = &own_.emplace(path.string());
  }
  RunFolder* get() const { return used_; }

 private:
  std::optional<RunFolder> own_;
  RunFolder* used_ = nullptr;
};

// Python's functions as the trainer's; all of them run while nobody holds the trainer.
class RunCalls {
 public:
  RunCalls(const nb::object& on_step, const nb::object& on_validation, const nb::object& on_saved,
           const nb::object& stop)
      : on_step_(on_step, kName, "on_step"),
        on_validation_(on_validation, kName, "on_validation"),
        on_saved_(on_saved, kName, "on_saved"),
        stop_(stop, kName, "stop") {}

  void install(RunOptions& options, Training& turn) {
    if (on_step_.given()) {
      options.on_step = [&](const StepRecord& record) {
        while_open(turn, [&] { on_step_(record); });
      };
    }
    if (on_validation_.given()) {
      options.on_validation = [&](const ValidationRecord& record) {
        while_open(turn, [&] { on_validation_(record); });
      };
    }
    if (on_saved_.given()) {
      options.on_saved = [&](std::int64_t step) { while_open(turn, [&] { on_saved_(step); }); };
    }
    options.stop = [&] {
      bool stops = false;
      while_open(turn, [&] { stops = asked_to_stop(); });
      return stops;
    };
  }

  void rethrow() const {
    if (interrupt_) std::rethrow_exception(interrupt_);
  }

 private:
  static bool is_true(const nb::object& said) {
    const int truth = PyObject_IsTrue(said.ptr());
    if (truth < 0) throw nb::python_error();  // an array of several numbers, say
    return truth == 1;
  }

  // Ctrl-C ends the run as stop() does, with a checkpoint; KeyboardInterrupt comes after it.
  bool asked_to_stop() {
    const WithGil held;
    try {
      check_signals();
    } catch (const nb::python_error&) {
      interrupt_ = std::current_exception();
      return true;
    }
    bool stops = false;
    if (stop_.given()) {
      stop_.call([&](const nb::object& said) { stops = is_true(said); });
    }
    return stops;
  }

  Callback on_step_, on_validation_, on_saved_, stop_;
  std::exception_ptr interrupt_;
};

bool is_interrupt(const nb::python_error& error) {
  const WithGil held;
  return error.matches(PyExc_KeyboardInterrupt);
}

}  // namespace

bool run_trainer(TrainerOfGpt& self, const nb::object& folder, std::int64_t save_every,
                 const nb::object& validation, std::int64_t validation_rows,
                 std::int64_t validate_every, const nb::object& on_step,
                 const nb::object& on_validation, const nb::object& on_saved,
                 const nb::object& stop) {
  const FolderArgument where(folder);
  const Rows rows = validation.is_none() ? Rows() : Rows(validation, "validation");
  RunCalls calls(on_step, on_validation, on_saved, stop);
  RunOptions options{.folder = where.get(),
                     .save_every = save_every,
                     .validation_rows = validation_rows,
                     .validate_every = validate_every};
  if (!validation.is_none()) options.validation = rows.source();

  const WithoutGil released;
  Training turn(self);
  calls.install(options, turn);
  bool finished = false;
  try {
    finished = self.trainer.run(options);
  } catch (const nb::python_error& error) {
    // Ctrl-C inside of a function of the caller's: the steps that were taken are not lost.
    if (where.get() != nullptr && is_interrupt(error)) {
      self.trainer.save(where.get()->checkpoint(self.trainer.steps_done()));
      where.get()->saved(self.trainer.steps_done());
    }
    throw;
  }
  calls.rethrow();
  return finished;
}

}  // namespace cephalo::python
