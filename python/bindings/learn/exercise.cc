#include "cephalo/learn/exercise.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/arrays/arrays.h"
#include "bindings/bindings.h"
#include "cephalo/learn/exercise_help.h"

namespace cephalo::python {
namespace {

// Python's dict of the exercise: sizes are numbers, the rest are arrays.
nb::dict exercise_dict() {
  Exercise e = exercise();
  const Kind kind = kind_without_caller(DType::f32);
  nb::dict named;
  named["x"] = to_python(std::move(e.x), kind);
  named["W_query"] = to_python(std::move(e.W_query), kind);
  named["W_key"] = to_python(std::move(e.W_key), kind);
  named["W_value"] = to_python(std::move(e.W_value), kind);
  named["out_weight"] = to_python(std::move(e.out_weight), kind);
  named["out_bias"] = to_python(std::move(e.out_bias), kind);
  named["batch"] = e.batch;
  named["tokens"] = e.tokens;
  named["d_in"] = e.d_in;
  named["d_out"] = e.d_out;
  named["num_heads"] = e.num_heads;
  named["head_dim"] = e.head_dim;
  named["seed"] = e.seed;
  return named;
}

// A gap that is still a gap (... or None) is an answer too: it is told what to do.
Verdict check_python(const std::string& step, const AnyArray& array) {
  if (array.is_none() || array.is(nb::ellipsis())) return check(step, {});
  const ArrayIn answer(array, "check", "array");
  return check(step, answer);
}

// (lines of Python, the answer, both in words)
nb::tuple solution_tuple(const std::string& step) {
  ExerciseSolution solution = exercise_solution(step);
  const std::string text = to_text(step, solution);
  return nb::make_tuple(solution.python,
                        to_python(std::move(solution.answer), kind_without_caller(DType::f32)),
                        text);
}

}  // namespace

void bind_exercise(nb::module_& m) {
  nb::class_<Verdict>(m, "Verdict", "What check says: true if right; prints as a sentence.")
      .def_ro("right", &Verdict::right)
      .def_ro("text", &Verdict::text)
      .def("__bool__", [](const Verdict& v) { return v.right; })
      .def("__repr__", [](const Verdict& v) { return v.text; });
  m.def("exercise", &exercise_dict);
  m.def("_exercise_hints", &exercise_hints, "step"_a);
  m.def("_exercise_solution", &solution_tuple, "step"_a);
  m.def("check", &check_python, "step"_a, "array"_a = nb::none(),
        R"(Is this array the right answer for that step of cephalo.exercise()?

Steps: project (q), split, transpose, scores, mask, softmax, values, concat, output. The verdict says that it
is right and what comes next, or which axis or which mistake makes it wrong; without an array, the task.)");
}

}  // namespace cephalo::python
