// to_json of a text under experiments.

#include "cephalo/view/effects_report.h"
#include "cephalo/view/report_json.h"

namespace cephalo {
namespace {

Json influence_json(const HeadInfluence& head) {
  return {{"layer", head.place.layer},
          {"head", head.place.head},
          {"logit_change", head.logit_change},
          {"direct", head.direct},
          {"source", head.source},
          {"source_direct", head.source_direct},
          {"source_weight", head.source_weight},
          {"words", head.words}};
}

Json heads_json(const EffectsReport& report) {
  const HeadEffects& effects = *report.heads;
  Json strongest = Json::array();
  for (const HeadInfluence& head : effects.strongest) strongest.push_back(influence_json(head));
  return {{"done", effects.done},
          {"logit_change", tensor_json(effects.logit_change)},
          {"divergence", tensor_json(effects.divergence)},
          {"loss_change", tensor_json(effects.loss_change)},
          {"strongest", std::move(strongest)}};
}

Json place_json(const HeadPlace& place) {
  return {{"layer", place.layer}, {"head", place.head}};
}

Json pairs_json(const PairEffects& effects) {
  Json pairs = Json::array();
  for (const PairEffect& pair : effects.pairs) {
    pairs.push_back({{"a", place_json(pair.a)},
                     {"b", place_json(pair.b)},
                     {"together", pair.together},
                     {"apart", number_json(pair.apart)}});
  }
  return {{"done", effects.pairs.size()}, {"all", effects.all}, {"pairs", std::move(pairs)}};
}

Json edges_json(const EdgeEffects& effects) {
  return {{"query", effects.query},
          {"kind", name(effects.kind)},
          {"done", effects.done},
          {"all", effects.all},
          {"logit_change", tensor_json(effects.logit_change)}};
}

Json ablation_json(const Ablation& ablation) {
  Json changes = Json::array();
  for (const Change& change : ablation.changes) {
    changes.push_back({{"part", to_string(change)}, {"kind", name(change.kind)}});
  }
  Json next = Json::array();
  for (const Ablation::Next& token : ablation.next) {
    Json json = token_json(token.token);
    json["before"] = token.before;
    json["after"] = token.after;
    next.push_back(std::move(json));
  }
  return {{"changes", std::move(changes)},           {"next", std::move(next)},
          {"logit_change", ablation.logit_change},   {"divergence", ablation.divergence},
          {"losses_before", ablation.losses_before}, {"losses_after", ablation.losses_after}};
}

Json labels_json(const LookReport& look) {
  Json layers = Json::array();
  for (dim_t l = 0; l < look.num_layers(); ++l) {
    Json heads = Json::array();
    for (dim_t h = 0; h < look.num_heads(); ++h) {
      heads.push_back(labels_of(look.at({l, h})));
    }
    layers.push_back(std::move(heads));
  }
  return layers;
}

}  // namespace

std::string to_json(const EffectsReport& report) {
  const LookReport& look = report.look;
  Json json = report_head("cephalo.effects/1", look.model, look.recording->model(), look.tokens,
                          look.begun);
  json["text"] = look.text;
  json["trained_context_length"] = count_json(look.trained_context_length);
  json["kind"] = name(report.options.kind);
  const bool scaled = report.options.kind == ChangeKind::scale;
  json["factor"] = scaled ? Json(report.options.factor) : Json();
  json["labels"] = labels_json(look);
  json["predictions"] = Json::array();
  for (const LookPrediction& next : look.predictions) {
    json["predictions"].push_back(prediction_json(next));
  }
  json["predicted"] = prediction_json(report.predicted);
  json["predicted"]["logit"] = report.logit;
  json["losses"] = report.losses;
  json["heads"] = report.heads ? heads_json(report) : Json();
  json["pairs"] = report.pairs ? pairs_json(*report.pairs) : Json();
  json["edges"] = report.edges ? edges_json(*report.edges) : Json();
  json["ablation"] = report.ablation ? ablation_json(*report.ablation) : Json();
  return json.dump({.replace = true}) + "\n";
}

}  // namespace cephalo
