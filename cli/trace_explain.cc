
#include <algorithm>

#include "cephalo/core/format.h"
#include "cephalo/core/print.h"
#include "cli/terminal.h"
#include "cli/trace_run.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kCorner = 4;

// The first numbers of a matrix of the shown sequence (and of the shown head where there are
// heads).
std::string corner(const Step& step, const TraceRun& run) {
  TensorView t = step.value;
  std::string where;
  while (t.rank() > 2) {
    const bool is_heads = t.rank() == 3 && step.shape.rank() == 4 && step.number != "2";
    const bool is_batch = t.rank() == step.shape.rank();
    const dim_t index = is_batch ? run.sequence : (is_heads ? std::min(run.head, t.dim(0) - 1) : 0);
    where += format_text("{}, ", index);
    t = t.select(0, index);
  }
  const dim_t rows = std::min(kCorner, t.dim(0));
  const dim_t columns = std::min(kCorner, t.dim(1));
  std::string text = format_text("   {}[{}:{}, :{}] =\n", step.key, where, rows, columns);
  for (dim_t i = 0; i < rows; ++i) {
    text += "    ";
    for (dim_t j = 0; j < columns; ++j) text += format_text(" {:>9.4f}", t.at({i, j}));
    text += columns < t.dim(1) ? "  ...\n" : "\n";
  }
  return text;
}

}  // namespace

std::string trace_as_explanation(const TraceRun& run) {
  std::string out = bold(run.text) + "\n" + title_of(run) + "\n" + warning_of(run);
  if (run.trace.at("scores_masked").topic != "NO MASK") {
    out += run.trace.mask_first
               ? "order: mask before the scale, as in the book; both orders give the same bits\n"
               : "order: the scale before bias and mask, as attend computes\n";
  }
  std::string explained;
  for (const Step& step : run.trace) {
    if (step.name != explained) {
      const Explanation about = explain(step);
      out += format_text("\n{} {}\n   what    {}\n   why     {}\n   effect  {}\n", step.number,
                         bold(step.name), about.what, about.why, about.effect);
      explained = step.name;
    }
    const bool notes_more = !step.note.empty() && !step.note.starts_with("same memory");
    out += format_text("   {}{}\n   shape {}  strides {}  {}\n", step.formula,
                       notes_more ? "  (" + step.note + ")" : "", to_string(step.shape),
                       to_string(step.strides), step.moved ? "new memory" : "same memory");
    const bool like_q = step.key.starts_with("k") || step.key.starts_with("v");
    if (!like_q) out += corner(step, run);
  }
  return out;
}

}  // namespace cephalo::cli
