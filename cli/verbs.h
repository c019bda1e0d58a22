#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>

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
Verb add_bench(CLI::App& program);
Verb add_convert(CLI::App& program);
Verb add_generate(CLI::App& program);
Verb add_gradcheck(CLI::App& program);
Verb add_inspect(CLI::App& program);
Verb add_look(CLI::App& program);
Verb add_presets(CLI::App& program);
Verb add_run(CLI::App& program);
Verb add_tokenize(CLI::App& program);
Verb add_tour(CLI::App& program);
Verb add_trace(CLI::App& program);
Verb add_train(CLI::App& program);

}  // namespace cephalo::cli
