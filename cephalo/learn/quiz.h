#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace cephalo {

// One of the answers to choose from.
struct QuizChoice {
  std::string text;
  std::string note;  // why it is wrong; of the right one, nothing
};

// A question, and what was computed to answer it.
struct QuizQuestion {
  std::string topic;  // "shapes"
  std::string text;   // may have several lines
  std::vector<QuizChoice> choices;
  std::size_t right = 0;
  std::string computed;  // the numbers that show it
};

// Ten questions about attention. Nothing of the answers is stored: sizes and numbers are drawn by
// the seed, the layer and attend compute what happens with them, and that decides which choice is
// right.
std::vector<QuizQuestion> quiz(std::uint64_t seed = 123);

// The letter that a choice goes by: a, b, c, d.
std::string quiz_letter(std::size_t choice);
// Which choice is meant by "b", "B" or " b) "; an error that names the letters.
std::size_t quiz_choice(const QuizQuestion& question, std::string_view answer);

// What is said about an answer: whether it is right, and the numbers that show it.
struct QuizReply {
  bool right = false;
  std::string text;
};
QuizReply quiz_reply(const QuizQuestion& question, std::size_t choice);

}  // namespace cephalo
#pragma GCC visibility pop
