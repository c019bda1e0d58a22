#include "cephalo/view/page.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/io/json_value.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/model/builtin_files.h"
#include "cephalo/view/look.h"
#include "cephalo/view/page_parts.h"
#include "cephalo/view/report_json.h"

namespace cephalo {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string all_of(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

std::string stored_type(const PageModel& files) {
  const SafetensorsFile file(
      InputFile("model.safetensors",
                std::as_bytes(std::span(files.parameters.data(), files.parameters.size()))));
  const auto& entries = file.entries();
  const bool one = std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.dtype == entries.front().dtype;
  });
  return entries.empty() ? "none" : one ? name(entries.front().dtype) : "several types";
}

// Value, rows and uniform of duplicate, then of induction, of every head.
Json probe_json(const LookProbe& probe) {
  if (!probe.options) return {};
  Json scores = Json::array();
  for (const auto& layer : probe.scores) {
    for (const ProbeScores& head : layer) {
      for (const Score& score : {head.duplicate, head.induction}) {
        scores.push_back(score.value);
        scores.push_back(score.rows);
        scores.push_back(score.uniform);
      }
    }
  }
  return {{"length", probe.options->length},
          {"draws", probe.options->draws},
          {"seed", probe.options->seed},
          {"scores", std::move(scores)}};
}

std::string too_many_bytes(const TextModel& model, std::int64_t bytes, std::int64_t most) {
  return format_text(
      "the parameters of {} take {}, and a page that runs the model holds at most {}", model.name,
      size_text(bytes), size_text(most));
}

std::string too_many_tokens(const TextModel& model, dim_t tokens) {
  const dim_t most = longest_live_text(model.gpt.options());
  if (tokens <= most) return "";
  return format_text("{} tokens are more than a page that runs {} shows ({})", tokens, model.name,
                     most);
}

}  // namespace

PageModel builtin_page_model() {
  const BuiltinFiles files = builtin_files();
  return {std::string(text_of(files.config_json)), std::string(text_of(files.model_safetensors))};
}

PageModel load_page_model(const std::string& folder) {
  const std::string parameters = gpt_parameters_path(folder);
  require(parameters.ends_with(".safetensors"),
          "{}: its parameters are in several files; a page takes those of one", folder);
  return {all_of((std::filesystem::path(folder) / "config.json").string()), all_of(parameters)};
}

std::int64_t stored_parameter_bytes(const std::string& folder) {
  std::int64_t bytes = 0;
  const SafetensorsFile file(gpt_parameters_path(folder));
  for (const auto& entry : file.entries()) bytes += entry.end - entry.begin;
  return bytes;
}

dim_t longest_live_text(const GptOptions& model) {
  dim_t tokens = 1;
  const dim_t heads = model.num_layers * model.num_heads;
  while (tokens < model.context_length && heads * (tokens + 1) * (tokens + 1) <= kMostPageWeights) {
    ++tokens;
  }
  return tokens;
}

std::string why_not_live(const TextModel& model, std::int64_t parameter_bytes, dim_t tokens,
                         const PageOptions& options) {
  if (parameter_bytes > options.most_bytes) {
    return too_many_bytes(model, parameter_bytes, options.most_bytes);
  }
  return too_many_tokens(model, tokens);
}

std::string page_html(const TextModel& model, const PageModel& files, const std::string& text,
                      const PageOptions& options) {
  require(std::ssize(files.parameters) <= options.most_bytes, "page: {}; raise most_bytes",
          too_many_bytes(model, std::ssize(files.parameters), options.most_bytes));
  const LookModel seen = look_model(model);
  const auto tokens = std::ssize(look_ids(seen, text, true, "page"));
  const std::string too_long = too_many_tokens(model, tokens);
  require(too_long.empty(), "page: {}; use a part of the text, or record it", too_long);
  const LookProbe probe = probe_for_look(seen, {.seed = options.seed, .threads = options.threads});

  Json described = page_model_json(model.name, model.gpt, stored_type(files));
  described["trained_context_length"] = count_json(seen.trained_context_length);
  PageWriter page({{"version", 1},
                   {"text", text},
                   {"model", std::move(described)},
                   {"probe", probe_json(probe)}});
  page.add_block("model-config", files.config_json);
  page.add_block("model-parameters", files.parameters);
  page.add_block("model-vocab", model.tokenizer.vocab_json());
  page.add_block("model-merges", model.tokenizer.merges_txt());
  return std::move(page).finish();
}

}  // namespace cephalo
