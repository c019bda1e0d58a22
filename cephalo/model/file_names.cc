#include "cephalo/model/file_names.h"

#include <algorithm>

namespace cephalo {
namespace {

// Names of each part: GPT-2's, the book's.
struct Row {
  ModelPart part;
  const char* gpt2;
  FileNames::Part book;
};
constexpr Row kRows[kModelParts] = {
    {ModelPart::token_embedding, "wte", {{"tok_emb"}}},
    {ModelPart::position_embedding, "wpe", {{"pos_emb"}}},
    {ModelPart::norm_1, "ln_1", {{"norm1"}}},
    {ModelPart::qkv_proj, "attn.c_attn", {{"att.W_query", "att.W_key", "att.W_value"}}},
    {ModelPart::out_proj, "attn.c_proj", {{"att.out_proj"}}},
    {ModelPart::norm_2, "ln_2", {{"norm2"}}},
    {ModelPart::mlp_fc, "mlp.c_fc", {{"ff.layers.0"}}},
    {ModelPart::mlp_proj, "mlp.c_proj", {{"ff.layers.2"}}},
    {ModelPart::last_norm, "ln_f", {{"final_norm"}}},
    {ModelPart::head, "lm_head", {{"out_head"}}},
};

template <typename Column>
constexpr std::array<FileNames::Part, kModelParts> column(Column pick) {
  std::array<FileNames::Part, kModelParts> parts{};
  for (const Row& row : kRows) parts[static_cast<std::size_t>(row.part)] = pick(row);
  return parts;
}

constexpr FileNames gpt2_names(const char* root) {
  return {.root = root,
          .block = "h.",
          .parts = column([](const Row& row) { return FileNames::Part{{row.gpt2}}; }),
          .norm_weight = "weight",
          .norm_bias = "bias",
          .transposed = true,
          .always_head = false,
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

std::string full_name(const FileNames& names, const char* of_part, ModelPart part, dim_t layer,
                      bool is_bias) {
  std::string name = part == ModelPart::head ? "" : names.root;
  if (is_in_block(part)) name += names.block + std::to_string(layer) + ".";
  const bool is_norm =
      part == ModelPart::norm_1 || part == ModelPart::norm_2 || part == ModelPart::last_norm;
  const char* weight = is_norm ? names.norm_weight : "weight";
  const char* bias = is_norm ? names.norm_bias : "bias";
  return name + of_part + "." + (is_bias ? bias : weight);
}

}  // namespace

constexpr FileNames kGpt2Names = gpt2_names("transformer.");
constexpr FileNames kBareGpt2Names = gpt2_names("");
constexpr FileNames kBookNames = {.root = "",
                                  .block = "trf_blocks.",
                                  .parts = column([](const Row& row) { return row.book; }),
                                  .norm_weight = "scale",
                                  .norm_bias = "shift",
                                  .transposed = false,
                                  .always_head = true,
                                  .buffers = {".att.mask"}};

std::span<const FileNames* const> all_file_names() {
  static constexpr const FileNames* kAll[] = {&kBookNames, &kGpt2Names, &kBareGpt2Names};
  return kAll;
}

FilePlace place_in(const FileNames& names, const ParameterInfo& p) {
  FilePlace place;
  for (const char* of_part : names.parts[static_cast<std::size_t>(p.part)].names) {
    if (of_part == nullptr) break;
    place.names.push_back(full_name(names, of_part, p.part, p.layer, p.is_bias));
  }
  // One name for all rows, or one for each of the tensors below each other.
  place.rows = place.names.size() == p.rows.size() ? p.rows : std::vector<dim_t>{p.shape[0]};
  place.transposed = names.transposed && is_in_block(p.part) && p.shape.rank() == 2;
  return place;
}

std::string file_name(const FileNames& names, ModelPart part, dim_t layer, bool is_bias) {
  const char* of_part = names.parts[static_cast<std::size_t>(part)].names[0];
  return full_name(names, of_part, part, layer, is_bias);
}

bool is_buffer(const std::string& name) {
  const auto all = all_file_names();
  return std::any_of(all.begin(), all.end(), [&](const FileNames* names) {
    return std::any_of(names->buffers.begin(), names->buffers.end(), [&](const char* ending) {
      return ending != nullptr && name.ends_with(ending);
    });
  });
}

std::string own_name(ModelPart part, dim_t layer, bool is_bias) {
  return file_name(kGpt2Names, part, layer, is_bias);
}

}  // namespace cephalo
