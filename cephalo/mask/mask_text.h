#pragma once

#include <functional>
#include <string>

#include "cephalo/core/error.h"
#include "cephalo/mask/mask.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A mask as text and back: the words of C++ and Python. Mask::to_string writes it, Mask::draw draws
// it.

// Says where a text stops being a mask.
class MaskTextError : public Error {
 public:
  explicit MaskTextError(const std::string& message) : Error(Kind::value, message) {}
};

// Gives the tensor of that name: keep("padding") and drop, bias, documents.
using MaskTensorSource = std::function<Tensor(const std::string& name)>;

// The inverse of Mask::to_string: 'causal() & window(127, 0)', or 'none'. to_string writes tensors
// as their shapes; here they have names, and come from `tensors`.
Mask parse_mask(const std::string& text, const MaskTensorSource& tensors = {});

}  // namespace cephalo
#pragma GCC visibility pop
