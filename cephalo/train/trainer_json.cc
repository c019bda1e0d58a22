#include "cephalo/train/trainer_json.h"

#include "cephalo/core/fail.h"
#include "cephalo/core/version.h"
#include "cephalo/io/json.h"
#include "cephalo/model/gpt_options_json.h"
#include "cephalo/train/trainer_state.h"

namespace cephalo {
namespace {

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

// Absent in older files, which have one shard, and where there is one.
constexpr const char* kShards = "shards";

// Older versions read it as well, but for what they cannot compute.
Json model_to_json(const GptOptions& model) {
  Json json = to_json(model);
  if (model.num_kv_heads == model.num_heads) json.erase("num_kv_heads");
  return json;
}

// Every step takes the same number of passes, and every pass the same number of rows.
bool fit_together(const TrainerProgress& p, const TrainerOptions& o) {
  std::int64_t passes = 0;
  std::int64_t rows = 0;
  return !__builtin_mul_overflow(p.step, o.accumulate, &passes) &&
         !__builtin_mul_overflow(passes, o.batch, &rows) && p.passes == passes && p.rows == rows &&
         p.updates <= p.step && p.skipped <= p.step - p.updates;
}

}  // namespace

std::string to_json(const TrainerState& state) {
  Json progress;
  for_progress(state.progress, into(progress));
  Json options;
  for_trainer_options(state.summary.options, into(options));
  if (state.summary.options.shards != 1) options[kShards] = state.summary.options.shards;
  Json json = {{"progress", progress},
               {"options", options},
               {"model", model_to_json(state.summary.model)},
               {"isa", state.summary.isa},
               {"notes", parse_json(state.summary.notes, "notes")},
               {"written_by", "cephalo " CEPHALO_VERSION}};
  json.sort_members();
  return json.dump();
}

TrainerState trainer_state_from_json(const std::string& text, const std::string& path) {
  constexpr std::int64_t kMostSize = (std::int64_t{1} << 31) - 1;
  constexpr std::size_t kLongestIsa = 32;
  const std::string name = path + ": state";
  const Json json = parse_json(text, name);
  const JsonMembers members(json, name);
  TrainerState state;
  CheckpointSummary& summary = state.summary;
  for_progress(state.progress, JsonMembers(members.at("progress"), name + ": progress"));
  const JsonMembers options(members.at("options"), name + ": options", kMostSize);
  for_trainer_options(summary.options, options);
  if (members.at("options").contains(kShards)) options(kShards, summary.options.shards);
  summary.model = gpt_options_from_json(members.at("model"), name + ": model", kMostSize);
  members("isa", summary.isa);
  if (summary.isa.size() > kLongestIsa) members.refuse("isa", "the name of an instruction set");
  if (!members.at("notes").is_object()) members.refuse("notes", "a JSON object");
  summary.notes = members.at("notes").dump();
  summary.step = state.progress.step;
  try {
    static_cast<void>(checked_options(summary.model, "model"));
    check_trainer_options(summary.options, summary.model);
    static_cast<void>(
        memory_bytes(summary.model, summary.options.batch, summary.options.context_length));
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", name, error.what());
  }
  const TrainerProgress& p = state.progress;
  require(fit_together(p, summary.options),
          "{}: progress: step {}, updates {}, passes {}, rows {} and skipped {} do not fit "
          "together, nor a batch of {} and accumulate {}",
          name, p.step, p.updates, p.passes, p.rows, p.skipped, summary.options.batch,
          summary.options.accumulate);
  return state;
}

}  // namespace cephalo
