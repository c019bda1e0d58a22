#pragma once

#include <string>
#include <vector>

#include "cli/look_views.h"

// Small parts of what `look` prints.
namespace cephalo::cli {

inline constexpr const char* kDisclaimer =
    "A label is a pattern of the weights, not an effect on the output.";

// "L1 H6"
std::string place_name(dim_t layer, dim_t head);
std::string place_name(const HeadReport& head);

// One letter for a label: P I = S C ≈. Duplicate finds the same, diffuse looks at all alike.
std::string letter_of(HeadLabel label, const TerminalStyle& style);

// Text with spaces up to that width; `shown`: its own width, where escape codes hide it.
std::string padded(const std::string& text, std::size_t shown, std::size_t width);
std::string padded(const std::string& text, std::size_t width);
// A line without spaces at its end.
std::string without_end(std::string line);
// Words in lines of at most `width` columns, the next ones indented.
std::string in_lines(const std::string& begin, const std::vector<std::string>& words,
                     std::size_t indent, std::size_t width);

// The strongest of these links that fit into one line, in the order of the text.
std::string links_line(const LookReport& report, const std::vector<Link>& strongest_first,
                       const TerminalStyle& style);

// "Peter 17 looks most at Rabbit 10 (0.3204)"; "" where the map leaves out all that it sees.
std::string looks_most_at(const LookReport& report, const HeadPlace& place, dim_t query);

// Three sentences for who sees this for the first time: what a map is, what stands out in these,
// and which head to look at first.
std::string what_one_sees(const LookReport& report, const TerminalStyle& style);
// Why the maps are not plain weights, in lines; "" where they are.
std::string map_reason(const LookReport& report, const TerminalStyle& style);
// Of each label its letter, the head that shows it most clearly here, its scores and its links.
std::string label_lines(const LookReport& report, const TerminalStyle& style);

}  // namespace cephalo::cli
