#pragma once

#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)
namespace cephalo {

// What every public function throws. The text names the function, the rule, the numbers that broke
// it and, where it helps, a way out. Objects named in a failed call stay usable.
class Error : public std::runtime_error {
 public:
  enum class Kind {
    value,  // a number or shape breaks a rule (Python: ValueError)
    type,   // an element type that the function does not take (Python: TypeError)
    io,     // a file that cannot be opened, read or written (Python: OSError)
    memory  // the work is well formed, but this machine cannot hold it (Python: MemoryError)
  };

  Error(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace cephalo
#pragma GCC visibility pop
