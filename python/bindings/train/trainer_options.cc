#include "bindings/train/trainer_options.h"

#include <string>
#include <string_view>

#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

// One list of options for both ways, by the names of Trainer's arguments.
template <typename Options, typename Visit>
void for_options(Options& o, Visit&& visit) {
  visit("schedule", o.schedule);
  visit("batch", o.batch);
  visit("context_length", o.context_length);
  visit("accumulate", o.accumulate);
  visit("shards", o.shards);
  visit("beta1", o.beta1);
  visit("beta2", o.beta2);
  visit("eps", o.eps);
  visit("weight_decay", o.weight_decay);
  visit("clip", o.clip);
  visit("max_skipped", o.max_skipped);
}

}  // namespace

nb::dict options_dict(const TrainerOptions& options) {
  nb::dict named;
  for_options(options, [&](const char* option, const auto& value) { named[option] = value; });
  return named;
}

void change_options(TrainerOptions& options, const nb::dict& given, const char* function) {
  for (const auto [key, value] : given) {
    const std::string wanted = nb::str(key).c_str();
    bool known = false;
    bool fits = true;
    for_options(options, [&, from = nb::handle(value)](const char* option, auto& to) {
      if (wanted != option) return;
      known = true;
      fits = nb::try_cast(from, to);
    });
    if (!known) {
      throw nb::type_error(format_text("{}: a Trainer has no option {}", function, wanted).c_str());
    }
    if (!fits) {
      throw nb::type_error(format_text("{}: {} cannot be a {}", function, wanted,
                                       nb::type_name(value.type()).c_str())
                               .c_str());
    }
  }
}

}  // namespace cephalo::python
