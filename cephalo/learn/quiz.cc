#include "cephalo/learn/quiz.h"

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/learn/quiz_questions.h"

namespace cephalo {

std::vector<QuizQuestion> quiz(std::uint64_t seed) {
  TorchGenerator generator(seed);
  std::vector<QuizQuestion> questions;
  for (QuizQuestion (*ask)(TorchGenerator&) :
       {ask_heads_shape, ask_scores_shape, ask_which_mask, ask_visible_pairs, ask_no_scale,
        ask_mask_after_softmax, ask_changed_token, ask_swapped_tokens, ask_parameters,
        ask_longer_text}) {
    questions.push_back(ask(generator));
  }
  return questions;
}

std::string quiz_letter(std::size_t choice) {
  return std::string(1, static_cast<char>('a' + choice));
}

std::size_t quiz_choice(const QuizQuestion& question, std::string_view answer) {
  std::string_view letter = answer;
  while (!letter.empty() && letter.front() == ' ') letter.remove_prefix(1);
  while (!letter.empty() && (letter.back() == ' ' || letter.back() == ')')) letter.remove_suffix(1);
  for (std::size_t choice = 0; choice < question.choices.size(); ++choice) {
    const char small = quiz_letter(choice)[0];
    if (letter.size() == 1 && (letter[0] == small || letter[0] == small - 'a' + 'A')) return choice;
  }
  fail(Error::Kind::value, "quiz: '{}' is not one of the letters a to {}", shown(answer),
       quiz_letter(question.choices.size() - 1));
}

QuizReply quiz_reply(const QuizQuestion& question, std::size_t choice) {
  require(choice < question.choices.size(), "quiz: there is no choice {}; the question has {}",
          choice, question.choices.size());
  if (choice == question.right) return {true, format_text("Right. {}", question.computed)};
  return {false, format_text("No. {} Right is {}), {}. {}", question.choices[choice].note,
                             quiz_letter(question.right), question.choices[question.right].text,
                             question.computed)};
}

}  // namespace cephalo
