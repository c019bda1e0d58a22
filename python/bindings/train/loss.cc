#include "cephalo/train/loss.h"

#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

double cross_entropy_python(const AnyArray& logits, const nb::object& targets,
                            const std::optional<AnyArray>& dlogits, std::int64_t ignore_index) {
  const ArrayIn numbers(logits, "cross_entropy", "logits");
  const IdsIn wanted(targets, "cross_entropy", "targets");
  const auto back =
      dlogits ? std::optional<ArrayOut>(std::in_place, *dlogits, "cross_entropy", "dlogits")
              : std::nullopt;
  const WithoutGil released;
  return cross_entropy(numbers, wanted, back ? back->view() : MutableTensorView(), ignore_index);
}

}  // namespace

void bind_loss(nb::module_& m) {
  m.def("cross_entropy", &cross_entropy_python, "logits"_a, "targets"_a, "dlogits"_a = nb::none(),
        "ignore_index"_a = kIgnoreTarget,
        R"(The mean of -log softmax(logits)[target] over the rows whose target is not ignore_index.

logits: [rows, vocab_size], float32 or float64. targets: [rows], the id that should be the largest.
dlogits: an array like logits for its gradient, logits itself, or None.)");
}

}  // namespace cephalo::python
