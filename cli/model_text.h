#pragma once

#include <string>
#include <vector>

#include "cephalo/model/gpt_options.h"
#include "cephalo/view/look.h"

namespace cephalo::cli {

// "4 layers x 8 heads", or "4 layers x 8 heads (2 of keys and values)".
std::string layers_and_heads(const GptOptions& model);

// Where the token of a flag stands: its last place by its letters, or else its index.
dim_t find_token(const std::vector<LookToken>& tokens, const std::string& wanted,
                 const char* flag = "--token");

// A UsageError that begins with TEXT: the text has no token, or more than the model reads at once.
void check_text(const std::string& text, bool begin, const TextModel& model);

}  // namespace cephalo::cli
