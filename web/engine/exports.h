#pragma once

// What the C functions of the engine share. One that can fail returns −1, and engine_error() says
// why; texts and numbers of the last call lie in engine_text() and engine_numbers() until the next.
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

namespace cephalo::page {

class Session;

extern std::string error;
extern std::string text;
extern std::vector<float> numbers;

Session& loaded();  // an error: no model is
void put_numbers(const Tensor& values);

// No exception passes into JavaScript.
template <typename Work>
int guarded(const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    error = "page: the browser has no more memory for this";
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  return -1;
}

}  // namespace cephalo::page
