// Binds cephalo/text/words.h; words.cc has the words of arguments.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/spellings.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"
#include "cephalo/text/words.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "WordTokenizer";

nb::list strings(const std::vector<std::string>& words) {
  nb::list list;
  for (const std::string& word : words) list.append(to_str(word));
  return list;
}

nb::list split(const nb::object& text) {
  return strings(split_words(TextIn(text, "split_words", "text").view()));
}

nb::list encode(const WordTokenizer& self, const nb::object& text) {
  const TextIn words(text, kName, "text");
  return to_list(self.encode(words.view()));
}

nb::str decode(const WordTokenizer& self, const nb::object& ids) {
  return to_str(self.decode(IdsIn(ids, kName, "ids").tokens()));
}

}  // namespace

void bind_word_tokenizer(nb::module_& m) {
  m.def("split_words", &split, "text"_a, nb::sig("def split_words(text: str | bytes) -> list[str]"),
        "Words and punctuation: split at white space and around , . : ; ? _ ! \" ( ) ' and --,\n"
        "which become separate pieces.");
  nb::class_<WordTokenizer>(
      m, kName,
      "The book's two word tokenizers. v1 knows only the words of its text; v2 adds <|endoftext|> "
      "and <|unk|> as the last two, and reads every unknown word as <|unk|>.")
      .def(
          "__init__",
          [](WordTokenizer* self, const nb::object& text, const std::string& version) {
            new (self) WordTokenizer(TextIn(text, kName, "text").view(), version_of(version));
          },
          "text"_a, "version"_a = "v2",
          nb::sig("def __init__(self, text: str | bytes, version: str = \"v2\") -> None"),
          "The vocabulary is that of the text, sorted. version: \"v1\" or \"v2\".")
      .def("encode", &encode, "text"_a, nb::sig("def encode(self, text: str | bytes) -> list[int]"),
           "text -> ids")
      .def("decode", &decode, "ids"_a,
           "ids -> words separated by spaces, with none before punctuation.")
      .def_prop_ro("vocab_size", &WordTokenizer::vocab_size)
      .def_prop_ro(
          "words", [](const WordTokenizer& t) { return strings(t.words()); }, "by id")
      .def("__repr__", [](const WordTokenizer& t) {
        return format_text("{}(vocab_size={})", kName, t.vocab_size());
      });
}

}  // namespace cephalo::python
