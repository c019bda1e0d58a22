#include "cephalo/text/token_file.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/callback.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

using Path = std::filesystem::path;

std::shared_ptr<TokenFile> open_file(const Path& path, const Bpe* vocabulary) {
  const WithoutGil released;
  return std::make_shared<TokenFile>(path.string(), vocabulary);
}

// ids begin .. begin + count as int64, as Python cuts lists: what is not there is left out.
AnyArray read(const TokenFile& self, dim_t begin, std::optional<dim_t> count) {
  const dim_t first = std::clamp<dim_t>(begin, 0, self.tokens());
  const dim_t number = std::clamp<dim_t>(count.value_or(self.tokens()), 0, self.tokens() - first);
  std::vector<TokenId> ids(static_cast<std::size_t>(number));
  Tensor wide = Tensor::empty({number}, DType::i64);
  {
    const WithoutGil released;
    self.read(first, ids);
    std::copy(ids.begin(), ids.end(), wide.mutable_data_as<std::int64_t>());
  }
  return to_python(std::move(wide), kind_without_caller(DType::i64));
}

dim_t write(const Bpe& bpe, const std::vector<Path>& texts, const Path& path,
            std::optional<TokenId> before_each_file, std::vector<std::string> allowed_special,
            bool replace, const nb::object& progress) {
  const Callback told(progress, "write_token_file", "progress");
  TokenFileOptions options{.before_each_file = before_each_file,
                           .allowed_special = std::move(allowed_special),
                           .replace = replace,
                           .progress = progress_of(told)};
  std::vector<std::string> names;
  for (const Path& text : texts) names.push_back(text.string());
  const WithoutGil released;
  return write_token_file(bpe, names, path.string(), options);
}

}  // namespace

void bind_token_file(nb::module_& m) {
  nb::class_<TokenFile>(m, "TokenFile",
                        "A corpus as token ids on disk, from which windows are read as needed. "
                        "Made by write_token_file.")
      .def(nb::new_(&open_file), "path"_a, "vocabulary"_a = nb::none(),
           "Reads it through once: a flipped bit, a truncated file or a different vocabulary is an "
           "error.")
      .def("read", &read, "begin"_a = 0, "count"_a = nb::none(), "-> int64 [count]")
      .def_prop_ro("path", &TokenFile::path)
      .def_prop_ro("tokens", &TokenFile::tokens)
      .def("__len__", &TokenFile::tokens)
      .def_prop_ro("vocab_size", &TokenFile::vocab_size)
      .def_prop_ro(
          "fingerprint",
          [](const TokenFile& f) {
            const Bpe::Fingerprint& print = f.fingerprint();
            return to_bytes({reinterpret_cast<const char*>(print.data()), print.size()});
          },
          "The fingerprint of the Bpe that made it.")
      .def("__repr__", [](const TokenFile& f) {
        return format_text("TokenFile('{}', tokens={}, vocab_size={})", f.path(), f.tokens(),
                           f.vocab_size());
      });
  m.def("write_token_file", &write, "bpe"_a, "texts"_a, "path"_a, nb::kw_only(),
        "before_each_file"_a = nb::none(), "allowed_special"_a = std::vector<std::string>(),
        "replace"_a = false, "progress"_a = nb::none(),
        "Tokenises text files, one after another, into a token file that appears once it is "
        "complete; returns\n"
        "the number of ids. before_each_file: an id, such as that of <|endoftext|>.\n"
        "progress(done, all): bytes of the texts.");
}

}  // namespace cephalo::python
