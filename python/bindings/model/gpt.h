#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/turn.h"
#include "cephalo/model/gpt_config.h"
#include "cephalo/text/bpe.h"

namespace cephalo::python {

// A model, with its tokenizer where it has one. Any number of threads call it while the GIL is
// released; what changes it waits for them.
struct Model {
  Model(Gpt&& made, std::optional<Bpe> words) : gpt(std::move(made)) {
    config.options = gpt.options();
    use_tokenizer(std::move(words));
  }
  Model(std::string from, Gpt&& loaded, const GptConfig& what, std::optional<Bpe> words)
      : name(std::move(from)), gpt(std::move(loaded)), config(what), tokenizer(std::move(words)) {}

  const Bpe& words(const char* function) const;  // an error where there is none
  // The token that begins a text: that of config.json, or else <|endoftext|>.
  std::optional<std::int64_t> first_token() const;
  // A str or bytes by the tokenizer, anything else as ids. begin: first_token() comes before a
  // text; none: where config.json says so, or where the text would be empty.
  std::vector<std::int64_t> ids_of(nanobind::handle text, std::optional<bool> begin,
                                   const char* function, const char* argument) const;
  void use_tokenizer(std::optional<Bpe> words);
  // Once for all later calls; every update drops it.
  void prepare_once();

  std::string name = "Gpt";
  Gpt gpt;
  GptConfig config;
  std::optional<Bpe> tokenizer;
  mutable Turn turn{"Gpt"};
};

// Something that is asked of a model while nobody changes it; without the GIL.
template <typename Ask>
auto reading(const Model& model, Ask ask) {
  const WithoutGil released;
  const std::shared_lock turn(model.turn);
  return ask(model.gpt);
}

void bind_gpt_training(nanobind::class_<Model>& model);
void bind_gpt_text(nanobind::class_<Model>& model);

}  // namespace cephalo::python
