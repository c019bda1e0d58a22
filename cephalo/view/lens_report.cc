#include "cephalo/view/lens_report.h"

#include <algorithm>

#include "cephalo/core/fail.h"
#include "cephalo/text/piece_text.h"
#include "cephalo/view/columns.h"
#include "cephalo/view/report_json.h"
#include "cephalo/view/report_tables.h"

namespace cephalo {
namespace {

std::string layer_name(std::size_t row) {
  return row == 0 ? "embedding" : format_text("layer {}", row - 1);
}

const char* in_words(LensNorm norm) {
  switch (norm) {
    case LensNorm::fresh:
      return "the last norm (taken afresh)";
    case LensNorm::frozen:
      return "the last norm (with the scale that it has in the end)";
    case LensNorm::none:
      break;
  }
  return "no norm (the last column is the model's own and has one)";
}

// "Rabbit .97"
ReportCell cell_of(const LensReport::Cell& cell) {
  constexpr std::size_t kLongest = 8;
  const LookPrediction& first = cell.top.front();
  return {format_text("{} {}", cut(first.token.label, kLongest, false),
                      short_weight(first.probability)),
          first.probability};
}

// From which layer on the last word is the likeliest; the number of rows: never before the end.
std::size_t settled(const LensReport& report) {
  std::size_t row = report.cells.size();
  while (row > 0 && report.cells[row - 1].back().rank == 0) --row;
  return row;
}

ReportTable table_of_tokens(const LensReport& report, std::size_t most_rows) {
  ReportTable table{.title = "the likeliest next token, token by token",
                    .shades = ReportTable::Shades::weights,
                    .least = "0",
                    .most = "1"};
  for (std::size_t row = 0; row < report.cells.size(); ++row) {
    table.columns.push_back(layer_name(row));
  }
  const std::size_t tokens = report.subject.tokens.size();
  for (std::size_t i = tokens - std::min(tokens, most_rows); i < tokens; ++i) {
    table.rows.push_back(numbered(report.subject.tokens[i], static_cast<dim_t>(i)));
    std::vector<ReportCell>& cells = table.cells.emplace_back();
    for (const auto& row : report.cells) cells.push_back(cell_of(row[i]));
  }
  return table;
}

// How sure it is, after each layer, of what it says in the end of the text.
ReportTable table_of_last(const LensReport& report) {
  ReportTable table{
      .title = format_text("after the last token: {}", in_quotes(report.said.back().piece)),
      .shades = ReportTable::Shades::weights,
      .rows = {"probability", "rank", "entropy"}};
  table.cells.resize(table.rows.size());
  for (std::size_t row = 0; row < report.cells.size(); ++row) {
    const LensReport::Cell& cell = report.cells[row].back();
    table.columns.push_back(layer_name(row));
    table.cells[0].push_back({format_text("{:.1f} %", 100.0 * cell.probability), cell.probability});
    table.cells[1].push_back({format_text("{}", cell.rank)});
    table.cells[2].push_back({format_text("{:.2f}", cell.entropy)});
  }
  return table;
}

}  // namespace

const char* name(LensNorm norm) {
  constexpr const char* kNames[] = {"fresh", "frozen", "none"};
  return kNames[static_cast<int>(norm)];
}

LensReport lens_of(const LookModel& model, const std::string& text,
                   const LensReportOptions& options) {
  require(options.top >= 1, "lens: top must be at least 1, not {}", options.top);
  LensReport report{.subject = subject_of(model, text, options.begin, "lens"),
                    .norm = options.norm};
  const KeptPass pass(model.gpt, report.subject.ids(), options.threads);
  const Lens lens = logit_lens(pass, {.norm = options.norm, .top = options.top});
  report.said = look_tokens(model, lens.tokens);
  for (const auto& row : lens.cells) {
    auto& cells = report.cells.emplace_back();
    for (const LensCell& cell : row) {
      auto& made =
          cells.emplace_back(LensReport::Cell{{}, cell.probability, cell.rank, cell.entropy});
      for (const TokenProbability& next : cell.top) {
        made.top.push_back({look_tokens(model, {next.id}).front(), next.probability});
      }
    }
  }
  return report;
}

std::string to_json(const LensReport& report) {
  const ReportSubject& subject = report.subject;
  Json json =
      report_head("cephalo.lens/1", subject.model, *subject.gpt, subject.tokens, subject.begun);
  json["text"] = subject.text;
  json["trained_context_length"] = count_json(subject.trained_context_length);
  json["norm"] = name(report.norm);
  json["said"] = Json::array();
  for (const LookToken& token : report.said) json["said"].push_back(token_json(token));
  json["layers"] = Json::array();
  for (const auto& row : report.cells) {
    Json layer = Json::array();
    for (const LensReport::Cell& cell : row) {
      Json top = Json::array();
      for (const LookPrediction& next : cell.top) top.push_back(prediction_json(next));
      layer.push_back({{"top", std::move(top)},
                       {"probability", cell.probability},
                       {"rank", cell.rank},
                       {"entropy", cell.entropy}});
    }
    json["layers"].push_back(std::move(layer));
  }
  return json.dump({.replace = true}) + "\n";
}

ReportPage page_of(const LensReport& report, std::size_t most_rows) {
  const ReportSubject& subject = report.subject;
  ReportPage page{.title = on_one_line(subject.text),
                  .model = model_line(subject.model, subject.gpt->options())};
  const std::string beyond =
      training_note(subject.trained_context_length, std::ssize(subject.tokens));
  if (!beyond.empty()) page.paragraphs.push_back(beyond);
  page.paragraphs.push_back(format_text(
      "What the model would say if it ended after each layer: the residual stream there, through "
      "{} and the output head.",
      in_words(report.norm)));
  page.tables.push_back(table_of_tokens(report, most_rows));
  page.tables.push_back(table_of_last(report));
  const std::size_t row = settled(report);
  const std::string said = in_quotes(report.said.back().piece);
  ReportNote note{"", {}};
  note.lines.push_back(row == 0
                           ? format_text("{} is the likeliest from the start.", said)
                           : format_text("{} is the likeliest from layer {} on.", said, row - 1));
  if (subject.tokens.size() > most_rows) {
    note.lines.push_back(
        format_text("The last {} of {} tokens.", most_rows, subject.tokens.size()));
  }
  page.notes.push_back(std::move(note));
  return page;
}

}  // namespace cephalo
