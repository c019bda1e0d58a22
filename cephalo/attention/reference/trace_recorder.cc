#include "cephalo/attention/reference/trace_recorder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"

namespace cephalo {
namespace {

struct KeyInfo {
  std::string_view key;
  const char* number;
  const char* name;
  const char* looks_at;  // the step whose memory this one may share
};

constexpr std::string_view kContextHeads = "context_heads";

constexpr std::array kKeys = {
    KeyInfo{"x", "0", "INPUT", ""},
    KeyInfo{"q", "1", "PROJECT", ""},
    KeyInfo{"k", "1", "PROJECT", ""},
    KeyInfo{"v", "1", "PROJECT", ""},
    KeyInfo{"q_split", "2", "SPLIT", "q"},
    KeyInfo{"k_split", "2", "SPLIT", "k"},
    KeyInfo{"v_split", "2", "SPLIT", "v"},
    KeyInfo{"q_rotated", "2b", "ROTATE", ""},
    KeyInfo{"k_rotated", "2b", "ROTATE", ""},
    KeyInfo{"q_heads", "3", "TRANSPOSE", "q_split"},
    KeyInfo{"k_heads", "3", "TRANSPOSE", "k_split"},
    KeyInfo{"v_heads", "3", "TRANSPOSE", "v_split"},
    KeyInfo{"scores", "4a", "SCORES", ""},
    KeyInfo{"scores_masked", "4b", "MASK", ""},
    KeyInfo{"scores_scaled", "4c", "SCALE", ""},
    KeyInfo{"weights", "4c", "SOFTMAX", ""},
    KeyInfo{"weights_dropped", "4c", "DROPOUT", ""},
    KeyInfo{"context_heads", "4d", "VALUES", ""},
    KeyInfo{"context", "5", "CONCAT", "context_heads"},
    KeyInfo{"output", "6", "PROJECT OUT", ""},
};

const KeyInfo& info_of(std::string_view key) {
  const auto* found = std::find_if(kKeys.begin(), kKeys.end(),
                                   [&](const KeyInfo& info) { return key == info.key; });
  require(found != kKeys.end(), "trace: unknown step {}", key);
  return *found;
}

bool is_projected(std::string_view key) {
  return key == "q" || key == "k" || key == "v";
}

// q_heads, k_heads, v_heads
bool is_projected_heads(std::string_view key) {
  return key.ends_with("_heads") && key != kContextHeads;
}

// weights: [..., q_tokens, kv_tokens]: may some query look at nothing?
bool has_empty_row(const TensorView& weights) {
  if (weights.rank() > 1) {
    for (dim_t i = 0; i < weights.dim(0); ++i) {
      if (has_empty_row(weights[i])) return true;
    }
    return false;
  }
  for (dim_t j = 0; j < weights.dim(0); ++j) {
    if (weights.at({j}) != 0.0) return false;
  }
  return true;
}

}  // namespace

void TraceRecorder::step(const char* key, const TensorView& value) {
  const KeyInfo& info = info_of(key);
  memory_[key] = value.data();
  if (leaves_out(key)) return;

  const TensorView seen = without_extra_axes(value);
  const auto source = memory_.find(info.looks_at);
  const bool shares = source != memory_.end() && source->second == value.data();
  Step step{.number = info.number,
            .name = info.name,
            .key = setup_.one_head && info.key == kContextHeads ? "context" : std::string(info.key),
            .formula = formula(key, seen),
            .shape = seen.shape(),
            .strides = seen.strides(),
            .moved = setup_.list_of_heads || !shares,
            .note = "",
            .value = Tensor::copy(seen)};
  if (projects_each_head(key)) {  // the result of a product, dense as such results are
    step.number = info_of("q").number;
    step.name = info_of("q").name;
    step.strides = step.value.strides();
  }
  step.note = note(step);
  step.topic = topic(step);
  trace_.steps.push_back(std::move(step));
}

// The one-head rungs of the book show q, k, v, then scores, then context; its list of heads never
// has the whole width in one tensor before the end.
bool TraceRecorder::leaves_out(std::string_view key) const {
  if (setup_.list_of_heads) return is_projected(key) || key.ends_with("_split");
  return setup_.one_head &&
         (key.ends_with("_split") || is_projected_heads(key) || key == "context");
}

bool TraceRecorder::projects_each_head(std::string_view key) const {
  return setup_.list_of_heads && is_projected_heads(key);
}

// value without the batch axis that a rank-2 input did not have, and without the axis of one head.
TensorView TraceRecorder::without_extra_axes(const TensorView& value) const {
  TensorView seen = value;
  if (setup_.one_head && seen.rank() == 4) seen = seen.select(1, 0);
  if (!setup_.has_batch && seen.rank() >= 3) seen = seen.select(0, 0);
  return seen;
}

std::string TraceRecorder::project_formula(const std::string& key) const {
  const char* word = key == "q" ? "query" : (key == "k" ? "key" : "value");
  const char* bias = setup_.qkv_bias ? " + bias" : "";
  const char* input = setup_.cross && key != "q" ? "kv" : "x";
  const char* of_head = setup_.list_of_heads ? "[h]" : "";
  const int part = key == "q" ? 0 : (key == "k" ? 1 : 2);
  switch (*setup_.form) {
    case Form::separate:
    case Form::heads:
      return format_text("{} = {} W_{}{}{}", key, input, word, of_head, bias);
    case Form::raw:
      return format_text("{} = {} @ W_{}", key, input, word);
    case Form::linear:
      return format_text("{} = {}_linear({})", key, key, input);
    case Form::joined:
      return format_text("{} = qkv_proj({}).chunk(3)[{}]", key, input, part);
    case Form::torch:
      return format_text("{} = in_proj({}).chunk(3)[{}]", key, input, part);
    case Form::gpt2:
      return format_text("{} = c_attn({}).chunk(3)[{}]", key, input, part);
  }
  return key;
}

std::string TraceRecorder::formula(const std::string& key, const TensorView& value) const {
  const int last = value.rank() - 1;
  if (key == "x") return "x";
  const std::string letter = key.substr(0, 1);
  if (is_projected(key) || projects_each_head(key)) return project_formula(letter);
  if (key.ends_with("_split"))
    return format_text("{}.view{}", letter, to_tuple_string(value.shape()));
  if (key.ends_with("_rotated")) return format_text("rotate({}, position)", letter);
  if (is_projected_heads(key)) {
    return format_text("{}.transpose({}, {})", letter, last - 2, last - 1);
  }
  if (key == "scores") {
    const char* queries = setup_.form ? "q" : "x";
    const char* keys = setup_.form ? "k" : "x";
    const int own = setup_.list_of_heads ? last - 1 : last;  // a head alone has no axis of heads
    return format_text("{} @ {}.transpose({}, {})", queries, keys, own - 1, own);
  }
  if (key == "scores_masked") {
    if (setup_.merely_causal) return "future = -inf";
    return setup_.mask == "none" ? "nothing hidden" : setup_.mask;
  }
  if (key == "scores_scaled") {
    return !setup_.form ? "scores" : format_text("scores / sqrt({})", setup_.head_dim);
  }
  if (key == "weights") {
    return !setup_.form ? "softmax(scores)"
                        : format_text("softmax(scores / sqrt({}))", setup_.head_dim);
  }
  if (key == "weights_dropped") return format_text("dropout(weights, {})", setup_.dropout);
  if (key == "context_heads") return setup_.form ? "weights @ v" : "weights @ x";
  if (key == "context") {
    return setup_.list_of_heads ? "cat(heads, dim=-1)" : "transpose, contiguous, view";
  }
  return setup_.form == Form::gpt2 ? "c_proj(context)" : "out_proj(context)";
}

std::string TraceRecorder::mask_note(const Step& step) const {
  const dim_t rows = step.shape[-2];
  const dim_t columns = step.shape[-1];
  if (setup_.merely_causal && setup_.context_length > 0) {
    return format_text("{} x {} cut to {} x {}", setup_.context_length, setup_.context_length, rows,
                       columns);
  }
  return "";
}

std::string TraceRecorder::note(const Step& step) const {
  if (step.key == "x" && !setup_.form) return "query, key and value at once";
  if (setup_.list_of_heads && (step.key.ends_with("_heads") || step.key == "scores")) {
    const int heads = step.shape.rank() - 3;
    return format_text("{} of {}", step.shape[heads],
                       to_tuple_string(step.value.select(heads, 0).shape()));
  }
  if (step.key.ends_with("_split")) return step.moved ? "copied" : "same memory";
  if (is_projected_heads(step.key)) return step.moved ? "copied" : "same memory, new strides";
  if (step.key == "scores_masked") return mask_note(step);
  if (step.key == "scores_scaled" && !setup_.form) return "no scale";
  if (step.key == "weights")
    return has_empty_row(step.value) ? "rows sum to 1, empty ones to 0" : "every row sums to 1";
  if (step.key == "weights_dropped") {
    if (setup_.dropout == 0.0) return "p = 0: nothing dropped";
    return setup_.training ? "" : "eval mode: nothing dropped";
  }
  if (step.key == "context" && step.name == std::string("CONCAT")) {
    return step.moved
               ? format_text("{} bytes copied", with_commas(static_cast<dim_t>(step.value.bytes())))
               : "same memory";
  }
  return "";
}

std::string TraceRecorder::topic(const Step& step) const {
  if (projects_each_head(step.key)) return "PROJECT EACH HEAD";
  if (setup_.list_of_heads && step.key == "context") return "CONCAT A LIST";
  if (step.key == "scores_masked" && setup_.mask == "none") return "NO MASK";
  if (setup_.form) return "";
  if (step.key == "scores") return "SCORES OF ROWS";
  if (step.key == "scores_scaled") return "NO SCALE";
  return step.key == "context" ? "MEAN OF ROWS" : "";
}

Trace TraceRecorder::take() {
  trace_.title = setup_.title;
  const auto place_of = [&](const char* key) {
    return std::find_if(trace_.steps.begin(), trace_.steps.end(),
                        [&](const Step& s) { return s.key == key; });
  };
  trace_.mask_first = place_of("scores_masked") < place_of("scores_scaled");
  return std::move(trace_);
}

bool Trace::has(const std::string& key) const {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& s) { return s.key == key; });
}

const Step& Trace::at(const std::string& key) const {
  std::vector<std::string> keys;
  for (const Step& step : steps) {
    if (step.key == key) return step;
    keys.push_back(step.key);
  }
  fail(Error::Kind::value, "trace: there is no step {}; this trace has {}", key,
       joined(keys, ", "));
}

}  // namespace cephalo
