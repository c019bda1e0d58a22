#pragma once

// Inside the library only.
#include <compare>

#include "cephalo/effects/change.h"

namespace cephalo {

// Where an experiment leaves the kept pass: a matter of the experiment alone, so that its bits do
// not depend on its company.
struct Beginning {
  enum class Entry {
    resid_pre,  // of `layer`
    resid_mid,  // of `layer`: its attention is known
    resid_post  // of `layer`, whose MLP adds nothing
  };
  dim_t layer = 0;
  Entry entry = Entry::resid_mid;
  bool single = false;  // in this layer its first row is the only one that changes
  bool whole = false;   // a mean over all positions is taken on the way: no row may be left out
  auto operator<=>(const Beginning&) const = default;
};
Beginning beginning_of(const Changes& changes);  // of at least one
dim_t first_row(const Changes& changes);         // rows before it stay as they are

// Of one layer: those of the stream before its attention, or those after it.
enum class ChangeStage { stream, rest };
Changes changes_at(const Changes& changes, dim_t layer, ChangeStage stage);

// Is what this part of a layer, attention or mlp, adds to the stream gone?
bool removes(const Changes& changes, dim_t layer, ModelSection section);
bool patches_stream(const Changes& changes, dim_t layer);

}  // namespace cephalo
