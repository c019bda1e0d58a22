#include "cephalo/learn/quiz.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

std::vector<QuizQuestion> quiz_python(std::uint64_t seed) {
  const WithoutGil released;
  return quiz(seed);
}

std::vector<std::string> texts(const QuizQuestion& question) {
  std::vector<std::string> all;
  for (const QuizChoice& choice : question.choices) all.push_back(choice.text);
  return all;
}

}  // namespace

void bind_quiz(nb::module_& m) {
  nb::class_<QuizReply>(m, "QuizReply",
                        "What is said about an answer: true if right; prints as sentences.")
      .def_ro("right", &QuizReply::right)
      .def_ro("text", &QuizReply::text)
      .def("__bool__", [](const QuizReply& r) { return r.right; })
      .def("__repr__", [](const QuizReply& r) { return r.text; });
  nb::class_<QuizQuestion>(m, "QuizQuestion", "One question: topic, text and choices.")
      .def_ro("topic", &QuizQuestion::topic)
      .def_ro("text", &QuizQuestion::text)
      .def_prop_ro("choices", &texts)
      .def(
          "answer",
          [](const QuizQuestion& q, const std::string& letter) {
            return quiz_reply(q, quiz_choice(q, letter));
          },
          "letter"_a, "-> QuizReply: right or wrong, and the numbers that were computed.")
      .def("__repr__", [](const QuizQuestion& q) {
        std::string text = q.text;
        for (std::size_t k = 0; k < q.choices.size(); ++k) {
          text += std::string("\n  ") + quiz_letter(k) + ") " + q.choices[k].text;
        }
        return text;
      });
  m.def("_quiz", &quiz_python, "seed"_a);
}

}  // namespace cephalo::python
