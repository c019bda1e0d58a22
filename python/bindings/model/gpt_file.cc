#include "cephalo/model/gpt_file.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <filesystem>
#include <memory>

#include "bindings/arrays/callback.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/spellings.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt.h"
#include "cephalo/core/fail.h"
#include "cephalo/model/builtin.h"

namespace cephalo::python {
namespace {

using Path = std::filesystem::path;

void warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) != 0) throw nb::python_error();
  }
}

std::optional<Bpe> tokenizer_in(const Path& folder, dim_t vocab_size) {
  for (const char* file : {"vocab.json", "encoder.json"}) {
    if (std::filesystem::exists(folder / file)) return Bpe::load(folder.string(), vocab_size);
  }
  return std::nullopt;
}

std::unique_ptr<Model> load(const Path& folder, bool allow_extra, bool strict,
                            const nb::object& dtype, const nb::object& progress) {
  const Callback told(progress, "Gpt.load", "progress");
  LoadGptOptions options{
      .allow_extra = allow_extra, .strict = strict, .dtype = dtype_of(dtype, "Gpt.load")};
  options.progress = progress_of(told);
  std::vector<std::string> warnings;
  std::unique_ptr<Model> model;
  {
    const WithoutGil released;
    LoadedGpt loaded = load_gpt(folder.string(), options, &warnings);
    std::optional<Bpe> words = tokenizer_in(folder, loaded.model.options().vocab_size);
    model = std::make_unique<Model>(folder.string(), std::move(loaded.model), loaded.config,
                                    std::move(words));
  }
  warn(warnings);
  return model;
}

void save(const Model& self, const Path& folder, const std::string& names, const nb::object& dtype,
          bool replace, std::int64_t shard_bytes) {
  const SaveGptOptions options{.names = names_of(names),
                               .dtype = dtype_of(dtype, "Gpt.save"),
                               .replace = replace,
                               .shard_bytes = shard_bytes,
                               .bos_token_id = self.config.bos_token_id,
                               .eos_token_id = self.config.eos_token_id,
                               .add_bos_token = self.config.add_bos_token,
                               .trained_context_length = self.config.trained_context_length};
  reading(self, [&](const Gpt& gpt) {
    save_gpt(gpt, folder.string(), options);
    if (self.tokenizer) self.tokenizer->save(folder.string(), replace);
    return 0;
  });
}

std::unique_ptr<Model> builtin() {
  const WithoutGil released;
  TextModel made = builtin_model();
  return std::make_unique<Model>(made.name, std::move(made.gpt), made.config,
                                 std::move(made.tokenizer));
}

nb::list encode(const Model& self, const nb::object& text, std::optional<bool> begin) {
  return to_list(self.ids_of(text, begin, "Gpt.encode", "text"));
}

nb::bytes piece(const Model& self, std::int64_t id) {
  const Bpe& words = self.words("Gpt.piece");
  require(id >= 0 && id < self.gpt.options().vocab_size, "Gpt.piece: id {} is not in [0, {})", id,
          self.gpt.options().vocab_size);
  return id < words.vocab_size() ? to_bytes(words.token(static_cast<TokenId>(id)))
                                 : nb::bytes("", 0);
}

}  // namespace

const Bpe& Model::words(const char* function) const {
  require(tokenizer.has_value(),
          "{}: this model has no tokenizer for text; give ids, or set gpt.tokenizer", function);
  return *tokenizer;
}

void Model::use_tokenizer(std::optional<Bpe> words) {
  if (words) {
    require(words->vocab_size() <= gpt.options().vocab_size,
            "Gpt: a tokenizer of {} tokens is too large for vocab_size {}", words->vocab_size(),
            gpt.options().vocab_size);
  }
  tokenizer = std::move(words);
}

std::optional<std::int64_t> Model::first_token() const {
  if (config.bos_token_id) return config.bos_token_id;
  if (!tokenizer) return std::nullopt;
  const auto id = tokenizer->find("<|endoftext|>");
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

std::vector<std::int64_t> Model::ids_of(nb::handle text, std::optional<bool> begin,
                                        const char* function, const char* argument) const {
  if (!is_text(text)) return IdsIn(text, function, argument).list();
  const Bpe bpe = words(function);
  const TextIn letters(text, function, argument);
  std::vector<TokenId> encoded;
  {
    const WithoutGil released;
    encoded = bpe.encode(letters.view());
  }
  std::vector<std::int64_t> ids;
  const bool begins = begin.value_or(config.add_bos_token || encoded.empty());
  if (begins && first_token()) ids.push_back(*first_token());
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

void bind_gpt_text(nb::class_<Model>& model) {
  model
      .def_static(
          "load", &load, "folder"_a, nb::kw_only(), "allow_extra"_a = false, "strict"_a = false,
          "dtype"_a = "float32", "progress"_a = nb::none(),
          R"(A folder with config.json and model.safetensors (or shards), as Hugging Face ships GPT-2,
or under the book's names; with its tokenizer, if there is a vocab.json.

allow_extra: unknown tensors and keys are ignored. strict: NaN is an error, not a warning.
dtype: of the model, "float32" or "float64", whatever the file has. progress(done, all): bytes.)")
      .def("save", &save, "folder"_a, nb::kw_only(), "names"_a = "hugging_face",
           "dtype"_a = "float32", "replace"_a = false, "shard_bytes"_a = 0,
           "Writes config.json, the parameters and the tokenizer's files into a folder.\n"
           "names: \"hugging_face\" or \"book\". dtype: of the file, also \"bfloat16\" and "
           "\"float16\".\n"
           "shard_bytes: writes several files of about this size; 0: one file.")
      .def("encode", &encode, "text"_a, "begin"_a = nb::none(),
           nb::sig("def encode(self, text: str | bytes, begin: bool | None = None) -> list[int]"),
           "The ids of a text. begin: prepend the token that begins a text;\n"
           "None: as config.json says.")
      .def("piece", &piece, "id"_a,
           "The bytes of a token; empty for an id that the model has but the tokenizer does not.")
      .def_prop_rw(
          "tokenizer", [](const Model& m) { return m.tokenizer; }, &Model::use_tokenizer,
          nb::for_setter(nb::arg("tokenizer").none()), "A Bpe, or None.")
      .def_prop_ro("first_token", &Model::first_token, "The id that begins a text, or None.")
      .def_prop_rw(
          "bos_token_id", [](const Model& m) { return m.config.bos_token_id; },
          [](Model& m, std::optional<dim_t> id) { m.config.bos_token_id = id; },
          nb::for_setter(nb::arg("id").none()))
      .def_prop_rw(
          "eos_token_id", [](const Model& m) { return m.config.eos_token_id; },
          [](Model& m, std::optional<dim_t> id) { m.config.eos_token_id = id; },
          nb::for_setter(nb::arg("id").none()))
      .def_prop_rw(
          "add_bos_token", [](const Model& m) { return m.config.add_bos_token; },
          [](Model& m, bool add) { m.config.add_bos_token = add; },
          "Does every text begin with bos_token_id?");
}

void bind_builtin(nb::module_& m) {
  m.def("has_builtin_model", &has_builtin_model,
        "False in a package built with -DCEPHALO_BUILTIN_MODEL=OFF.");
  m.def(
      "builtin_model", &builtin,
      "The small model that is part of the package, trained by this project, with its tokenizer;\n"
      "a new one for every call.");
  m.def(
      "builtin_tokenizer", [] { return builtin_tokenizer(); }, "The Bpe of the built-in model.");
}

}  // namespace cephalo::python
