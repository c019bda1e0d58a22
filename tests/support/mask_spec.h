#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo::testing {

// A mask beside its own definition, written out pair by pair and sharing no code with the library:
// the brute force that every engine is held against.
struct MaskSpec {
  Mask mask;
  std::string name;

  // What the definition of positions needs to know.
  bool top_left = false;
  dim_t offset = 0;
  std::vector<dim_t> kv_len, q_len;

  struct Pair {
    dim_t b, h, i, j;
    dim_t p;  // position of the query
  };
  std::vector<std::function<bool(const Pair&)>> may_look;
  std::vector<std::function<double(const Pair&)>> adds;

  dim_t position(dim_t b, dim_t i) const;
  bool visible(dim_t b, dim_t h, dim_t i, dim_t j) const;
  double added(dim_t b, dim_t h, dim_t i, dim_t j) const;
};

// The answers for all pairs, [batch, heads, q, k]: asking a rule is slow.
struct MaskTable {
  MaskTable(const MaskSpec& spec, const MaskExtent& extent);
  std::vector<bool> visible;
  std::vector<double> added;
};

// The names of all parts, each to be used alone and in pairs.
const std::vector<std::string>& mask_part_names();

// The intersection of the named parts, with random contents, for the given sizes. Parts that
// exclude each other (two lengths, two position maps) are never asked for together: see
// parts_combine.
MaskSpec make_mask_spec(const std::vector<std::string>& parts, const MaskExtent& extent,
                        TorchGenerator& generator);
// The parts that hide by position, with given contents; one entry for each sequence.
struct PositionalParts {
  std::optional<Mask::Positions> positions;
  std::optional<std::vector<dim_t>> prefix;  // causal
  std::optional<Mask::Window> window;
  std::optional<Mask::Lengths> lengths;
};
MaskSpec make_mask_spec(const PositionalParts& parts, const MaskExtent& extent);

bool parts_combine(const std::string& a, const std::string& b);

// Every part alone, and every pair that goes together.
std::vector<std::vector<std::string>> mask_combinations();

}  // namespace cephalo::testing
