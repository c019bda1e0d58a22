#include "cephalo/text/bpe.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

using Path = std::filesystem::path;
using Strings = std::vector<std::string>;

void construct(Bpe* self, const nb::list& tokens, std::vector<Bpe::Merge> merges) {
  Strings bytes;
  for (const nb::handle token : tokens) bytes.push_back(TextIn(token, "Bpe", "a token").copy());
  const WithoutGil released;
  new (self) Bpe(std::move(bytes), std::move(merges));
}

Bpe load(const Path& folder, std::int64_t model_vocab_size) {
  const WithoutGil released;
  return Bpe::load(folder.string(), model_vocab_size);
}

Bpe load_files(const Path& vocab, const Path& merges, std::int64_t model_vocab_size) {
  const WithoutGil released;
  return Bpe::load(vocab.string(), merges.string(), model_vocab_size);
}

Bpe parse(const nb::object& vocab_json, const nb::object& merges_txt,
          std::int64_t model_vocab_size) {
  const TextIn vocab(vocab_json, "Bpe.parse", "vocab_json");
  const TextIn merges(merges_txt, "Bpe.parse", "merges_txt");
  const WithoutGil released;
  return Bpe::parse(vocab.view(), merges.view(), model_vocab_size);
}

void save(const Bpe& self, const Path& folder, bool replace) {
  const WithoutGil released;
  self.save(folder.string(), replace);
}

nb::list encode(const Bpe& self, const nb::object& text, const Strings& allowed_special) {
  const TextIn letters(text, "Bpe.encode", "text");
  std::vector<TokenId> ids;
  {
    const WithoutGil released;
    ids = self.encode(letters.view(), allowed_special);
  }
  return to_list(ids);
}

std::string bytes_of(const Bpe& self, const nb::object& ids) {
  const std::vector<TokenId> tokens = IdsIn(ids, "Bpe.decode", "ids").tokens();
  const WithoutGil released;
  return self.decode(tokens);
}

nb::bytes token(const Bpe& self, std::int64_t id) {
  if (id < 0 || id >= self.vocab_size()) {
    throw nb::index_error(
        format_text("Bpe: id {} is outside the vocabulary of {}", id, self.vocab_size()).c_str());
  }
  return to_bytes(self.token(static_cast<TokenId>(id)));
}

nb::list special_tokens(const Bpe& self) {
  nb::list list;
  for (const std::string& token : self.special_tokens()) list.append(to_str(token));
  return list;
}

std::string text_of(const Bpe& self) {
  return format_text("Bpe(vocab_size={}, merges={}, special_tokens={})", self.vocab_size(),
                     self.merges().size(), nb::repr(special_tokens(self)).c_str());
}

void bind_files(nb::class_<Bpe>& bpe) {
  bpe.def_static("load", &load, "folder"_a, "model_vocab_size"_a = 0,
                 "From a folder with vocab.json and merges.txt, or encoder.json and vocab.bpe.\n"
                 "model_vocab_size: larger ids are an error; 0: no limit.")
      .def_static("load", &load_files, "vocab"_a, "merges"_a, "model_vocab_size"_a = 0,
                  "The same from two files with any names.")
      .def_static("parse", &parse, "vocab_json"_a, "merges_txt"_a, "model_vocab_size"_a = 0,
                  "The same from the contents of the two files.")
      .def("save", &save, "folder"_a, "replace"_a = false,
           "Writes vocab.json and merges.txt into a folder, creating it if needed.")
      .def("vocab_json", &Bpe::vocab_json, "What save writes as vocab.json.")
      .def("merges_txt", &Bpe::merges_txt, "What save writes as merges.txt.");
}

}  // namespace

void bind_bpe(nb::module_& m) {
  nb::class_<Bpe> bpe(m, "Bpe",
                      "Byte-level BPE, the tokenizer of GPT-2: the same ids as Hugging Face's "
                      "tokenizers from the same files. Any number of threads may use one.");
  bpe.def(
      "__init__", &construct, "tokens"_a, "merges"_a,
      nb::sig("def __init__(self, tokens: list[bytes], merges: list[tuple[int, int]]) -> None"),
      "tokens: the bytes of each id, every single byte among them; merges: pairs of ids in the\n"
      "order in which they are joined.");
  bind_files(bpe);
  bpe.def("encode", &encode, "text"_a, "allowed_special"_a = Strings(),
          nb::sig("def encode(self, text: str | bytes, allowed_special: collections.abc.Sequence"
                  "[str] = ()) -> list[int]"),
          "text: str, or any bytes -> ids. allowed_special: special tokens that become their ids; "
          "everything else\n"
          "is ordinary text, whatever it looks like.")
      .def(
          "decode",
          [](const Bpe& self, const nb::object& ids, const std::string& errors) {
            return to_str(bytes_of(self, ids), errors.c_str());
          },
          "ids"_a, "errors"_a = "replace",
          "ids -> str. errors: how to treat bytes that are not UTF-8, as in bytes.decode.")
      .def(
          "decode_bytes",
          [](const Bpe& self, const nb::object& ids) { return to_bytes(bytes_of(self, ids)); },
          "ids"_a, "ids -> exactly the bytes that were encoded.")
      .def("token", &token, "id"_a, "The bytes of one token.")
      .def(
          "find",
          [](const Bpe& self, const nb::object& bytes) {
            return self.find(TextIn(bytes, "Bpe.find", "token").view());
          },
          "token"_a, nb::sig("def find(self, token: str | bytes) -> int | None"),
          "The id of these bytes, or None.")
      .def_prop_ro("vocab_size", &Bpe::vocab_size)
      .def("__len__", &Bpe::vocab_size)
      .def_prop_ro(
          "merges",
          [](const Bpe& b) {
            return std::vector<Bpe::Merge>(b.merges().begin(), b.merges().end());
          },
          "Pairs of ids, in the order in which they are joined.")
      .def_prop_ro("special_tokens", &special_tokens,
                   nb::sig("def special_tokens(self) -> list[str]"), "by id")
      .def_prop_ro(
          "fingerprint",
          [](const Bpe& b) {
            const Bpe::Fingerprint f = b.fingerprint();
            return to_bytes({reinterpret_cast<const char*>(f.data()), f.size()});
          },
          "16 bytes, the same for tokenizers with the same ids.")
      .def("__repr__", &text_of);
}

}  // namespace cephalo::python
