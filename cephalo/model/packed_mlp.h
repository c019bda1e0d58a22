#pragma once

#include "cephalo/linear/packed_linear.h"
#include "cephalo/model/mlp.h"

namespace cephalo {

struct Mlp::Packed {
  PackedLinear fc;
  PackedLinear proj;
};

}  // namespace cephalo
