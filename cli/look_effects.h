#pragma once

#include <optional>
#include <string>

#include "cephalo/view/effects_report.h"
#include "cli/command.h"

namespace cephalo::cli {

// The flags of look that change parts of the model instead of only looking at them.
class EffectsFlags {
 public:
  void add_to(Command verb);
  bool given() const;  // one of those that ask for an experiment
  // Runs what was asked for, with a bar where it takes long. Ctrl-C ends the work, not the report.
  EffectsReport measure(const LookModel& model, const std::string& text,
                        const LookOptions& look) const;
  // The signal that ended the work early, 0 where none did.
  static int stopped_by();

 private:
  bool effects_ = false, pairs_ = false;
  std::string ablate_, kind_, edges_, reference_;
  std::optional<Flag> ablate_flag_, edges_flag_;
};

}  // namespace cephalo::cli
