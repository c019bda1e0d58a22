#pragma once

#include "cephalo/core/shape.h"

#pragma GCC visibility push(default)
namespace cephalo {

class World;

// The tokens of every sequence spread over the processes of a world: what a layer or a model is
// given on each of them are the rows of ring_share, the early piece first, and the same options.
// By default one process has all tokens.
struct Spread {
  enum class By {
    ring,  // attend_ring: all keys visit each process
    heads  // attend_heads: all tokens of some heads meet in one process
  };
  World* world = nullptr;
  dim_t tokens = 0;  // of a whole sequence
  By by = By::ring;
};

}  // namespace cephalo
#pragma GCC visibility pop
