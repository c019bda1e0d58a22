#pragma once

#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/spellings.h"
#include "cephalo/core/fail.h"

namespace cephalo::python {

// A tensor that a part of a model consists of, as an array to write to.
template <typename Part>
auto member(Tensor Part::*tensor) {
  return [tensor](nb::handle self) {
    return borrowed_to_python((nb::cast<Part&>(self).*tensor).mutable_view(), self);
  };
}

// part(x), of x's kind
template <typename Part>
auto call_of(const char* name) {
  return [name](const Part& self, const AnyArray& x) {
    const ArrayIn input(x, name, "x");
    Tensor y;
    {
      const WithoutGil released;
      y = self(input);
    }
    return to_python(std::move(y), input.kind());
  };
}

// The types that parts of a model compute in.
inline DType steps_dtype(nb::handle dtype, const char* function) {
  const DType type = dtype_of(dtype, function);
  require_type(type == DType::f32 || type == DType::f64,
               "{}: parameters cannot be {}; float32 or float64 is needed", function, name(type));
  return type;
}

}  // namespace cephalo::python
