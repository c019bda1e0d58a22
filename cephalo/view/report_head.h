#pragma once

// Inside the library and its program only, as Json is.
#include <string>
#include <vector>

#include "cephalo/io/json_value.h"
#include "cephalo/view/look.h"

namespace cephalo {

// SHA-256 of the numbers a model computes with: every parameter in the order of Gpt::parameters(),
// element by element, little-endian, in the model's own dtype. Names, shapes and files are not in
// it, so a model has the same one however it was stored, trained or loaded, and another one as soon
// as a number changes. A second for each 250 MB: for what is written down, not for every look.
std::string parameters_sha256(const Gpt& gpt);

// {"name", "sha256", "dtype", "num_layers", "num_heads"}
Json model_json(const std::string& name, const Gpt& gpt);

// {"id", "piece", "text"}: piece as vocab.json writes it, text as it stands in a text. Bytes that
// are not UTF-8 are left in it, so dump with {.replace = true}.
Json token_json(const LookToken& token);
// [{"i", "id", "piece", "text"}, ...]
Json tokens_json(const std::vector<LookToken>& tokens);

// What the JSON of every report about a model and a text begins with:
//   {"schema": "cephalo.trace/1", "model": {...}, "tokens": [...], "began": true}
// schema: the name of its file in docs/schema, and its version; began: the model's first token was
// put before the text.
Json report_head(const char* schema, const LookModel& model, const std::vector<LookToken>& tokens,
                 bool began);
// Of a model by its name and its numbers.
Json report_head(const char* schema, const std::string& name, const Gpt& gpt,
                 const std::vector<LookToken>& tokens, bool began);

}  // namespace cephalo
