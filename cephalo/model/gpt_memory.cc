#include "cephalo/model/gpt_memory.h"

#include <algorithm>

#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/core/fail.h"
#include "cephalo/model/gpt_pass.h"
#include "cephalo/model/parameter_list.h"

namespace cephalo {
namespace {

// Numbers that one token leaves behind in a block for the way back: what goes into each matrix and
// what comes out of it (normed, q k v, context, middle, normed, hidden, active, x), two moments of
// each norm, and lse of each head.
dim_t kept_of_block(const ParameterList& list, const GptOptions& o) {
  dim_t kept = o.num_heads;
  for (const ParameterInfo& p : list.block()) {
    if (p.kind == ParameterKind::matrix) {
      kept = checked_add(kept, checked_add(p.shape[0], p.shape[1]));
    }
    if (p.kind == ParameterKind::norm && !p.is_bias) kept = checked_add(kept, 2);
  }
  return kept;
}

// Bytes that a training pass takes.
dim_t pass_bytes(const ParameterList& list, const GptOptions& o, dim_t batch, dim_t tokens) {
  const auto item = static_cast<dim_t>(item_size(o.dtype));
  const dim_t rows = checked_mul(batch, tokens);
  const dim_t d = o.d_model;
  // Once: the last x and normed; dx, its branch and what dropout leaves; dnormed; gradients of
  // hidden, q, k, v and context; and the widest of these transposed for its product.
  const dim_t once = checked_mul(9, d) + 2 * o.kv_width() + 2 * o.d_mlp + 2;
  const dim_t in_blocks = checked_mul(o.num_layers, kept_of_block(list, o));
  const dim_t of_rows = checked_mul(rows, checked_add(in_blocks, once));
  // Logits, and matrices laid out for the GEMM: the head both ways, and those of a block.
  const dim_t logits = checked_mul(std::min(rows, kLogitRows), o.vocab_size);
  const dim_t packed = checked_add(checked_mul(2 * d, o.vocab_size), checked_mul(4 * d, o.d_mlp));
  return checked_mul(item, checked_add(of_rows, checked_add(logits, packed)));
}

// Numbers that one token takes more where its sequence is spread: keys and values of its own, at
// hand and on their way, sums of their gradients at hand, leaving and arriving; dq, and what is
// returned of all three, of which a piece has half the rows.
dim_t of_ring(const GptOptions& o) {
  const dim_t all = checked_add(o.d_model, 2 * o.kv_width());
  return checked_add(12 * o.kv_width(), o.d_model) + all + all / 2;
}

}  // namespace

GptMemory memory_bytes(const GptOptions& options, dim_t batch, dim_t tokens, int processes) {
  const GptOptions o = checked_options(options, "memory_bytes");
  require(batch > 0 && tokens > 0 && tokens <= o.context_length,
          "memory_bytes: batch ({}) and tokens ({}) must be > 0, and tokens at most "
          "context_length ({})",
          batch, tokens, o.context_length);
  const ParameterList list(o);
  const auto item = static_cast<dim_t>(item_size(o.dtype));
  GptMemory memory;
  memory.parameters = checked_mul(list.count(), item);
  memory.gradients = memory.parameters;
  memory.optimiser = checked_mul(2, memory.parameters);
  const dim_t mine = ring_share(tokens, 0, processes).tokens();
  memory.pass = pass_bytes(list, o, batch, mine);
  if (processes == 1) return memory;
  memory.gradients = checked_mul(2, memory.gradients);  // shares, and sums over processes
  memory.pass = checked_add(memory.pass,
                            checked_mul(item, checked_mul(checked_mul(batch, mine), of_ring(o))));
  return memory;
}

}  // namespace cephalo
