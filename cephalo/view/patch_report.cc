#include "cephalo/view/patch_report.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/text/piece_text.h"
#include "cephalo/view/report_json.h"
#include "cephalo/view/report_tables.h"

namespace cephalo {
namespace {

std::string pieces_of(const std::vector<LookToken>& tokens) {
  std::string out;
  for (const LookToken& token : tokens) out += (out.empty() ? "" : " ") + in_quotes(token.piece);
  return out;
}

LookToken one_token(const LookModel& model, const std::string& text, const char* what) {
  std::vector<std::int64_t> ids;
  for (const TokenId id : model.tokenizer.encode(text)) ids.push_back(id);
  const std::vector<LookToken> tokens = look_tokens(model, ids);
  require(!tokens.empty(), "patch: {} is empty; it must be one token", what);
  require(tokens.size() == 1, "patch: {} {} must be one token, but it is {}: {}", what,
          in_quotes(text), tokens.size(), pieces_of(tokens));
  return tokens.front();
}

// "5 Mary", or "5 Mary/John" where the texts differ
std::string name_of(const PatchReport& report, dim_t i) {
  const LookToken& clean = report.clean.tokens[static_cast<std::size_t>(i)];
  const LookToken& corrupt = report.corrupt.tokens[static_cast<std::size_t>(i)];
  const std::string name = numbered(clean, i);
  return clean.id == corrupt.id ? name : name + "/" + corrupt.label;
}

// values: [num_layers, tokens] -> a row for each token, a column for each layer
ReportTable table_of_positions(const PatchReport& report, std::size_t most_rows,
                               std::string& note) {
  const Tensor& values = report.patching.positions;
  ReportTable table{.title = "the residual stream before each layer, at one token"};
  const double largest = largest_of(values);
  say_range(table, largest);
  std::vector<double> sizes;
  for (dim_t i = 0; i < values.dim(1); ++i) sizes.push_back(largest_of(values.select(1, i)));
  for (dim_t l = 0; l < values.dim(0); ++l) table.columns.push_back(format_text("layer {}", l));
  const std::vector<dim_t> rows = largest_rows(sizes, most_rows);
  for (const dim_t i : rows) {
    table.rows.push_back(name_of(report, i));
    std::vector<ReportCell>& cells = table.cells.emplace_back();
    for (dim_t l = 0; l < values.dim(0); ++l) {
      cells.push_back(signed_cell(values.at({l, i}), largest));
    }
  }
  if (rows.size() < sizes.size()) {
    note = format_text("The {} of {} tokens that bring most back.", rows.size(), sizes.size());
  }
  return table;
}

std::string strongest_head(const PatchReport& report) {
  const Tensor& heads = report.patching.heads;
  HeadPlace best{0, 0};
  double most = -1.0;
  for (dim_t l = 0; l < heads.dim(0); ++l) {
    for (dim_t h = 0; h < heads.dim(1); ++h) {
      if (std::abs(heads.at({l, h})) > most) {
        most = std::abs(heads.at({l, h}));
        best = {l, h};
      }
    }
  }
  if (most < 0.0) return "";  // none was done
  const double share = heads.at({best.layer, best.head});
  const double percent = 100.0 * std::abs(share);
  return format_text("The head that matters most is layer {} head {}: from the clean text it {}.",
                     best.layer, best.head,
                     share < 0.0 ? format_text("widens the difference by {:.0f} %", percent)
                                 : format_text("brings back {:.0f} % of the difference", percent));
}

}  // namespace

PatchReport patch_texts(const LookModel& model, const std::string& clean,
                        const std::string& corrupt, const PatchOptions& options) {
  PatchReport report{.clean = subject_of(model, clean, options.begin, "patch"),
                     .corrupt = subject_of(model, corrupt, options.begin, "patch"),
                     .answer = one_token(model, options.answer, "the answer"),
                     .wrong = one_token(model, options.wrong, "the wrong answer")};
  require(report.clean.tokens.size() == report.corrupt.tokens.size(),
          "patch: the texts must have equally many tokens, so that each has its counterpart; clean "
          "has {}: {}; corrupt has {}: {}",
          report.clean.tokens.size(), pieces_of(report.clean.tokens), report.corrupt.tokens.size(),
          pieces_of(report.corrupt.tokens));
  require(report.answer.id != report.wrong.id,
          "patch: the answer and the wrong answer are the same token, {}",
          in_quotes(report.answer.piece));
  const KeptPass clean_pass(model.gpt, report.clean.ids(), options.threads);
  const KeptPass corrupt_pass(clean_pass.steps(), report.corrupt.ids(), options.threads);
  report.patching = patch_each(clean_pass, corrupt_pass, report.answer.id, report.wrong.id,
                               {.progress = options.progress, .threads = options.threads});
  return report;
}

std::string to_json(const PatchReport& report) {
  const ReportSubject& clean = report.clean;
  Json json = report_head("cephalo.patch/1", clean.model, *clean.gpt, clean.tokens, clean.begun);
  json["corrupt_tokens"] = tokens_json(report.corrupt.tokens);
  json["clean_text"] = clean.text;
  json["corrupt_text"] = report.corrupt.text;
  json["trained_context_length"] = count_json(clean.trained_context_length);
  json["answer"] = token_json(report.answer);
  json["wrong"] = token_json(report.wrong);
  json["clean"] = report.patching.clean;
  json["corrupt"] = report.patching.corrupt;
  json["divided"] = report.patching.divided;
  json["positions"] = tensor_json(report.patching.positions);
  json["heads"] = tensor_json(report.patching.heads);
  return json.dump({.replace = true}) + "\n";
}

ReportPage page_of(const PatchReport& report, std::size_t most_rows) {
  const Patching& patching = report.patching;
  ReportPage page{.title = format_text("clean: {}", on_one_line(report.clean.text)),
                  .model = model_line(report.clean.model, report.clean.gpt->options())};
  const std::string beyond =
      training_note(report.clean.trained_context_length, std::ssize(report.clean.tokens));
  if (!beyond.empty()) page.paragraphs.push_back(beyond);
  page.paragraphs.push_back(format_text("corrupt: {}", on_one_line(report.corrupt.text)));
  page.paragraphs.push_back(
      format_text("The logit of {} is {:+.2f} above that of {} after the clean text, {:+.2f} after "
                  "the corrupt one.",
                  in_quotes(report.answer.piece), patching.clean, in_quotes(report.wrong.piece),
                  patching.corrupt));
  page.paragraphs.push_back(
      patching.divided
          ? "Each cell: the corrupt text with that part taken from the clean one. 0 is the corrupt "
            "text's difference, 1 the clean one's."
          : format_text("These differ by less than {}, too little to divide by: each cell is the "
                        "difference of logits itself, in the corrupt text with that part taken "
                        "from the clean one.",
                        kLeastDifference));
  std::string note;
  page.tables.push_back(table_of_positions(report, most_rows, note));
  page.tables.push_back(table_of_heads("one head, at all tokens", patching.heads));
  ReportNote notes{"", {}};
  const std::string strongest = patching.divided ? strongest_head(report) : "";
  if (!strongest.empty()) notes.lines.push_back(strongest);
  if (!note.empty()) notes.lines.push_back(note);
  if (!notes.lines.empty()) page.notes.push_back(std::move(notes));
  return page;
}

}  // namespace cephalo
