#pragma once

#include <functional>
#include <stdexcept>

#include "cli/command.h"

namespace cephalo::cli {

// A wrong command line: exit status 2. Bad data is cephalo::Error: exit status 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The program ends with this status and has said all there is to say.
struct ExitStatus {
  int value;
};

// Each verb adds itself to the program and returns what to do when it was chosen.
using Verb = std::function<void()>;
Verb add_bench(Command program);
Verb add_convert(Command program);
Verb add_exercise(Command program);
Verb add_generate(Command program);
Verb add_gradcheck(Command program);
Verb add_inspect(Command program);
Verb add_lens(Command program);
Verb add_look(Command program);
Verb add_page(Command program);
Verb add_patch(Command program);
Verb add_presets(Command program);
Verb add_quiz(Command program);
Verb add_run(Command program);
Verb add_tokenize(Command program);
Verb add_tour(Command program);
Verb add_trace(Command program);
Verb add_train(Command program);

}  // namespace cephalo::cli
