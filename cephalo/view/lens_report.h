#pragma once

#include <string>
#include <vector>

#include "cephalo/effects/lens.h"
#include "cephalo/view/report_page.h"
#include "cephalo/view/report_subject.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How the lens reads a text.
struct LensReportOptions {
  bool begin = true;  // first_token comes before the text
  LensNorm norm = LensNorm::fresh;
  dim_t top = 5;  // how many of the likeliest next tokens of each cell
  int threads = 0;
};
const char* name(LensNorm norm);  // "fresh"

// What a model would say after each layer, at every token of a text.
struct LensReport {
  struct Cell {
    std::vector<LookPrediction> top;
    double probability;  // of what the model says in the end at that token
    dim_t rank;          // of that; 0 the likeliest
    double entropy;      // in nats
  };
  ReportSubject subject;
  LensNorm norm = LensNorm::fresh;
  std::vector<LookToken> said = {};           // in the end, by token
  std::vector<std::vector<Cell>> cells = {};  // [num_layers + 1][token]; row 0: before layer 0
};

// The model must live as long as the report, unchanged. An error: the text has no token, or more
// than the model reads at once.
LensReport lens_of(const LookModel& model, const std::string& text,
                   const LensReportOptions& options = {});

// One line of JSON: docs/schema/lens.json.
std::string to_json(const LensReport& report);

// What is shown: of a long text its last tokens, and the page says so.
ReportPage page_of(const LensReport& report, std::size_t most_rows = 24);

}  // namespace cephalo
#pragma GCC visibility pop
