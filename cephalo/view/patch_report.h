#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cephalo/effects/patching.h"
#include "cephalo/view/report_page.h"
#include "cephalo/view/report_subject.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What is asked of two texts.
struct PatchOptions {
  std::string answer;  // one token: what the clean text leads to
  std::string wrong;   // one token: what the corrupt one leads to
  bool begin = true;   // first_token comes before both texts
  int threads = 0;
  // Called as parts are done; false stops, and what is done is kept.
  std::function<bool(std::size_t done, std::size_t all)> progress = {};
};

// Which parts of a clean text's run bring its answer back into a corrupt one.
struct PatchReport {
  ReportSubject clean, corrupt;
  LookToken answer, wrong;
  Patching patching = {};
};

// The model must live as long as the report, unchanged. Errors show the pieces: texts of different
// numbers of tokens, an answer of several tokens.
PatchReport patch_texts(const LookModel& model, const std::string& clean,
                        const std::string& corrupt, const PatchOptions& options);

// One line of JSON: docs/schema/patch.json.
std::string to_json(const PatchReport& report);

// What is shown: of long texts the tokens that bring most back, and the page says so.
ReportPage page_of(const PatchReport& report, std::size_t most_rows = 24);

}  // namespace cephalo
#pragma GCC visibility pop
