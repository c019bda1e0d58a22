
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cli/rungs.h"
#include "cli/terminal.h"
#include "cli/trace_run.h"

namespace cephalo::cli {
namespace {

constexpr std::size_t kColumns = 80;
constexpr dim_t kMatrixTokens = 12;       // rows and columns of weights that fit
constexpr std::size_t kCell = 5;          // " 0.25"
constexpr dim_t kByHandKeys = 4;          // columns of the worked row
constexpr std::size_t kByHandLabel = 11;  // "/ sqrt(768)"

// One line for each step: k and v are like q, and the scaled scores are inside the softmax line.
bool has_own_line(const Step& step, const Trace& trace) {
  const std::string& key = step.key;
  if (key.starts_with("k") || key.starts_with("v")) return false;
  if (key == "scores_scaled") return !trace.mask_first;
  if (key == "weights_dropped") return !step.note.starts_with("p = 0");
  return true;
}

std::string line_formula(const Step& step) {
  if (step.name != "PROJECT") return step.formula;
  const std::size_t part = step.formula.find("[0]");  // q = qkv_proj(x).chunk(3)[0]
  if (part != std::string::npos) return "q, k, v = " + step.formula.substr(4, part - 4);
  return step.formula + " (k, v alike)";
}

std::string steps_table(const Trace& trace) {
  std::size_t formula_width = 0;
  std::size_t shape_width = 0;
  for (const Step& step : trace) {
    if (!has_own_line(step, trace)) continue;
    formula_width = std::max(formula_width, line_formula(step).size() + 1);
    shape_width = std::max(shape_width, to_tuple_string(step.shape).size() + 1);
  }
  std::string table;
  for (const Step& step : trace) {
    if (!has_own_line(step, trace)) continue;
    const std::string name = step.name == "PROJECT OUT" ? "PROJECT" : step.name;
    std::string line =
        format_text("{:<2} {} {:<{}} {:<{}}", step.number, fit(name, 9), line_formula(step),
                    formula_width - 1, to_tuple_string(step.shape), shape_width);
    const std::string indent(line.size() - shape_width, ' ');
    const bool fits = line.size() + step.note.size() <= kColumns;
    if (fits) line += step.note;
    line.erase(line.find_last_not_of(' ') + 1);
    table += line.replace(3, name.size(), bold(name)) + "\n";
    if (!fits) table += indent + step.note + "\n";
  }
  return table;
}

// t: [batch, .., rows, columns] -> those of the shown sequence and head
TensorView shown_matrix(const TensorView& t, const TraceRun& run) {
  const TensorView sequence = t.select(0, run.sequence);
  return sequence.rank() == 3 ? sequence.select(0, run.head) : sequence;
}

// A space and six characters, for numbers below a million.
std::string number_cell(double value) {
  const double size = std::abs(value);
  const int decimals = size < 10 ? 3 : (size < 100 ? 2 : (size < 1000 ? 1 : 0));
  return format_text(" {:6.{}f}", value, decimals);
}

// The worked row: one query of the shown head from q · k to its weights and one value.
std::vector<std::string> by_hand(const TraceRun& run, dim_t query) {
  const Trace& trace = run.trace;
  const auto row_of = [&](const char* key) {
    return shown_matrix(trace.at(key).value, run)[query];
  };
  const bool is_simple = run.rung == 1;
  const bool split = trace.has("v_heads");
  const TensorView values =
      shown_matrix(trace.at(split ? "v_heads" : (is_simple ? "x" : "v")).value, run);
  const TensorView context = row_of(split ? "context_heads" : "context");
  const TensorView masked = row_of("scores_masked");

  std::vector<dim_t> keys;
  dim_t visible = 0;
  for (dim_t j = 0; j < masked.dim(0); ++j) {
    if (!std::isfinite(masked.at({j}))) continue;
    ++visible;
    if (std::ssize(keys) < kByHandKeys) keys.push_back(j);
  }
  const auto token = [&](dim_t j) { return run.tokens[static_cast<std::size_t>(j)]; };
  const auto row = [&](const std::string& label, auto&& cell) {
    std::string line = fit(label, kByHandLabel);
    for (const dim_t j : keys) line += cell(j);
    return line;
  };
  const auto numbers = [&](const std::string& label, const TensorView& t) {
    return row(label, [&](dim_t j) { return number_cell(t.at({j})); });
  };
  std::vector<std::string> lines;
  const std::string title = format_text("\"{}\" by hand", token(query));
  lines.push_back(fit(title, std::min<std::size_t>(display_width(title), 38)));
  lines.push_back(row("", [&](dim_t j) { return "  " + fit(token(j), kCell); }));
  lines.push_back(numbers(is_simple ? "x . x" : "q . k", row_of("scores")));
  if (!is_simple) {
    lines.push_back(numbers(format_text("/ sqrt({})", run.head_dim), row_of("scores_scaled")));
  }
  lines.push_back(numbers("softmax", row_of("weights")));
  if (trace.at("weights_dropped").note.empty()) {
    lines.push_back(numbers("dropout", row_of("weights_dropped")));
  }
  lines.push_back(numbers(is_simple ? "x[0]" : "v[0]", values.select(1, 0)));
  lines.push_back(fit("sum", kByHandLabel) + number_cell(context.at({0})) + " = context[0]" +
                  (std::ssize(keys) < visible ? format_text(", {} keys", visible) : ""));
  return lines;
}

std::vector<std::string> weights_matrix(const TraceRun& run, dim_t shown) {
  const TensorView weights = shown_matrix(run.trace.at("weights").value, run);
  const TensorView masked = shown_matrix(run.trace.at("scores_masked").value, run);
  const auto token = [&](dim_t i) { return run.tokens[static_cast<std::size_t>(i)]; };
  std::string header = fit(run.num_heads > 1 ? format_text("head {}", run.head) : "weights", 8);
  for (dim_t j = 0; j < shown; ++j) header += " " + fit(token(j), kCell - 1);
  std::vector<std::string> lines{header};
  for (dim_t i = 0; i < shown; ++i) {
    const std::string label = fit(token(i), std::min<std::size_t>(display_width(token(i)), 7));
    std::string line = std::string(8 - display_width(label), ' ') + label;
    for (dim_t j = 0; j < shown; ++j) {
      const bool hidden = std::isinf(masked.at({i, j})) && masked.at({i, j}) < 0;
      line += hidden ? std::string(kCell, ' ') : format_text(" {:.2f}", weights.at({i, j}));
    }
    lines.push_back(line);
  }
  return lines;
}

std::string side_by_side(const std::vector<std::string>& left,
                         const std::vector<std::string>& right) {
  std::size_t width = 0;
  for (const std::string& line : left) width = std::max(width, display_width(line) + 3);
  std::string text;
  for (std::size_t k = 0; k < std::max(left.size(), right.size()); ++k) {
    std::string line = fit(k < left.size() ? left[k] : "", width);
    if (k < right.size()) line += right[k];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string headline(const TraceRun& run) {
  const std::string what = title_of(run);
  const std::size_t used = display_width(run.text) + what.size();
  if (used + 2 <= kColumns) return bold(run.text) + std::string(kColumns - used, ' ') + what + "\n";
  return bold(fit(run.text, std::min(display_width(run.text), kColumns))) + "\n" + what + "\n";
}

}  // namespace

std::string title_of(const TraceRun& run) {
  return run.drawn ? format_text("{}, seed {}", run.trace.title, run.seed) : run.trace.title;
}

std::string warning_of(const TraceRun& run) {
  if (run.rung > 1) {
    return "untrained parameters: shapes and arithmetic are real, the pattern is noise\n";
  }
  return run.drawn ? "no parameters, and a random x: arithmetic is real, the pattern is noise\n"
                   : "no parameters: every number below follows from x\n";
}

std::string trace_as_text(const TraceRun& run) {
  std::string out = headline(run) + warning_of(run) + "\n";
  out += steps_table(run.trace);
  if (!run.trace.mask_first) out += "order: scale, then bias and mask, as attend computes\n";
  out += "\n";

  if (run.batch > 1) out += format_text("sequence {} of {}\n", run.sequence, run.batch);
  const auto tokens = static_cast<dim_t>(run.tokens.size());
  const dim_t shown = std::min(tokens, kMatrixTokens);
  const auto left = weights_matrix(run, shown);
  const auto right = by_hand(run, std::min<dim_t>(2, tokens - 1));
  std::size_t right_width = 0;
  for (const std::string& line : right) right_width = std::max(right_width, display_width(line));
  const bool beside = display_width(left[0]) + 3 + right_width <= kColumns;
  out +=
      beside ? side_by_side(left, right) : side_by_side(left, {}) + "\n" + side_by_side(right, {});
  if (shown < tokens) out += format_text("the first {} of {} tokens\n", shown, tokens);

  const int next_rung = run.rung < 8 ? run.rung + 1 : 1;
  out += format_text("\nnext: cephalo trace --rung {} --explain", next_rung);
  if (run.batch > 1) out += format_text(" | --batch {}", (run.sequence + 1) % run.batch);
  if (run.num_heads > 1) out += format_text(" | --head {}", (run.head + 1) % run.num_heads);
  if (run.rung >= kFirstSplit) out += " | --picture";
  out += " | --json\n";
  return out + "trained heads: cephalo look \"The cat sat on the mat\"\n";
}

}  // namespace cephalo::cli
