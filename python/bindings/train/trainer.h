#pragma once

#include <mutex>

#include "bindings/arrays/arrays.h"
#include "bindings/model/gpt.h"
#include "cephalo/train/trainer.h"

namespace cephalo::python {

// Rows that the library makes, for a trainer and as arrays of that kind.
struct RowsOfRecipe {
  RowSource source;
  dim_t context_length;
  Kind kind;
};

// Where rows come from: Windows, those of a recipe, or a function of the row's number. It keeps
// what it was made from; sources refer to it.
class Rows {
 public:
  Rows() = default;  // none
  Rows(nb::object source, const char* name);
  RowSource source() const;

 private:
  nb::object source_;
};

// A trainer with the model that it changes. Calls take turns; functions of the caller's that are
// told of a step may use both.
struct TrainerOfGpt {
  TrainerOfGpt(const nb::object& gpt, const nb::object& source, const TrainerOptions& options)
      : model_object(gpt),
        model(nb::cast<Model&>(gpt)),
        rows(source, "rows"),
        trainer(model.gpt, rows.source(), options) {}

  nb::object model_object;
  Model& model;
  Rows rows;
  Trainer trainer;
  Turn turn{"Trainer"};
};

// Holds a trainer and its model: ModelLock is that of somebody who changes the model, or reads it.
template <typename ModelLock>
class TrainerTurn {
 public:
  explicit TrainerTurn(TrainerOfGpt& trainer)
      : trainer_(trainer.turn), model_(trainer.model.turn) {}
  void unlock() {
    model_.unlock();
    trainer_.unlock();
  }
  void lock() {
    trainer_.lock();
    model_.lock();
  }

 private:
  std::unique_lock<Turn> trainer_;
  ModelLock model_;
};
using Training = TrainerTurn<std::unique_lock<Turn>>;
using Judging = TrainerTurn<std::shared_lock<Turn>>;

// run(): what it tells, and where it saves.
bool run_trainer(TrainerOfGpt& self, const nb::object& folder, std::int64_t save_every,
                 const nb::object& validation, std::int64_t validation_rows,
                 std::int64_t validate_every, const nb::object& on_step,
                 const nb::object& on_validation, const nb::object& on_saved,
                 const nb::object& stop);

}  // namespace cephalo::python
