#include "cephalo/learn/quiz.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

// A draft refuses to be a question unless one choice is right, so sizes of many seeds are a test of
// the questions themselves.
TEST(QuizTest, every_seed_gives_ten_questions_with_one_right_choice_each) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<QuizQuestion> questions = quiz(seed);
    ASSERT_EQ(questions.size(), 10U);
    for (const QuizQuestion& question : questions) {
      EXPECT_LT(question.right, question.choices.size()) << question.text;
      EXPECT_GE(question.choices.size(), 3U) << question.text;
      EXPECT_LE(question.choices.size(), 4U) << question.text;
      std::set<std::string> texts;
      for (const QuizChoice& choice : question.choices) {
        texts.insert(choice.text);
        const bool right = &choice == &question.choices[question.right];
        EXPECT_EQ(choice.note.empty(), right) << question.text;
      }
      EXPECT_EQ(texts.size(), question.choices.size()) << question.text;
    }
  }
}

TEST(QuizTest, a_seed_is_a_quiz_and_another_is_another) {
  const auto all = [](std::uint64_t seed) {
    std::string text;
    for (const QuizQuestion& question : quiz(seed)) {
      text += question.text + question.computed;
      for (const QuizChoice& choice : question.choices) text += choice.text + choice.note;
    }
    return text;
  };
  EXPECT_EQ(all(5), all(5));
  EXPECT_NE(all(5), all(6));
}

// The right one is not always in the same place.
TEST(QuizTest, letters_give_nothing_away) {
  std::vector<std::set<std::size_t>> places(10);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<QuizQuestion> questions = quiz(seed);
    for (std::size_t k = 0; k < places.size(); ++k) places[k].insert(questions[k].right);
  }
  for (const std::set<std::size_t>& found : places) EXPECT_GE(found.size(), 3U);
}

// What somebody who knows attention answers, question by question.
TEST(QuizTest, right_is_what_attention_does) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<QuizQuestion> questions = quiz(seed);
    const auto right = [&](std::size_t number) {
      return questions[number].choices[questions[number].right].text;
    };
    const auto number_after = [&](std::size_t question, const std::string& words) {
      const std::string& text = questions[question].text;
      return std::stoll(text.substr(text.find(words) + words.size()));
    };
    const auto tokens = number_after(0, "sequences of ");
    const auto heads = number_after(0, "tokens, ");
    EXPECT_EQ(right(0), "(" + std::to_string(std::stoll(questions[0].text)) + ", " +
                            std::to_string(heads) + ", " + std::to_string(tokens) + ", " +
                            std::to_string(number_after(0, "width ")) + ")");
    const auto keys = std::to_string(number_after(1, "sequences of "));
    EXPECT_NE(right(1).find(", " + keys + ", " + keys + ")"), std::string::npos);
    const auto causal = number_after(3, "reads ");
    EXPECT_EQ(right(3), std::to_string(causal * (causal + 1) / 2));
    EXPECT_EQ(right(4), "rows in which one key has nearly all the weight");
    EXPECT_GT(std::stod(right(5)), 0.0);
    EXPECT_LT(std::stod(right(5)), 1.0);
    EXPECT_EQ(right(6), "rows " + std::to_string(number_after(6, "Then token ")) + " to " +
                            std::to_string(std::stoll(questions[6].text) - 1));
    EXPECT_NE(right(7).find("change places, the others stay"), std::string::npos);
    EXPECT_NE(questions[8].text.find("has " + right(8) + " parameters"), std::string::npos);
    const auto times = number_after(9, "gets ");
    EXPECT_EQ(right(9), std::to_string(times * times));
  }
}

TEST(QuizTest, a_wrong_answer_is_explained_with_numbers) {
  for (const QuizQuestion& question : quiz()) {
    EXPECT_NE(question.computed.find_first_of("0123456789"), std::string::npos);
    for (std::size_t choice = 0; choice < question.choices.size(); ++choice) {
      const QuizReply reply = quiz_reply(question, choice);
      EXPECT_EQ(reply.right, choice == question.right);
      EXPECT_NE(reply.text.find(question.choices[choice].note), std::string::npos);
      EXPECT_NE(reply.text.find(question.computed), std::string::npos) << reply.text;
    }
  }
}

// The drawing of a mask does not name it.
TEST(QuizTest, a_question_does_not_say_its_answer) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const QuizQuestion question = quiz(seed)[2];
    EXPECT_NE(question.text.find("#"), std::string::npos);
    for (const QuizChoice& choice : question.choices) {
      EXPECT_EQ(question.text.find(choice.text), std::string::npos) << question.text;
    }
  }
}

TEST(QuizTest, letters_are_read_as_people_type_them) {
  const QuizQuestion question = quiz()[0];
  for (const char* typed : {"b", "B", " b ", "b)"}) EXPECT_EQ(quiz_choice(question, typed), 1U);
  for (const char* typed : {"", "e", "bb", "1", "b]"}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(quiz_choice(question, typed)); }),
              std::string("quiz: '") + typed + "' is not one of the letters a to d");
  }
  EXPECT_EQ(error_of([&] { static_cast<void>(quiz_reply(question, 4)); }),
            "quiz: there is no choice 4; the question has 4");
}

}  // namespace
}  // namespace cephalo
