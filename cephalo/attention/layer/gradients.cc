#include "cephalo/attention/layer/gradients.h"

namespace cephalo {

Gradients::Gradients(const ParameterSizes& sizes, Form form, DType dtype, const char* layer)
    : stored_(sizes, form, dtype, layer) {
  zero();
}

void Gradients::zero() {
  for (const NamedParameter& p : stored_.named()) stored_.find(p.name).fill(0.0);
}

}  // namespace cephalo
