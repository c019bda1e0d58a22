#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/view/look.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The text and the model that a report is about.
struct ReportSubject {
  std::string text;
  std::string model;                                 // its name
  const Gpt* gpt = nullptr;                          // must live as long as the report, unchanged
  bool begun = false;                                // the first token was prepended
  std::optional<dim_t> trained_context_length = {};  // where the text is longer than that
  std::vector<LookToken> tokens = {};

  std::vector<std::int64_t> ids() const;
};

// An error that begins with `function`: the text has no token, or more than the model reads at
// once.
ReportSubject subject_of(const LookModel& model, const std::string& text, bool begin,
                         const char* function);

}  // namespace cephalo
#pragma GCC visibility pop
