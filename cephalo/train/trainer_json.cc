#include "cephalo/train/trainer_json.h"

#include <nlohmann/json.hpp>

#include "cephalo/core/fail.h"
#include "cephalo/core/version.h"

namespace cephalo {
namespace {

using Json = nlohmann::json;

// One list of fields for both ways: Field is called with each name and the member it stands for.
template <typename Options, typename Field>
void for_trainer_options(Options& o, Field&& field) {
  field("learning_rate", o.schedule.learning_rate);
  field("warmup", o.schedule.warmup);
  field("steps", o.schedule.steps);
  field("min_lr_share", o.schedule.min_lr_share);
  field("batch", o.batch);
  field("context_length", o.context_length);
  field("accumulate", o.accumulate);
  field("beta1", o.beta1);
  field("beta2", o.beta2);
  field("eps", o.eps);
  field("weight_decay", o.weight_decay);
  field("clip", o.clip);
  field("max_skipped", o.max_skipped);
}

template <typename Options, typename Field>
void for_model_sizes(Options& o, Field&& field) {
  field("vocab_size", o.vocab_size);
  field("context_length", o.context_length);
  field("d_model", o.d_model);
  field("num_heads", o.num_heads);
  field("num_layers", o.num_layers);
  field("d_mlp", o.d_mlp);
  field("dropout", o.dropout);
  field("qkv_bias", o.qkv_bias);
  field("tied_head", o.tied_head);
  field("norm_epsilon", o.norm_epsilon);
  field("rotary_interleaved", o.rotary.interleaved);
  field("rotary_base", o.rotary.base);
}

template <typename Progress, typename Field>
void for_progress(Progress& p, Field&& field) {
  field("step", p.step);
  field("updates", p.updates);
  field("passes", p.passes);
  field("rows", p.rows);
  field("skipped", p.skipped);
}

auto into(Json& json) {
  return [&json](const char* name, const auto& value) { json[name] = value; };
}

auto out_of(const Json& json) {
  return [&json](const char* name, auto& value) { json.at(name).get_to(value); };
}

constexpr const char* kPositions[] = {"learned", "rotary"};
constexpr const char* kActivations[] = {"gelu_tanh", "gelu_erf"};
constexpr DType kTypes[] = {DType::f32, DType::f64};

template <typename Words>
std::size_t place_of(const Words& words, const std::string& word) {
  for (std::size_t place = 0; place < std::size(words); ++place) {
    if (words[place] == word) return place;
  }
  throw Error(Error::Kind::value, "unknown word " + word);
}

Json model_to_json(const GptOptions& o) {
  Json json;
  for_model_sizes(o, into(json));
  json["positions"] = kPositions[static_cast<std::size_t>(o.positions)];
  json["activation"] = kActivations[static_cast<std::size_t>(o.activation)];
  json["dtype"] = name(o.dtype);
  json["seed"] = o.seed.value();
  return json;
}

GptOptions model_from_json(const Json& json) {
  GptOptions o;
  for_model_sizes(o, out_of(json));
  o.positions = static_cast<Positions>(place_of(kPositions, json.at("positions")));
  o.activation = static_cast<Activation>(place_of(kActivations, json.at("activation")));
  const std::string types[] = {name(kTypes[0]), name(kTypes[1])};
  o.dtype = kTypes[place_of(types, json.at("dtype"))];
  o.seed = json.at("seed").get<std::uint64_t>();
  return o;
}

}  // namespace

std::string to_json(const TrainerState& state) {
  Json progress;
  for_progress(state.progress, into(progress));
  Json options;
  for_trainer_options(state.summary.options, into(options));
  const Json json = {{"progress", progress},
                     {"options", options},
                     {"model", model_to_json(state.summary.model)},
                     {"isa", state.summary.isa},
                     {"notes", Json::parse(state.summary.notes)},
                     {"written_by", "cephalo " CEPHALO_VERSION}};
  return json.dump();
}

TrainerState trainer_state_from_json(const std::string& text, const std::string& path) {
  TrainerState state;
  try {
    const Json json = Json::parse(text);
    for_progress(state.progress, out_of(json.at("progress")));
    for_trainer_options(state.summary.options, out_of(json.at("options")));
    state.summary.model = model_from_json(json.at("model"));
    json.at("isa").get_to(state.summary.isa);
    state.summary.notes = json.at("notes").dump();
    state.summary.step = state.progress.step;
  } catch (const std::exception& error) {
    fail(Error::Kind::value, "{}: state: {}", path, error.what());
  }
  const TrainerProgress& p = state.progress;
  require(p.step >= 0 && p.updates >= 0 && p.passes >= 0 && p.rows >= 0 && p.updates <= p.step,
          "{}: state: step {}, updates {}, passes {} and rows {} do not fit together", path, p.step,
          p.updates, p.passes, p.rows);
  return state;
}

}  // namespace cephalo
