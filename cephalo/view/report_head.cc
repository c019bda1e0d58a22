#include "cephalo/view/report_head.h"

#include "cephalo/core/dtype.h"
#include "cephalo/io/sha256.h"
#include "cephalo/text/byte_alphabet.h"

namespace cephalo {

std::string parameters_sha256(const Gpt& gpt) {
  Sha256 hash;
  for (const GptParameter& p : gpt.parameters()) {
    const auto bytes = static_cast<std::size_t>(p.value.numel()) * item_size(p.value.dtype());
    hash.add({static_cast<const std::byte*>(p.value.data()), bytes});
  }
  return hash.hex();
}

Json model_json(const std::string& name, const Gpt& gpt) {
  const GptOptions& o = gpt.options();
  return {{"name", name},
          {"sha256", parameters_sha256(gpt)},
          {"dtype", cephalo::name(o.dtype)},
          {"num_layers", o.num_layers},
          {"num_heads", o.num_heads}};
}

Json token_json(const LookToken& token) {
  return {{"id", token.id}, {"piece", to_byte_characters(token.piece)}, {"text", token.piece}};
}

Json tokens_json(const std::vector<LookToken>& tokens) {
  Json json = Json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Json numbered = Json::object();
    numbered.add("i", i);
    const Json token = token_json(tokens[i]);
    for (const JsonMember& member : token.members()) numbered.add(member.name, member.value);
    json.push_back(std::move(numbered));
  }
  return json;
}

Json report_head(const char* schema, const LookModel& model, const std::vector<LookToken>& tokens,
                 bool began) {
  return report_head(schema, model.name, model.gpt, tokens, began);
}

Json report_head(const char* schema, const std::string& name, const Gpt& gpt,
                 const std::vector<LookToken>& tokens, bool began) {
  return {{"schema", schema},
          {"model", model_json(name, gpt)},
          {"tokens", tokens_json(tokens)},
          {"began", began}};
}

}  // namespace cephalo
