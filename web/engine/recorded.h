#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "cephalo/attention/layer/rotary.h"
#include "cephalo/core/tensor.h"
#include "cephalo/io/safetensors.h"

namespace cephalo::page {

// One text's pass that was written into a page (cephalo/view/recorded_file.h says how): weights of
// any head and row, exactly, without the model. q and k of a head are made when it is asked for,
// and those of one layer are kept.
class RecordedPass {
 public:
  explicit RecordedPass(std::span<const std::byte> file);  // must live as long

  dim_t tokens() const { return sizes_.tokens; }

  // -> [num_heads or 1, rows, tokens], float32; head −1: all of the layer. An error: a head of
  // which only the strongest keys were kept.
  Tensor weights(dim_t layer, dim_t head, dim_t first_row, dim_t rows);
  // -> [2, head_dim], float32: q of the query and k of the key, after rotary
  Tensor pair(dim_t layer, dim_t head, dim_t query, dim_t key);

 private:
  struct Sizes {
    dim_t tokens, num_layers, num_heads, num_kv_heads, head_dim, d_model;
    double rotary_base;  // 0: no rotary
    bool rotary_interleaved;
  };
  struct Head {
    Tensor q, k;  // [tokens, head_dim]
  };

  static Sizes read_sizes(const SafetensorsFile& file);
  const Head& head_of(dim_t layer, dim_t head);
  const SafetensorsFile::Entry* find(dim_t layer, const std::string& name) const;
  // As float32; an error where it is missing or has another shape.
  Tensor read(dim_t layer, const std::string& name, const Shape& shape) const;
  Tensor made(const char* which, dim_t layer, dim_t heads, dim_t head) const;

  SafetensorsFile file_;
  Sizes sizes_;
  dim_t layer_ = -1;  // whose heads are kept
  Tensor x_, lse_;    // of that layer: [tokens, d_model], or of shape [0]; [num_heads, tokens]
  std::map<dim_t, Head> heads_;
};

}  // namespace cephalo::page
