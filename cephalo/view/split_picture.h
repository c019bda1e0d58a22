#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/attention/reference/trace.h"
#include "cephalo/view/terminal.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The sizes behind steps 1 to 5: a width of num_heads · head_dim, split, transposed, attended with
// and put together again.
struct HeadSplit {
  dim_t batch = 1;  // 0: x has no batch axis
  dim_t q_tokens = 1;
  dim_t kv_tokens = 1;
  dim_t num_heads = 1;
  dim_t num_kv_heads = 1;
  dim_t head_dim = 1;
  dim_t v_dim = 1;
  std::vector<std::string> tokens = {};  // names of the queries; those missing are numbers
};

// Of a layer's trace; none where nothing is split (rungs 1 to 4).
std::optional<HeadSplit> head_split(const Trace& trace);

// The width as a bar that is cut into heads, the axes that change places, the inner axis that
// cancels in `@`: for a terminal of style.width columns, at least 60.
std::string draw_split(const HeadSplit& split, const TerminalStyle& style);

// The same as SVG: a file of its own, or a part of an HTML page, which needs no namespace.
enum class SvgPlace { file, page };
std::string split_svg(const HeadSplit& split, SvgPlace place = SvgPlace::file);

}  // namespace cephalo
#pragma GCC visibility pop
