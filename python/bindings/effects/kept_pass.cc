#include "bindings/effects/kept_pass.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/ids.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"
#include "cephalo/text/piece_text.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "KeptPass";

void construct(PassOfText* self, const nb::object& model, const nb::object& text,
               std::optional<bool> begin, std::optional<int> threads) {
  if (!nb::isinstance<Model>(model)) throw nb::type_error("KeptPass: model must be a Gpt");
  const auto& reader = nb::cast<const Model&>(model);
  const std::vector<std::int64_t> ids = reader.ids_of(text, begin, kName, "text");
  auto pass = reading(reader, [&](const Gpt& gpt) {
    return std::make_shared<const KeptPass>(gpt, ids, threads.value_or(0));
  });
  new (self) PassOfText{model, reader, std::move(pass), reader.gpt.version()};
}

AnyArray mean_of(const std::vector<const PassOfText*>& texts) {
  std::vector<const KeptPass*> passes;
  for (const PassOfText* text : texts) passes.push_back(text->pass.get());
  const WithoutGil released;
  Tensor mean = reference_mean(passes);
  const WithGil held;
  return made(std::move(mean));
}

std::string pieces_of(const Bpe& words, const std::vector<TokenId>& ids) {
  std::string list;
  for (const TokenId id : ids) {
    list += format_text("{}'{}'", list.empty() ? "" : ", ", as_label(words.token(id)));
  }
  return list;
}

}  // namespace

std::int64_t token_of(const Model& model, nb::handle token, const char* function,
                      const char* argument) {
  if (!nb::isinstance<nb::str>(token)) {
    std::int64_t id = 0;
    if (!nb::try_cast(token, id)) {
      throw nb::type_error(
          format_text("{}: {} must be a token's id, or a str", function, argument).c_str());
    }
    require(0 <= id && id < model.gpt.options().vocab_size, "{}: {} {} is not in [0, {})", function,
            argument, id, model.gpt.options().vocab_size);
    return id;
  }
  const auto text = nb::cast<std::string>(token);
  const Bpe& words = model.words(function);
  const std::vector<TokenId> ids = words.encode(text);
  require(ids.size() == 1, "{}: {} '{}' must be one token; the tokenizer makes {} of it: {}",
          function, argument, text, ids.size(), pieces_of(words, ids));
  return ids.front();
}

dim_t position_of(const PassOfText& self, dim_t position, const char* function) {
  const dim_t tokens = self.pass->tokens();
  require(-tokens <= position && position < tokens, "{}: position {} of {} tokens does not exist",
          function, position, tokens);
  return position < 0 ? position + tokens : position;
}

void bind_kept_pass(nb::module_& m) {
  nb::class_<PassOfText> pass(m, kName,
                              "One text's pass through a Gpt, with what experiments start from; "
                              "linear in tokens.");
  pass.def("__init__", &construct, "model"_a, "text"_a, "begin"_a = true, "threads"_a = nb::none(),
           "text: a str, or ids: from 1 to context_length of them. begin: prepend the token that "
           "begins\n"
           "a text; None: as config.json says.")
      .def_prop_ro(
          "ids", [](const PassOfText& p) { return to_list(p.pass->ids()); },
          nb::sig("def ids(self) -> list[int]"))
      .def_prop_ro("tokens", [](const PassOfText& p) { return p.pass->tokens(); })
      .def_prop_ro(
          "bytes", [](const PassOfText& p) { return p.pass->bytes(); }, "that it holds")
      .def_prop_ro(
          "model", [](const PassOfText& p) { return p.model_object; },
          nb::sig("def model(self) -> Gpt"))
      .def("__repr__", [](const PassOfText& p) {
        return format_text("KeptPass({} tokens, {} layers, {} heads)", p.pass->tokens(),
                           p.pass->options().num_layers, p.pass->options().num_heads);
      });
  bind_sweep(m, pass);
  bind_attribution(pass);
  bind_lens(m, pass);
  m.def("reference_mean", &mean_of, "texts"_a,
        "The mean of each head's context over all tokens of some texts, each a KeptPass ->\n"
        "float64 [num_layers, d_model]; what measure takes as reference.");
}

}  // namespace cephalo::python
