#include "cephalo/effects/beginning.h"

#include <algorithm>
#include <limits>

namespace cephalo {
namespace {

using Entry = Beginning::Entry;

template <typename Holds>
bool any_at(const Changes& changes, dim_t layer, const Holds& holds) {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const Change& c) { return c.layer == layer && holds(c); });
}

template <typename Holds>
bool all_at(const Changes& changes, dim_t layer, const Holds& holds) {
  return !any_at(changes, layer, [&](const Change& c) { return !holds(c); });
}

bool is_stream(const Change& c) {
  return c.section == ModelSection::stream;
}

}  // namespace

bool patches_stream(const Changes& changes, dim_t layer) {
  return any_at(changes, layer, is_stream);
}

bool removes(const Changes& changes, dim_t layer, ModelSection section) {
  return any_at(changes, layer, [&](const Change& c) {
    return c.section == section || c.section == ModelSection::layer;
  });
}

Changes changes_at(const Changes& changes, dim_t layer, ChangeStage stage) {
  Changes found;
  for (const Change& c : changes) {
    if (c.layer == layer && is_stream(c) == (stage == ChangeStage::stream)) found.push_back(c);
  }
  return found;
}

dim_t first_row(const Changes& changes) {
  dim_t first = std::numeric_limits<dim_t>::max();
  for (const Change& c : changes) {
    const dim_t position = c.section == ModelSection::edge ? c.query
                           : is_stream(c)                  ? c.position
                                                           : 0;
    first = std::min(first, std::max<dim_t>(position, 0));
  }
  return first;
}

Beginning beginning_of(const Changes& changes) {
  const dim_t first = first_row(changes);
  Beginning b{.layer = changes.front().layer};
  for (const Change& c : changes) b.layer = std::min(b.layer, c.layer);
  if (patches_stream(changes, b.layer)) {
    b.entry = Entry::resid_pre;
    b.single = all_at(changes, b.layer,
                      [&](const Change& c) { return !is_stream(c) || c.position == first; });
  } else if (removes(changes, b.layer, ModelSection::mlp)) {
    b.entry = Entry::resid_post;
  } else {
    // The next layer takes its other rows from what is kept.
    b.single =
        !patches_stream(changes, b.layer + 1) && all_at(changes, b.layer, [&](const Change& c) {
          return c.section == ModelSection::edge && c.query == first;
        });
  }
  b.whole = std::any_of(changes.begin(), changes.end(), [&](const Change& c) {
    return c.kind == ChangeKind::mean && (c.layer > b.layer || b.entry == Entry::resid_pre);
  });
  return b;
}

}  // namespace cephalo
