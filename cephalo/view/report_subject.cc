#include "cephalo/view/report_subject.h"

namespace cephalo {

std::vector<std::int64_t> ReportSubject::ids() const {
  std::vector<std::int64_t> all;
  for (const LookToken& token : tokens) all.push_back(token.id);
  return all;
}

ReportSubject subject_of(const LookModel& model, const std::string& text, bool begin,
                         const char* function) {
  ReportSubject subject{.text = text,
                        .model = model.name,
                        .gpt = &model.gpt,
                        .begun = begin && model.first_token.has_value()};
  subject.tokens = look_tokens(model, look_ids(model, text, begin, function));
  subject.trained_context_length = goes_beyond_training(model, std::ssize(subject.tokens));
  return subject;
}

}  // namespace cephalo
