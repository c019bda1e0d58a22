#include "cephalo/model/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check_sampling(const SamplingOptions& o, const char* function) {
  require(o.temperature >= 0.0 && std::isfinite(o.temperature),
          "{}: temperature ({}) must be >= 0 and finite", function, o.temperature);
  require(o.top_k >= 0, "{}: top_k ({}) must be >= 0", function, o.top_k);
  require(o.top_p > 0.0 && o.top_p <= 1.0, "{}: top_p ({}) must be in (0, 1]", function, o.top_p);
  require(o.repetition_penalty > 0.0 && std::isfinite(o.repetition_penalty),
          "{}: repetition_penalty ({}) must be > 0 and finite", function, o.repetition_penalty);
  require(o.repetition_window >= 0, "{}: repetition_window ({}) must be >= 0", function,
          o.repetition_window);
}

std::vector<double> as_doubles(const TensorView& logits) {
  const Tensor wide = Tensor::copy(logits, DType::f64);
  const auto* first = wide.data_as<double>();
  return {first, first + wide.numel()};
}

// logits: of every id of a vocabulary. Each id of the window counts once, however often it stands
// there.
void penalise_repetition(std::vector<double>& logits, const SamplingOptions& o,
                         std::span<const std::int64_t> text, const char* function) {
  if (o.repetition_penalty == 1.0) return;
  if (o.repetition_window > 0 && std::ssize(text) > o.repetition_window) {
    text = text.last(static_cast<std::size_t>(o.repetition_window));
  }
  for (const std::int64_t id : std::set<std::int64_t>(text.begin(), text.end())) {
    require(id >= 0 && id < std::ssize(logits), "{}: id {} of the text is not in [0, {})", function,
            id, logits.size());
    double& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0.0 ? logit * o.repetition_penalty : logit / o.repetition_penalty;
  }
}

// The model on a text that grows: logits after its last token, from a window of it.
class Window {
 public:
  Window(const Gpt& model, const GenerateOptions& options)
      : model_(model), options_(options), cache_(model.new_cache(1)) {}

  // text: all ids so far -> logits: [vocab_size]
  Tensor logits_after(const std::vector<std::int64_t>& text) {
    const dim_t size = std::ssize(text);
    // Keys were made at positions that they no longer have.
    if (size - begin_ > model_.options().context_length) {
      begin_ = size - tokens_seen(model_.options(), size);
      seen_ = begin_;
      cache_.clear();
    }
    const dim_t first = options_.cached ? seen_ : begin_;
    const TensorView ids(text.data() + first, {1, size - first});
    GptCall call{.last_only = true, .threads = options_.threads};
    if (options_.cached) call.cache = &cache_;
    seen_ = size;
    return model_(ids, call).reshaped({model_.options().vocab_size});
  }

 private:
  const Gpt& model_;
  const GenerateOptions& options_;
  GptCache cache_;
  dim_t begin_ = 0;  // of the window in the text
  dim_t seen_ = 0;   // ids that are in the cache, or were evicted
};

}  // namespace

dim_t tokens_seen(const GptOptions& model, dim_t tokens) {
  return tokens <= model.context_length ? tokens : std::max<dim_t>(1, model.context_length / 2);
}

std::int64_t sample_token(const TensorView& logits, const SamplingOptions& options,
                          TorchGenerator& generator, std::span<const std::int64_t> text) {
  constexpr const char* kName = "sample_token";
  check_sampling(options, kName);
  require(logits.rank() == 1 && logits.numel() > 0, "{}: logits {} must be [vocab_size]", kName,
          logits.shape());
  std::vector<double> values = as_doubles(logits);
  penalise_repetition(values, options, text, kName);
  for (std::size_t id = 0; id < values.size(); ++id) {
    require(!std::isnan(values[id]) && values[id] < HUGE_VAL,
            "{}: the logit of id {} is {}; the model's parameters or its input are not finite",
            kName, id, values[id]);
  }
  const auto largest = std::max_element(values.begin(), values.end());
  if (options.temperature == 0.0) return largest - values.begin();
  // Ids by their logits, as far as they can be chosen from.
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto before = [&](std::int64_t a, std::int64_t b) {
    const double x = values[static_cast<std::size_t>(a)];
    const double y = values[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const dim_t count = options.top_k > 0 ? std::min<dim_t>(options.top_k, std::ssize(order))
                                        : static_cast<dim_t>(order.size());
  std::partial_sort(order.begin(), order.begin() + count, order.end(), before);
  order.resize(static_cast<std::size_t>(count));
  std::vector<double> weights;
  for (const std::int64_t id : order) {
    weights.push_back(
        std::exp((values[static_cast<std::size_t>(id)] - *largest) / options.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1.0) {  // the one that reaches p is still in
    double reached = 0.0;
    std::size_t kept = 0;
    while (kept < weights.size() && reached < options.top_p * total) reached += weights[kept++];
    weights.resize(kept);
    total = reached;
  }
  double left = generator.uniform53() * total;
  for (std::size_t k = 0; k + 1 < weights.size(); ++k) {
    if (left < weights[k]) return order[k];
    left -= weights[k];
  }
  return order[weights.size() - 1];
}

double Generated::tokens_per_second() const {
  return seconds > 0.0 ? static_cast<double>(ids.size()) / seconds : 0.0;
}

Generated generate(const Gpt& model, const std::vector<std::int64_t>& prompt,
                   const GenerateOptions& options) {
  constexpr const char* kName = "generate";
  require(!prompt.empty(), "{}: the prompt is empty; it needs at least one id", kName);
  require(options.new_tokens >= 0, "{}: new_tokens ({}) must be >= 0", kName, options.new_tokens);
  check_sampling(options.sampling, kName);
  for (const std::int64_t id : options.stop_tokens) {
    require(id >= 0 && id < model.options().vocab_size,
            "{}: stop token {} is outside the vocabulary of {}", kName, id,
            model.options().vocab_size);
  }
  Generated result;
  if (options.new_tokens == 0) return result;
  TorchGenerator generator(options.seed);
  Window window(model, options);
  std::vector<std::int64_t> text = prompt;
  auto begin = Clock::now();
  Tensor logits = window.logits_after(text);
  result.prompt_seconds = seconds_since(begin);
  begin = Clock::now();
  while (true) {
    const std::int64_t id = sample_token(logits, options.sampling, generator, text);
    text.push_back(id);
    result.ids.push_back(id);
    const bool goes_on = !options.on_token || options.on_token(id);
    result.stopped = !goes_on || std::find(options.stop_tokens.begin(), options.stop_tokens.end(),
                                           id) != options.stop_tokens.end();
    if (result.stopped || std::ssize(result.ids) == options.new_tokens) break;
    logits = window.logits_after(text);
  }
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace cephalo
