#include "cli/model_text.h"

#include <algorithm>
#include <charconv>

#include "cephalo/core/format.h"
#include "cli/verbs.h"

namespace cephalo::cli {

std::string layers_and_heads(const GptOptions& model) {
  std::string text = format_text("{} layers x {} heads", model.num_layers, model.num_heads);
  const bool shared = model.num_kv_heads > 0 && model.num_kv_heads < model.num_heads;
  if (shared) text += format_text(" ({} of keys and values)", model.num_kv_heads);
  return text;
}

dim_t find_token(const std::vector<LookToken>& tokens, const std::string& wanted,
                 const char* flag) {
  for (auto at = std::ssize(tokens); at-- > 0;) {
    const std::string& piece = tokens[static_cast<std::size_t>(at)].piece;
    if (piece == wanted || piece == " " + wanted) return at;
  }
  dim_t index = 0;
  const char* end = wanted.data() + wanted.size();
  const auto [stop, error] = std::from_chars(wanted.data(), end, index);
  if (error == std::errc() && stop == end && 0 <= index && index < std::ssize(tokens)) {
    return index;
  }
  constexpr std::size_t kShown = 20;
  std::string known;
  for (std::size_t k = 0; k < std::min(tokens.size(), kShown); ++k) {
    known += (k == 0 ? "" : " ") + tokens[k].label;
  }
  if (tokens.size() > kShown) known += " ...";
  throw UsageError(format_text(
      "{}: '{}' is neither a token of the text nor an index from 0 to {}; its tokens are: {}", flag,
      wanted, tokens.size() - 1, known));
}

void check_text(const std::string& text, bool begin, const TextModel& model) {
  const std::vector<std::int64_t> ids = model.encode(text, begin);
  if (ids.empty()) throw UsageError("TEXT: is empty, and no token was prepended");
  const dim_t longest = model.gpt.options().context_length;
  if (std::ssize(ids) > longest) {
    throw UsageError(
        format_text("TEXT: {} tokens are more than {} reads at once ({}); use a part of it",
                    ids.size(), model.name, longest));
  }
}

}  // namespace cephalo::cli
