#pragma once

// Inside the library only.
#include <string>

#include "cephalo/view/page.h"

namespace cephalo {

// Cells on each side of a pooled map, at most.
inline constexpr dim_t kRecordedCells = 256;

// The file that a recorded page keeps, as a .safetensors file; float32 unless said otherwise.
// metadata: "sizes", JSON that web/engine/recorded.cc reads
//   layers.{l}.x         [tokens, d_model]    with RecordedForm::inputs: after the norm
//   layers.{l}.q_weight  [d_model, d_model]   bfloat16 where that is exact; q_bias: [d_model]
//   layers.{l}.k_weight  [kv width, d_model]  and k_bias
//   layers.{l}.q.{h}     [tokens, head_dim]   with the other forms, of heads in full: rotated
//   layers.{l}.k.{kv}    [tokens, head_dim]
//   layers.{l}.keys.{h}  [tokens, 8], int32   of the other heads: the strongest first, −1: none
//   layers.{l}.top.{h}   [tokens, 8]          their weights
//   layers.{l}.lse       [num_heads, tokens]
//   layers.{l}.norms     [num_heads, tokens]  ‖v_j W_out^h‖₂
//   tiles, uint8         [num_layers, num_heads, cells · (cells + 1) / 2]
//                        of a pooled page: round(255 · √largest weight), the lower triangle
//   last                 [num_layers, num_heads, tokens]  of a pooled page: the last row's weights
std::string recorded_file(const Recording& recording, const RecordedPlan& plan);

// Its bytes without the header, and about how many that takes.
std::int64_t recorded_file_bytes(const Recording& recording, const RecordedPlan& plan);

}  // namespace cephalo
