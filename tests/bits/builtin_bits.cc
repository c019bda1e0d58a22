#include "cephalo/model/builtin.h"
#include "cephalo/model/generate.h"
#include "cephalo/view/head_metrics.h"
#include "cephalo/view/recording.h"
#include "tests/bits/bits.h"

namespace cephalo::testing {
namespace {

constexpr const char* kStory =
    "Once upon a time there was a little girl who lived in a house by the sea. Once upon a time "
    "there was a little boy who lived in a house in the woods.";
constexpr const char* kCat = "The cat sat on the mat because it was tired.";

void add_score(Digest& digest, const Score& score) {
  digest.add(score.value).add(static_cast<double>(score.rows)).add(score.uniform);
}

void add_metrics(Digest& digest, const HeadMetrics& m) {
  for (const Score& score : {m.previous, m.first, m.current, m.duplicate, m.induction, m.entropy}) {
    add_score(digest, score);
  }
  digest.add(m.effective_tokens).add(m.confidence).add(m.distance);
}

void add_logits(Bits& bits, const TextModel& model) {
  for (const auto& [name, text] : {std::pair{"story", kStory}, std::pair{"cat", kCat}}) {
    const std::vector<std::int64_t> ids = model.encode(text, true);
    GptCall call;
    call.threads = bits.threads();
    bits.add(std::string("builtin/ids/") + name, ids);
    bits.add(std::string("builtin/logits/") + name,
             model.gpt(TensorView(ids.data(), {std::ssize(ids)}), call));
  }
}

void add_generated(Bits& bits, TextModel& model) {
  model.gpt.prepare();
  const std::vector<std::int64_t> prompt = model.encode("Once upon a time", true);
  const auto add = [&](const char* name, GenerateOptions options) {
    options.new_tokens = 24;
    options.seed = 11;
    options.threads = bits.threads();
    bits.add(std::string("builtin/generated/") + name, generate(model.gpt, prompt, options).ids);
  };
  add("greedy", {.sampling = {.temperature = 0.0}});
  add("sampled", {.sampling = {.temperature = 0.8, .top_k = 40}});
  add("nucleus", {.sampling = {.top_p = 0.9, .repetition_penalty = 1.2}});
  add("uncached", {.sampling = {.temperature = 0.8, .top_k = 40}, .cached = false});
}

void add_recording(Bits& bits, const TextModel& model) {
  const Recording story(model.gpt, model.encode(kStory, true), bits.threads());
  for (dim_t layer = 0; layer < story.num_layers(); ++layer) {
    const std::string end = "/" + std::to_string(layer);
    bits.add("builtin/weights" + end, story.weights(layer));
    bits.add("builtin/row_sums" + end, story.row_sums(layer));
    bits.add("builtin/value_norms" + end, story.value_norms(layer));
    Digest digest;
    for (const HeadMetrics& m : head_metrics(story, layer)) add_metrics(digest, m);
    for (const double share : first_token_share(story, layer)) digest.add(share);
    bits.add_digest("builtin/metrics" + end, digest);
    const PooledWeights pooled = story.pooled(layer, 1, 9);
    bits.add("builtin/pooled" + end, pooled.largest, pooled.mean);
  }
  Digest predictions;
  for (const Prediction& p : story.predictions(10)) {
    predictions.add(static_cast<double>(p.id)).add(p.probability);
  }
  bits.add_digest("builtin/predictions", predictions);
}

void add_probe(Bits& bits, const TextModel& model) {
  ProbeOptions options;
  options.length = 25;
  options.bos_token_id = model.first_token();
  options.threads = bits.threads();
  Digest digest;
  for (const auto& layer : probe_heads(model.gpt, options)) {
    for (const ProbeScores& head : layer) {
      add_score(digest, head.duplicate);
      add_score(digest, head.induction);
    }
  }
  bits.add_digest("builtin/probe", digest);
}

}  // namespace

void add_builtin_bits(Bits& bits) {
  TextModel model = builtin_model();
  add_logits(bits, model);
  add_recording(bits, model);
  add_probe(bits, model);
  add_generated(bits, model);
}

}  // namespace cephalo::testing
