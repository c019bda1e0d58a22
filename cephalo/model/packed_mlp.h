#pragma once

#include <optional>

#include "cephalo/linear/packed_linear.h"
#include "cephalo/model/mlp.h"

namespace cephalo {

struct Mlp::Packed {
  PackedLinear fc;
  PackedLinear proj;
  std::optional<PackedLinear> fc_back;  // transposed, for the way back
  std::optional<PackedLinear> proj_back;
};

}  // namespace cephalo
