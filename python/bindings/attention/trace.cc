#include "bindings/attention/trace.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/view/split_picture.h"

namespace cephalo::python {
namespace {

nb::tuple tuple_of(const Dims& dims) {
  nb::list list;
  for (const dim_t dim : dims) list.append(dim);
  return nb::tuple(list);
}

// sizes: batch (0: none), q_tokens, kv_tokens, num_heads, num_kv_heads, head_dim, v_dim
using SplitSizes = std::array<dim_t, 7>;
HeadSplit split_of(const SplitSizes& sizes, std::vector<std::string> tokens) {
  const auto [batch, q_tokens, kv_tokens, num_heads, num_kv_heads, head_dim, v_dim] = sizes;
  return {batch, q_tokens, kv_tokens, num_heads, num_kv_heads, head_dim, v_dim, std::move(tokens)};
}

}  // namespace

void bind_trace(nb::module_& m) {
  m.def("_split_text", [](const SplitSizes& sizes, std::vector<std::string> tokens) {
    return draw_split(split_of(sizes, std::move(tokens)), {});
  });
  m.def("_split_svg", [](const SplitSizes& sizes, std::vector<std::string> tokens, bool page) {
    return split_svg(split_of(sizes, std::move(tokens)), page ? SvgPlace::page : SvgPlace::file);
  });
}

nb::dict trace_dict(Trace&& trace, Kind kind) {
  const nb::module_ types = nb::module_::import_("cephalo._trace");
  nb::list steps;
  for (Step& step : trace.steps) {
    steps.append(types.attr("Step")(step.number, step.name, step.key, step.formula,
                                    tuple_of(step.shape), tuple_of(step.strides), step.moved,
                                    step.note, to_python(std::move(step.value), kind)));
  }
  return nb::borrow<nb::dict>(types.attr("Trace")(trace.title, trace.mask_first, steps));
}

}  // namespace cephalo::python
