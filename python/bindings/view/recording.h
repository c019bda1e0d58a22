#pragma once

#include <memory>
#include <shared_mutex>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/model/gpt.h"
#include "cephalo/core/fail.h"
#include "cephalo/view/recording.h"

namespace cephalo::python {

// A recording with the model that it was made by.
struct RecordedText {
  RecordedText(const nb::object& gpt, const std::vector<std::int64_t>& ids, int threads)
      : model_object(gpt),
        model(nb::cast<const Model&>(gpt)),
        recording(made(model, ids, threads)),
        version(model.gpt.version()) {}

  static std::shared_ptr<const Recording> made(const Model& model,
                                               const std::vector<std::int64_t>& ids, int threads) {
    return reading(model, [&](const Gpt& gpt) {
      return std::make_shared<const Recording>(gpt, ids, threads);
    });
  }

  nb::object model_object;
  const Model& model;
  std::shared_ptr<const Recording> recording;
  std::uint64_t version;
};

// Something that is computed from a recording, without the GIL.
template <typename Ask>
auto asked(const RecordedText& self, Ask ask) {
  const WithoutGil released;
  return ask(*self.recording);
}

// The same for what reads the model's parameters, too: they must still be those of the recording.
template <typename Ask>
auto asked_with_model(const RecordedText& self, Ask ask) {
  return reading(self.model, [&](const Gpt& gpt) {
    require(gpt.version() == self.version,
            "Recording: the model has changed since (version {} then, {} now)", self.version,
            gpt.version());
    return ask(*self.recording);
  });
}

}  // namespace cephalo::python
