#include "cephalo/train/clip.h"

#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

// A list of arrays, or whatever has keys and arrays for them.
double clip_python(const nb::object& gradients, double max_norm) {
  const bool named = nb::hasattr(gradients, "keys");
  std::vector<ArrayOut> arrays;
  for (const nb::handle item : named ? gradients.attr("keys")() : gradients) {
    const nb::object array = named ? gradients[item] : nb::borrow(item);
    arrays.emplace_back(array, "clip_gradient_norm", "a gradient");
  }
  std::vector<MutableTensorView> views;
  for (const ArrayOut& array : arrays) views.push_back(array.view());
  const WithoutGil released;
  return clip_gradient_norm(views, max_norm);
}

}  // namespace

void bind_clip(nb::module_& m) {
  m.def("clip_gradient_norm", &clip_python, "gradients"_a, "max_norm"_a,
        "torch.nn.utils.clip_grad_norm_: if the norm of all gradients together exceeds max_norm,\n"
        "each is scaled in place. gradients: a GptGradients, a dict or a list of arrays,\n"
        "float32 or float64. Returns the norm before clipping.");
}

}  // namespace cephalo::python
