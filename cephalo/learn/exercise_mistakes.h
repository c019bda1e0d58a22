#pragma once

#include <string>
#include <vector>

#include "cephalo/attention/reference/trace.h"
#include "cephalo/learn/exercise.h"

namespace cephalo {

// What a likely mistake gives, and the words for it.
struct Mistake {
  Tensor value;
  std::string text;
};

// The mistakes people make in a step, worked out on the exercise's own numbers.
std::vector<Mistake> mistakes_of(const std::string& step, const Trace& trace, const Exercise& e);

}  // namespace cephalo
