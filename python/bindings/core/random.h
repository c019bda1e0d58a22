#pragma once

#include <mutex>

#include "cephalo/core/random.h"
#include "cephalo/core/turn.h"

namespace cephalo::python {

// A generator that calls advance while the GIL is released: one at a time.
struct Generator {
  explicit Generator(std::uint64_t seed) : stream(seed) {}
  TorchGenerator stream;
  Turn turn{"TorchGenerator"};
};

// Holds the generator for one call; nothing to hold is fine.
class GeneratorTurn {
 public:
  explicit GeneratorTurn(Generator* generator) : generator_(generator) {
    if (generator_ != nullptr) lock_ = std::unique_lock(generator_->turn);
  }
  TorchGenerator* stream() const { return generator_ == nullptr ? nullptr : &generator_->stream; }

 private:
  Generator* generator_;
  std::unique_lock<Turn> lock_;
};

}  // namespace cephalo::python
