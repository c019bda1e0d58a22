#pragma once

#include <string>
#include <vector>

#include "cli/look_views.h"

namespace cephalo::cli {

// How maps stand beside each other: as many as the width has room for, in rows that are as equal as
// can be. Only a text too long for a quarter of 80 columns is pooled.
struct GridShape {
  dim_t per_row;
  dim_t column;  // columns of the terminal for each map, a gap included
  dim_t cells;   // of a side of a map
};
GridShape grid_shape(dim_t heads, dim_t tokens, dim_t width);

// As many as look draws where there is no room for every head.
std::size_t maps_in_a_row(const LookReport& report, dim_t width);

// What rows, columns and shades are, and whether maps of `heads` together are pooled.
std::string map_caption(const LookReport& report, dim_t heads, const TerminalStyle& style);
// A map of each head, under its name and its labels, each with its score.
std::string draw_maps(const LookReport& report, const std::vector<const HeadReport*>& heads,
                      const TerminalStyle& style);

// Every head as the letters of its labels, a row for each layer.
std::string letter_table(const LookReport& report, const TerminalStyle& style);

}  // namespace cephalo::cli
