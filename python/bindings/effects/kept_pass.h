#pragma once

#include <memory>
#include <optional>

#include "bindings/arrays/arrays.h"
#include "bindings/model/gpt.h"
#include "cephalo/core/fail.h"
#include "cephalo/effects/kept_pass.h"

namespace cephalo::python {

// A pass with the model that it was made by.
struct PassOfText {
  nb::object model_object;
  const Model& model;
  std::shared_ptr<const KeptPass> pass;
  std::uint64_t version;
};

// Something that is computed from a pass and the model's parameters, without the GIL: they must
// still be those of the pass.
template <typename Ask>
auto asked(const PassOfText& self, Ask ask) {
  return reading(self.model, [&](const Gpt& gpt) {
    require(gpt.version() == self.version,
            "KeptPass: the model has changed since (version {} then, {} now)", self.version,
            gpt.version());
    return ask(*self.pass);
  });
}

// An id, or a str that is one token of the model; an error shows the pieces of any other.
std::int64_t token_of(const Model& model, nb::handle token, const char* function,
                      const char* argument);

// A position that may be counted from the end, as Python's indices are.
dim_t position_of(const PassOfText& self, dim_t position, const char* function);

// A result of a call that brings no array.
inline AnyArray made(Tensor&& tensor) {
  const Kind kind = kind_without_caller(tensor.dtype());
  return to_python(std::move(tensor), kind);
}

void bind_attribution(nb::class_<PassOfText>& pass);
void bind_lens(nb::module_& m, nb::class_<PassOfText>& pass);
void bind_sweep(nb::module_& m, nb::class_<PassOfText>& pass);

}  // namespace cephalo::python
