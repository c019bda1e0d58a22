#include "bindings/attention/mask.h"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/arrays/refusals.h"
#include "bindings/arrays/spellings.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"
#include "cephalo/mask/mask_text.h"

namespace cephalo::python {
namespace {

PyMask both(const PyMask& a, const PyMask& b) {
  PyMask joined{a.mask & b.mask, a.arrays};
  joined.arrays.insert(joined.arrays.end(), b.arrays.begin(), b.arrays.end());
  return joined;
}

using Part = Mask (*)(const TensorView&);
using PartOfTwo = Mask (*)(const TensorView&, const TensorView&);

PyMask looking_at(Part part, ArrayIn array) {
  PyMask made{part(array), {}};
  made.arrays.push_back(std::move(array));
  return made;
}

// Of arrays that are read at once, unless they are on a GPU.
void keep_there(PyMask& mask, ArrayIn array) {
  if (!array.view().device().is_host()) mask.arrays.push_back(std::move(array));
}
PyMask of_numbers(Part part, ArrayIn array) {
  PyMask made{part(array), {}};
  keep_there(made, std::move(array));
  return made;
}
PyMask of_numbers(PartOfTwo part, ArrayIn first, ArrayIn second) {
  PyMask made{part(first, second), {}};
  keep_there(made, std::move(first));
  keep_there(made, std::move(second));
  return made;
}

// Numbers in a GPU's memory, read when attention is computed there: int32 or int64, of slopes
// float32. Functions that take them are tried before those of lists, which would ask for one number
// after the other.
class GpuNumbers : public nb::object {
  // NOLINTNEXTLINE(readability-redundant-member-init): nanobind wrote it
  NB_OBJECT_DEFAULT(GpuNumbers, nb::object, "typing.Any", GpuNumbers::takes)
  static bool takes(PyObject* object) {
    try {
      return is_on_gpu(object);
    } catch (const nb::python_error&) {
      return false;  // interrupted: whoever is asked next will say so
    }
  }
};

PyMask causal_part(const std::variant<dim_t, std::vector<dim_t>>& prefix) {
  if (const auto* one = std::get_if<dim_t>(&prefix)) return {causal(*one), {}};
  return {causal(std::get<std::vector<dim_t>>(prefix)), {}};
}

PyMask lengths_part(std::vector<dim_t> kv, std::optional<std::vector<dim_t>> q) {
  if (q) return {lengths(std::move(kv), std::move(*q)), {}};
  return {lengths(std::move(kv)), {}};
}

PyMask lengths_there(const GpuNumbers& kv, const std::optional<GpuNumbers>& q) {
  ArrayIn kv_in = ArrayIn::anywhere(kv, "lengths", "kv");
  if (!q) return of_numbers(&lengths_from, std::move(kv_in));
  return of_numbers(&lengths_from, std::move(kv_in), ArrayIn::anywhere(*q, "lengths", "q"));
}

PyMask documents_part(const AnyArray& q_ids, const std::optional<AnyArray>& kv_ids, bool in_order) {
  ArrayIn q = ArrayIn::anywhere(q_ids, "documents", kv_ids ? "q_ids" : "ids");
  if (!kv_ids && !in_order) return of_numbers(&documents, std::move(q));
  ArrayIn kv = ArrayIn::anywhere(kv_ids ? *kv_ids : q_ids, "documents", kv_ids ? "kv_ids" : "ids");
  const PartOfTwo part = in_order ? &documents_in_order : static_cast<PartOfTwo>(&documents);
  return of_numbers(part, std::move(q), std::move(kv));
}

PyMask packed_part(const AnyArray& q_ends, const AnyArray& kv_ends) {
  return of_numbers(&packed_sequences, ArrayIn::anywhere(q_ends, "packed_sequences", "q_ends"),
                    ArrayIn::anywhere(kv_ends, "packed_sequences", "kv_ends"));
}

// tensors: arrays by the names that the text gives them; copied.
PyMask parsed(const std::string& text, const nb::dict& tensors) {
  return {parse_mask(text,
                     [&](const std::string& name) {
                       const nb::str key(name.c_str());
                       if (!tensors.contains(key)) {
                         throw nb::key_error(name.c_str());
                       }
                       return Tensor::copy(ArrayIn(tensors[key], "Mask.parse", name.c_str()));
                     }),
          {}};
}

void bind_parts(nb::module_& m) {
  m.attr("unlimited") = unlimited;
  m.def(
      "positions",
      [](const std::string& align, dim_t offset) -> PyMask {
        return {positions(align_of(align), offset), {}};
      },
      "align"_a = "bottom_right", "offset"_a = 0,
      "The position of query i: p(i) = i + offset, plus kv_tokens - q_tokens if align is "
      "\"bottom_right\".\n"
      "\"top_left\" is PyTorch's alignment.");
  m.def(
      "causal",
      [](const GpuNumbers& prefix) {
        return of_numbers(&causal_from, ArrayIn::anywhere(prefix, "causal", "prefix"));
      },
      "prefix"_a, "prefix: int32 or int64 [batch] on the GPU of q, k and v.");
  m.def("causal", &causal_part, "prefix"_a = 0,
        "Query i sees key j when j <= p(i), or j < prefix (one number, or one per batch).");
  m.def(
      "window",
      [](dim_t left, dim_t right) -> PyMask {
        return {window(left, right), {}};
      },
      "left"_a, "right"_a, "p(i) - left <= j <= p(i) + right; cephalo.unlimited for no bound.");
  m.def(
      "lengths", &lengths_there, "kv"_a, "q"_a = nb::none(),
      "kv, q: int32 or int64 [batch] on the GPU of q, k and v; numbers past the ends count as the "
      "ends.");
  m.def("lengths", &lengths_part, "kv"_a, "q"_a = nb::none(),
        "j < kv[b] and i < q[b]: how many keys and queries of each sequence are real.");
  m.def(
      "documents", &documents_part, "ids"_a, "kv_ids"_a = nb::none(), nb::kw_only(),
      "in_order"_a = false,
      "Equal ids >= 0 see each other. ids: int32 or int64 [tokens] or [batch, tokens]; copied, "
      "unless they are on a GPU.\n"
      "in_order: you know that they never fall, those below 0 last, which makes documents on a GPU "
      "faster.");
  m.def(
      "alibi",
      [](const GpuNumbers& slopes) {
        return of_numbers(&alibi_from, ArrayIn::anywhere(slopes, "alibi", "slopes"));
      },
      "slopes"_a, "slopes: float32 [num_heads] on the GPU of q, k and v.");
  m.def(
      "alibi",
      [](std::vector<float> slopes) -> PyMask {
        return {alibi(std::move(slopes)), {}};
      },
      "slopes"_a, "Adds -slopes[h] * |p(i) - j|; one slope >= 0 per head.");
  m.def("_packed_sequences", &packed_part, "q_ends"_a, "kv_ends"_a,
        "Tokens ends[n] to ends[n + 1] - 1 see each other. ends: int32 or int64 [sequences + 1] on "
        "the GPU of q, k and v.");
  m.def("alibi_slopes", &alibi_slopes, "num_heads"_a, "The slopes of the ALiBi paper.");
}

void bind_arrays_of_masks(nb::module_& m) {
  m.def(
      "keep",
      [](const AnyArray& t) {
        return looking_at([](const TensorView& v) { return keep(v); }, ArrayIn::mask(t, "keep"));
      },
      "t"_a,
      "Visible where t is nonzero. t: bool or integers, [q, k], [heads|1, q|1, k|1] or\n"
      "[batch|1, heads|1, q|1, k|1]; read in place.");
  m.def(
      "drop",
      [](const AnyArray& t) {
        return looking_at([](const TensorView& v) { return drop(v); }, ArrayIn::mask(t, "drop"));
      },
      "t"_a, "Hidden where t is nonzero; shapes as in keep.");
  m.def(
      "bias",
      [](const AnyArray& t) {
        return looking_at([](const TensorView& v) { return bias(v); },
                          ArrayIn::anywhere(t, "bias", "t"));
      },
      "t"_a, "Adds t to the scores; -inf hides. float32 or q's type, shapes as in keep.");
}

}  // namespace

const Mask& mask_of(nb::handle mask, const char* function) {
  static const Mask none;
  if (mask.is_none()) return none;
  if (nb::isinstance<PyMask>(mask)) return nb::cast<const PyMask&>(mask).mask;
  throw nb::type_error(
      format_text("{}: mask is {}; a mask says what it means: causal(), keep(a) where nonzero is "
                  "visible, drop(a) where nonzero is hidden, bias(a) ...",
                  function, with_article(nb::str(mask.type().attr("__name__")).c_str()))
          .c_str());
}

void bind_mask(nb::module_& m) {
  nb::class_<PyMask>(m, "Mask",
                     "Which keys a query may look at: parts joined by &. Parts that hide "
                     "intersect, parts that bias add up.")
      .def("__and__", &both, nb::is_operator())
      .def("__repr__", [](const PyMask& a) { return a.mask.to_string(); })
      .def_static(
          "parse", &parsed, "text"_a, "tensors"_a = nb::dict(),
          "The inverse of repr: \"causal() & window(127, 0)\", or \"none\". keep(\"name\"), "
          "drop, bias\n"
          "and documents refer to arrays in `tensors`, a dict; they are copied.")
      .def(
          "draw",
          [](const PyMask& a, dim_t q_tokens, dim_t kv_tokens, dim_t head, dim_t batch) {
            return a.mask.draw(q_tokens, kv_tokens, head, batch);
          },
          "q_tokens"_a, "kv_tokens"_a, "head"_a = 0, "batch"_a = 0,
          "A picture, a row for each query: # visible, . hidden, + visible with a bias.");
  bind_parts(m);
  bind_arrays_of_masks(m);
}

}  // namespace cephalo::python
