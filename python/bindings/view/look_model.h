#pragma once

#include "bindings/model/gpt.h"
#include "cephalo/view/look.h"

namespace cephalo::python {

// What looks and reports need of a model; words: its tokenizer, for as long as the result is used.
inline LookModel look_model(const Model& model, const Bpe& words) {
  return {model.name, model.gpt, words, model.first_token(), model.config.trained_context_length};
}

}  // namespace cephalo::python
