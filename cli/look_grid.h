#pragma once

#include <string>
#include <vector>

#include "cli/look_run.h"

namespace cephalo::cli {

// How maps stand beside each other: as many as the width has room for, in rows that are as equal as
// can be. Only a text too long for a quarter of 80 columns is pooled.
struct GridShape {
  dim_t per_row;
  dim_t column;  // columns of the terminal for each map, a gap included
  dim_t cells;   // of a side of a map
};
GridShape grid_shape(dim_t heads, dim_t tokens, dim_t width);

// The heads to draw where there is no room for all: of every label that the text shows the
// clearest, then the next ones, up to a row of maps; then those that look at the first token least.
std::vector<const HeadReport*> heads_to_show(const LookRun& run, dim_t width);

// What rows, columns and shades are, and whether maps of `heads` together are pooled.
std::string map_caption(const LookRun& run, dim_t heads, const TerminalStyle& style);
// A map of each head, under its name and its labels, each with its score.
std::string draw_maps(const LookRun& run, const std::vector<const HeadReport*>& heads,
                      const TerminalStyle& style);

// Every head as the letters of its labels, a row for each layer.
std::string letter_table(const LookRun& run, const TerminalStyle& style);

}  // namespace cephalo::cli
