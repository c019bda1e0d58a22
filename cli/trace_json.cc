
#include <cmath>

#include "cephalo/core/format.h"
#include "cephalo/io/json_value.h"
#include "cli/trace_run.h"

namespace cephalo::cli {
namespace {

std::string quoted(const std::string& text) {
  // Bytes that are no UTF-8 become U+FFFD: the result is always valid JSON.
  return Json(text).dump({.replace = true});
}

// The shortest digits that give the same float back. JSON has no infinity: null is -inf.
template <typename T>
void append_number(std::string& out, T value) {
  if (std::isfinite(value)) {
    append_text(out, "{}", value);
  } else {
    out += std::isnan(value) ? "\"nan\"" : (value < 0 ? "null" : "\"inf\"");
  }
}

void append_values(std::string& out, const TensorView& t) {
  if (t.rank() == 0) {
    if (t.dtype() == DType::f64) {
      append_number(out, t.at({}));
    } else {
      append_number(out, static_cast<float>(t.at({})));
    }
    return;
  }
  out += '[';
  for (dim_t i = 0; i < t.dim(0); ++i) {
    if (i > 0) out += ',';
    append_values(out, t[i]);
  }
  out += ']';
}

}  // namespace

std::string trace_as_json(const TraceRun& run) {
  // Of a model there would be a head of the report; a layer has none.
  std::string out = format_text(
      "{{\"schema\": \"cephalo.trace/1\", \"model\": null, \"began\": null,\n \"title\": {}, "
      "\"rung\": {}, \"text\": {}, \"tokens\": [",
      quoted(run.trace.title), run.rung, quoted(run.text));
  for (std::size_t i = 0; i < run.tokens.size(); ++i) {
    out += (i > 0 ? ", " : "") + quoted(run.tokens[i]);
  }
  out += format_text("], \"seed\": {}, \"trained\": false, \"mask_first\": {},\n \"steps\": [",
                     run.seed, run.trace.mask_first);
  for (const Step& step : run.trace) {
    out += format_text(
        "{}\n  {{\"number\": {}, \"name\": {}, \"key\": {}, \"formula\": {}, \"shape\": {}, "
        "\"strides\": {}, \"moved\": {}, \"note\": {}, \"value\": ",
        &step == &run.trace.steps.front() ? "" : ",", quoted(step.number), quoted(step.name),
        quoted(step.key), quoted(step.formula), to_string(step.shape), to_string(step.strides),
        step.moved, quoted(step.note));
    append_values(out, step.value);
    out += '}';
  }
  out += "\n ]";
  if (!run.parameters.empty()) {
    out += ",\n \"parameters\": {";
    for (const NamedParameter& p : run.parameters) {
      out += format_text("{}\n  {}: ", &p == &run.parameters.front() ? "" : ",", quoted(p.name));
      append_values(out, p.value);
    }
    out += "\n }";
  }
  return out + "}\n";
}

}  // namespace cephalo::cli
