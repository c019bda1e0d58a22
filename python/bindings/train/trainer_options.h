#pragma once

#include <nanobind/nanobind.h>

#include "cephalo/train/trainer.h"

namespace cephalo::python {

// The options of Trainer(model, rows, **options).
nanobind::dict options_dict(const TrainerOptions& options);

// Those that are given, in place of the ones that are there; a TypeError names what is unknown or
// of another type.
void change_options(TrainerOptions& options, const nanobind::dict& given, const char* function);

}  // namespace cephalo::python
