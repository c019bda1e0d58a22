#include "cephalo/io/json_value.h"
#include "cephalo/view/head_trace.h"
#include "cephalo/view/report_head.h"

namespace cephalo {
namespace {

// t: [count], float64
Json numbers(const TensorView& t) {
  Json json = Json::array();
  for (dim_t d = 0; d < t.dim(0); ++d) json.push_back(t.at({d}));
  return json;
}

Json keys_json(const HeadTrace& trace) {
  Json keys = Json::array();
  for (std::size_t j = 0; j < trace.keys.size(); ++j) {
    const TracedKey& key = trace.keys[j];
    keys.push_back({{"i", j},
                    {"product", key.product},
                    {"score", key.score},
                    {"weight", key.weight},
                    {"adds", key.adds},
                    {"k", numbers(trace.k[static_cast<dim_t>(j)])},
                    {"v", numbers(trace.v[static_cast<dim_t>(j)])}});
  }
  return keys;
}

Json heads_json(const HeadTrace& trace) {
  const std::vector<double> shares = trace.shares();
  Json heads = Json::array();
  for (std::size_t h = 0; h < trace.head_norms.size(); ++h) {
    heads.push_back({{"head", h},
                     {"norm", trace.head_norms[h]},
                     {"share", shares.empty() ? Json() : Json(shares[h])}});
  }
  return heads;
}

Json batch_json(const HeadTrace& trace) {
  Json texts = Json::array();
  for (const TracedSequence& one : trace.batch) {
    texts.push_back({{"text", one.text}, {"tokens", one.tokens}});
  }
  return {{"sequence", trace.sequence},
          {"padded_to", trace.padded_to()},
          {"padding_id", trace.padding_id},
          {"texts", std::move(texts)}};
}

Json rotary_json(const std::optional<Rotary>& rotary) {
  if (!rotary) return {};
  return {{"base", rotary->base}, {"interleaved", rotary->interleaved}};
}

}  // namespace

std::string to_json(const HeadTrace& trace, const LookModel& model) {
  Json json = report_head("cephalo.trace/1", model, trace.tokens, trace.begun);
  json.add("title", trace.model + ": layer " + std::to_string(trace.layer) + " head " +
                        std::to_string(trace.head));
  json.add("text", trace.text);
  json.add("trained", true);
  json.add("trained_context_length",
           trace.trained_context_length ? Json(*trace.trained_context_length) : Json());
  // What the trace of a layer that nobody trained has, and this has not.
  for (const char* name : {"rung", "seed", "mask_first", "steps"}) json.add(name, nullptr);
  json.add("layer", trace.layer);
  json.add("head", trace.head);
  json.add("token", trace.token);
  json.add("head_dim", trace.q.numel());
  json.add("scale", trace.scale);
  json.add("rotary", rotary_json(trace.rotary));
  json.add("q", numbers(trace.q));
  json.add("keys", keys_json(trace));
  json.add("context", numbers(trace.context));
  json.add("heads", heads_json(trace));
  json.add("added_norm", trace.added_norm);
  json.add("bias_norm", trace.bias_norm);
  json.add("batch", batch_json(trace));
  return json.dump({.replace = true}) + "\n";
}

}  // namespace cephalo
