// Passes under switches as C functions. There may be two at a time: 0, which is shown, and 1, which
// measures one head after the other meanwhile.
#include <iterator>
#include <memory>
#include <utility>

#include "cephalo/core/fail.h"
#include "web/engine/exports.h"
#include "web/engine/session.h"
#include "web/engine/switched_pass.h"

namespace {

using namespace cephalo::page;
using cephalo::dim_t;
using cephalo::Json;

std::unique_ptr<SwitchedPass> passes[2];

SwitchedPass& pass_of(int which) {
  cephalo::require(passes[which] != nullptr, "page: no pass under switches was started");
  return *passes[which];
}

// Six numbers a head: layer, head, is it scaled, temperature, keys, and what off means: 0 it is
// not off, 1 zero, 2 mean, 3 uniform.
std::vector<HeadSwitch> switches_of(const double* fields, std::size_t heads) {
  using cephalo::ChangeKind;
  constexpr ChangeKind kOff[] = {ChangeKind::zero, ChangeKind::mean, ChangeKind::uniform};
  std::vector<HeadSwitch> switches;
  for (; heads > 0; --heads, fields += 6) {
    HeadSwitch s{.layer = static_cast<dim_t>(fields[0]),
                 .head = static_cast<dim_t>(fields[1]),
                 .scaled = fields[2] != 0.0,
                 .temperature = fields[3],
                 .keys = static_cast<dim_t>(fields[4])};
    const auto off = static_cast<int>(fields[5]);
    cephalo::require(0 <= off && off <= std::ssize(kOff), "page: a head cannot be off by {}", off);
    if (off > 0) s.off = kOff[off - 1];
    switches.push_back(s);
  }
  return switches;
}

}  // namespace

extern "C" {

// last_only: no more than the prediction of the next token is wanted
int EXPORT(engine_switch)(int which, const double* heads, std::size_t count, int last_only) {
  return guarded([&] {
    passes[which] = std::make_unique<SwitchedPass>(loaded().model_steps(), loaded().text_pass(),
                                                   switches_of(heads, count),
                                                   last_only != 0 ? ReadRows::last : ReadRows::all);
    return 0;
  });
}

// -> how many layers are left
int EXPORT(engine_switch_advance)(int which) {
  return guarded([&] { return static_cast<int>(pass_of(which).advance()); });
}

// {"predictions", "trained", "divergence"}: the likeliest next tokens, how likely the trained
// model's have become, and how far the prediction moved
int EXPORT(engine_switch_report)(int which, int top) {
  return guarded([&] {
    const cephalo::NextToken now = pass_of(which).next();
    const cephalo::NextToken before = pass_of(which).next_as_trained();
    const auto json = [&](const std::vector<cephalo::TokenProbability>& tokens) {
      Json all = Json::array();
      for (const cephalo::TokenProbability& each : tokens) {
        Json token = loaded().token_json(each.id);
        token["probability"] = now.probability(each.id);
        all.push_back(std::move(token));
      }
      return all;
    };
    text = Json({{"predictions", json(now.top(top))},
                 {"trained", json(before.top(top))},
                 {"divergence", before.divergence_to(now)}})
               .dump();
    return 0;
  });
}

int EXPORT(engine_switch_weights)(int layer) {
  return guarded([&] {
    put_numbers(pass_of(0).weights(layer));
    return 0;
  });
}

// Two numbers a row: how far its prediction moved, and the change of ln P of the token that follows
int EXPORT(engine_switch_changes)(int first, int rows) {
  return guarded([&] {
    numbers.clear();
    for (const RowChange& row : pass_of(0).changes(first, rows)) {
      numbers.push_back(static_cast<float>(row.divergence));
      numbers.push_back(static_cast<float>(row.log_probability));
    }
    return 0;
  });
}

}  // extern "C"
