#pragma once

#include <string>
#include <vector>

#include "bindings/model/gpt.h"

namespace cephalo::python {

// Gradients by name, and the memory of the passes that add to them.
struct ModelGradients {
  explicit ModelGradients(const Gpt& model);
  GptGradients gradients;
  GptWorkspace workspace;
  std::vector<std::string> names;
  Turn turn{"GptGradients"};
};

}  // namespace cephalo::python
