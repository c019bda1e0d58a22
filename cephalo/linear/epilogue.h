#pragma once

#include "cephalo/core/tensor.h"
#include "cephalo/linear/rotation.h"

namespace cephalo {

// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), or ½ x (1 + erf(x / √2)), which the former is near to.
enum class Gelu { tanh, erf };

// What becomes of a product's rows before they leave the cache, or a device's registers. A value
// and not a function, so that every device can have a kernel for it. A bias is not listed: it
// belongs to the matrix. All but `none` want a result of the product's own type, its rows side by
// side.
struct Epilogue {
  enum class Kind {
    none,       // out = product
    add,        // out += product; the chain begins with what is there
    gelu,       // out = product, active = gelu(out)
    gelu_back,  // out = product · gelu'(hidden)
    rotate,     // out = product, and heads in it turned
  };
  Kind kind = Kind::none;
  Gelu form = Gelu::tanh;
  MutableTensorView active = {};       // gelu: [rows, width], dense; out itself will do
  TensorView hidden = {};              // gelu_back: [rows, width], dense
  const Rotation* rotation = nullptr;  // rotate: its heads lie in out

  static Epilogue add() { return {.kind = Kind::add}; }
  static Epilogue gelu(Gelu form, const MutableTensorView& active) {
    return {.kind = Kind::gelu, .form = form, .active = active};
  }
  static Epilogue gelu_back(Gelu form, const TensorView& hidden) {
    return {.kind = Kind::gelu_back, .form = form, .hidden = hidden};
  }
  static Epilogue rotate(const Rotation& rotation) {
    return {.kind = Kind::rotate, .rotation = &rotation};
  }

  // Does it need whole rows?
  bool works_on_rows() const { return kind != Kind::none && kind != Kind::add; }
};

// On the host: what is left to do for rows [begin, end) of out: [rows, width], which are complete
// and in the cache.
void finish_rows(const Epilogue& epilogue, const MutableTensorView& out, dim_t begin, dim_t end);

}  // namespace cephalo
