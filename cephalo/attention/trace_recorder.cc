#include "cephalo/attention/trace_recorder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cephalo/core/fail.h"

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

// Split, transpose and concat: the one-head rungs of the book have no such steps, they show q, k,
// v, then scores, then context.
bool is_about_heads(const KeyInfo& info) {
  return info.key.ends_with("_split") || info.key == "context" ||
         (info.key.ends_with("_heads") && info.key != kContextHeads);
}

// 18432 -> "18,432"
std::string with_commas(dim_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) text += ',';
    text += digits[at];
  }
  return text;
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
  if (setup_.one_head && is_about_heads(info)) return;

  const TensorView seen = without_extra_axes(value);
  const auto source = memory_.find(info.looks_at);
  Step step{.number = info.number,
            .name = info.name,
            .key = setup_.one_head && info.key == kContextHeads ? "context" : std::string(info.key),
            .formula = formula(key, seen),
            .shape = seen.shape(),
            .strides = seen.strides(),
            .moved = source == memory_.end() || source->second != value.data(),
            .note = "",
            .value = Tensor::copy(seen)};
  step.note = note(step);
  trace_.steps.push_back(std::move(step));
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
  const int part = key == "q" ? 0 : (key == "k" ? 1 : 2);
  switch (*setup_.form) {
    case Form::separate:
    case Form::heads:
      return fmt::format("{} = {} W_{}{}", key, input, word, bias);
    case Form::raw:
      return fmt::format("{} = {} @ W_{}", key, input, word);
    case Form::linear:
      return fmt::format("{} = {}_linear({})", key, key, input);
    case Form::fused:
      return fmt::format("{} = qkv_proj({}).chunk(3)[{}]", key, input, part);
    case Form::torch:
      return fmt::format("{} = in_proj({}).chunk(3)[{}]", key, input, part);
    case Form::gpt2:
      return fmt::format("{} = c_attn({}).chunk(3)[{}]", key, input, part);
  }
  return key;
}

std::string TraceRecorder::formula(const std::string& key, const TensorView& value) const {
  const int last = value.rank() - 1;
  if (key == "x") return "x";
  if (key == "q" || key == "k" || key == "v") return project_formula(key);
  const std::string letter = key.substr(0, 1);
  if (key.ends_with("_split"))
    return fmt::format("{}.view{}", letter, to_tuple_string(value.shape()));
  if (key.ends_with("_rotated")) return fmt::format("rotate({}, position)", letter);
  if (key.ends_with("_heads") && key != "context_heads") {
    return fmt::format("{}.transpose({}, {})", letter, last - 2, last - 1);
  }
  if (key == "scores") {
    const char* queries = setup_.form ? "q" : "x";
    const char* keys = setup_.form ? "k" : "x";
    return fmt::format("{} @ {}.transpose({}, {})", queries, keys, last - 1, last);
  }
  if (key == "scores_masked") {
    if (setup_.merely_causal) return "future = -inf";
    return setup_.mask == "none" ? "nothing hidden" : setup_.mask;
  }
  if (key == "scores_scaled") {
    return !setup_.form ? "scores" : fmt::format("scores / sqrt({})", setup_.head_dim);
  }
  if (key == "weights") {
    return !setup_.form ? "softmax(scores)"
                        : fmt::format("softmax(scores / sqrt({}))", setup_.head_dim);
  }
  if (key == "weights_dropped") return fmt::format("dropout(weights, {})", setup_.dropout);
  if (key == "context_heads") return setup_.form ? "weights @ v" : "weights @ x";
  if (key == "context") return "transpose, contiguous, view";
  return setup_.form == Form::gpt2 ? "c_proj(context)" : "out_proj(context)";
}

std::string TraceRecorder::mask_note(const Step& step) const {
  const dim_t rows = step.shape[-2];
  const dim_t columns = step.shape[-1];
  if (setup_.merely_causal && setup_.context_length > 0) {
    return fmt::format("{} x {} cut to {} x {}", setup_.context_length, setup_.context_length, rows,
                       columns);
  }
  return "";
}

std::string TraceRecorder::note(const Step& step) const {
  if (step.key.ends_with("_split")) return step.moved ? "copied" : "same memory";
  if (step.key.ends_with("_heads") && step.key != "context_heads") {
    return step.moved ? "copied" : "same memory, new strides";
  }
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
               ? fmt::format("{} bytes copied", with_commas(static_cast<dim_t>(step.value.bytes())))
               : "same memory";
  }
  return "";
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
       fmt::join(keys, ", "));
}

}  // namespace cephalo
