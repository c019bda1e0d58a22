#pragma once

#include <optional>
#include <string>

#include "cephalo/view/look.h"
#include "cephalo/view/terminal.h"

// A report on a terminal, in one form or another.
namespace cephalo::cli {

// The tokens, the maps that show something, every head's labels, what comes next.
std::string look_at_model(const LookReport& report, const TerminalStyle& style);
// A map, a line of numbers and one of links for each head; of one layer or of all.
std::string look_at_heads(const LookReport& report, std::optional<dim_t> layer,
                          const TerminalStyle& style);
// One head in full.
std::string look_at_head(const LookReport& report, const HeadPlace& place,
                         const TerminalStyle& style);
// What one token looks at in every head (of one layer, of all), strongest first.
std::string look_at_token(const LookReport& report, dim_t token, std::optional<dim_t> layer,
                          const TerminalStyle& style);

}  // namespace cephalo::cli
