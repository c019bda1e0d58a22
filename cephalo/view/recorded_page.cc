#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/view/head_json.h"
#include "cephalo/view/opening_head.h"
#include "cephalo/view/page.h"
#include "cephalo/view/page_parts.h"
#include "cephalo/view/recorded_file.h"
#include "cephalo/view/report_json.h"

namespace cephalo {
namespace {

Json probe_json(const std::optional<ProbeOptions>& probe) {
  if (!probe) return {};
  return {{"length", probe->length}, {"draws", probe->draws}, {"seed", probe->seed}};
}

// {"id", "piece"}: what the page shows comes from the piece.
Json short_token(const LookToken& token) {
  Json json = token_json(token);
  json.erase("text");
  return json;
}

bool is_sink(const HeadReport& head) {
  return std::any_of(head.labels.begin(), head.labels.end(),
                     [](const LabelScore& l) { return l.label == HeadLabel::sink; });
}

// With how much of what a sink adds comes from the first token: the page says so.
Json heads_json(const LookReport& report) {
  Json heads = Json::array();
  for (const HeadReport& head : report.heads) {
    Json json = head_json(head);
    if (is_sink(head)) {
      json["first_share"] = first_token_share(*report.recording, {head.layer, head.head});
    }
    heads.push_back(std::move(json));
  }
  return heads;
}

Json sizes_json(const GptOptions& o) {
  return {{"num_layers", o.num_layers},         {"num_heads", o.num_heads},
          {"head_dim", o.head_dim()},           {"d_model", o.d_model},
          {"context_length", o.context_length}, {"vocab_size", o.vocab_size}};
}

// model: of page_model_json
Json data_json(const LookReport& report, const RecordedPlan& plan, Json model, Json heads) {
  const Gpt& gpt = report.recording->model();
  Json tokens = Json::array();
  for (const LookToken& token : report.tokens) tokens.push_back(short_token(token));
  Json predictions = Json::array();
  for (const LookPrediction& prediction : report.predictions) {
    Json json = short_token(prediction.token);
    json["probability"] = prediction.probability;
    predictions.push_back(std::move(json));
  }
  const HeadPlace opening = opening_head(report);
  Json full;  // null: all heads
  if (plan.form == RecordedForm::partly) {
    full = Json::array();
    for (const HeadPlace& place : plan.full) {
      full.push_back(place.layer * gpt.options().num_heads + place.head);
    }
  }
  model["trained_context_length"] = count_json(report.trained_context_length);
  return {{"version", 1},
          {"text", report.text},
          {"model", std::move(model)},
          {"probe", probe_json(report.probe)},
          {"recorded",
           {{"sizes", sizes_json(gpt.options())},
            {"tokens", std::move(tokens)},
            {"heads", std::move(heads)},
            {"predictions", std::move(predictions)},
            {"opening", {{"layer", opening.layer}, {"head", opening.head}}},
            {"full", std::move(full)},
            {"strongest", kStrongestKeys}}}};
}

// Of a page without its recording: without what takes long to know, and is short.
std::int64_t bytes_around(const LookReport& report) {
  Json heads = Json::array();
  for (const HeadReport& head : report.heads) heads.push_back(head_json(head));
  Json model = {{"name", report.model},
                {"parameters", "01234567"},
                {"dtype", name(report.recording->model().options().dtype)},
                {"untrained", false}};
  return PageWriter::bytes_without_blocks(
      data_json(report, {}, std::move(model), std::move(heads)));
}

std::int64_t page_bytes(const LookReport& report, const RecordedPlan& plan, std::int64_t around) {
  return around + PageWriter::block_bytes(recorded_file_bytes(*report.recording, plan));
}

// Of the two ways to keep all heads, the smaller one.
RecordedPlan in_full(const LookReport& report, std::int64_t around) {
  const dim_t tokens = report.recording->tokens();
  RecordedPlan best;
  for (const RecordedForm form : {RecordedForm::heads, RecordedForm::inputs}) {
    RecordedPlan plan{.form = form,
                      .pooled = std::ssize(report.heads) * tokens * tokens > kMostPageWeights};
    plan.bytes = plan.bytes_in_full = page_bytes(report, plan, around);
    if (best.bytes == 0 || plan.bytes < best.bytes) best = plan;
  }
  return best;
}

void require_head(const LookReport& report, const HeadPlace& place) {
  const bool there = 0 <= place.layer && place.layer < report.num_layers() && 0 <= place.head &&
                     place.head < report.num_heads();
  require(there, "page: there is no layer {} head {} to keep; the model has {} layers of {} heads",
          place.layer, place.head, report.num_layers(), report.num_heads());
}

// Of the heads that are worth it, as many as there is room for.
RecordedPlan as_much_as_fits(const LookReport& report, RecordedPlan plan, std::int64_t around,
                             std::int64_t most) {
  for (const HeadReport* head : heads_to_show(report, report.heads.size())) {
    RecordedPlan larger = plan;
    larger.full.push_back({head->layer, head->head});
    larger.bytes = page_bytes(report, larger, around);
    if (larger.bytes > most) break;
    plan = std::move(larger);
  }
  return plan;
}

}  // namespace

RecordedPlan plan_recorded_page(const LookReport& report, const RecordedOptions& options) {
  for (const HeadPlace& place : options.heads) require_head(report, place);
  const std::int64_t around = bytes_around(report);
  RecordedPlan plan = in_full(report, around);
  if (plan.bytes <= options.most_bytes) return plan;

  plan.form = RecordedForm::partly;
  plan.pooled = true;
  plan.full = options.heads;
  plan.bytes = page_bytes(report, plan, around);
  require(plan.bytes <= options.most_bytes,
          "page: {} tokens, with {} of {} heads in full, take {}, and the page may have {}; raise "
          "most_bytes or record a part of the text",
          report.tokens.size(), plan.full.size(), report.heads.size(), size_text(plan.bytes),
          size_text(options.most_bytes));
  return options.heads.empty() ? as_much_as_fits(report, plan, around, options.most_bytes) : plan;
}

std::string recorded_page_html(const LookReport& report, const RecordedPlan& plan) {
  const Gpt& gpt = report.recording->model();
  PageWriter page(data_json(report, plan,
                            page_model_json(report.model, gpt, name(gpt.options().dtype)),
                            heads_json(report)));
  page.add_block("recording", recorded_file(*report.recording, plan));
  return std::move(page).finish();
}

}  // namespace cephalo
