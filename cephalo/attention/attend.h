#pragma once

#include <cstdint>
#include <optional>

#include "cephalo/core/tensor.h"
#include "cephalo/mask/mask.h"
#include "cephalo/mask/place.h"

#pragma GCC visibility push(default)
namespace cephalo {

class TorchGenerator;

// Who computes. `reference` is the textbook: every step is stored, memory grows with
// q_tokens × kv_tokens. `fused` works in tiles, in memory linear in tokens. `automatic` picks fused
// whenever it can. On a GPU, in builds with CUDA: `cuda` for tensor cores, `cuda_simple` for
// whatever that one refuses.
enum class Engine { automatic, reference, fused, cuda, cuda_simple };

// Where dropout's random numbers come from. `counter` is a function of position, head and batch
// and never of threads; the other two draw in PyTorch's order from a generator.
enum class DropoutStream { counter, torch, torch_mkl };

// How a GPU's tensor cores multiply float32 numbers, of which they know 8 bits at a time: `exact`
// takes all 24, as accurate as float32 anywhere; `bf16x3` takes 16, about twice as fast, with an
// error near 1e-5 of the result. Other engines are always exact.
enum class Arithmetic { exact, bf16x3 };

// The point at which scores are handed out.
enum class ScoresTap { none, scaled, softcapped, masked };

// How to attend: scale, dropout, what to return, and who computes it.
struct AttendOptions {
  std::optional<double> scale = {};    // default 1 / sqrt(head_dim)
  std::optional<double> softcap = {};  // c > 0: scores become c · tanh(scores / c)
  double dropout = 0.0;                // probability that a weight is dropped, in [0, 1)
  std::uint64_t seed = 0;              // of the counter stream
  DropoutStream dropout_stream = DropoutStream::counter;
  TorchGenerator* generator = nullptr;  // needed by the torch streams, which advance it
  bool heads_draw_in_turn = false;      // torch streams: all of head 0, then head 1, as rung 4 does
  bool return_lse = false;
  bool return_weights = false;
  ScoresTap return_scores = ScoresTap::none;
  Engine engine = Engine::automatic;
  Engine require = Engine::automatic;  // an error unless this engine runs; automatic: any
  int threads = 0;                     // 0: as set by set_threads
  Place place = {};                    // a rectangle of a larger problem; default: all of it
  // On a GPU: the cudaStream_t that all of it goes into, without waiting; null: the default stream.
  void* stream = nullptr;
  bool deterministic = true;  // gradients have the same bits every time; false: in any order
  Arithmetic arithmetic = Arithmetic::exact;
  // On a GPU, instead of seed: where in its memory the seed is when kernels run, forward and
  // backward. A captured graph drops other weights at every replay once the number there changes.
  const std::uint64_t* device_seed = nullptr;
};

// What was not asked for is empty. Leading dimensions are those of q.
struct AttendResult {
  Tensor context;  // [batch, num_heads, q_tokens, v_dim], q's element type
  Tensor lse;      // [batch, num_heads, q_tokens]
  Tensor weights;  // [batch, num_heads, q_tokens, kv_tokens], before dropout
  Tensor scores;   // the same shape, at the tap
};

// q: [batch, num_heads, q_tokens, head_dim]
// k: [batch, num_kv_heads, kv_tokens, head_dim]
// v: [batch, num_kv_heads, kv_tokens, v_dim]
// or all of rank 3 (no batch) or 2 (one head); any strides.
//
// scores = scale · q kᵀ → softcap → + bias → mask → softmax → dropout → · v. Query head h uses kv
// head h / (num_heads / num_kv_heads). A query that may look at nothing gives context 0, weights 0
// and lse −inf. lse, weights and scores are float32 (float64 for float64). All of q, k and v have
// one element type, except that float32 q may meet 16-bit k and v. Tensors of one call lie on one
// device, those of the mask too, and so do results.
AttendResult attend(const TensorView& q, const TensorView& k, const TensorView& v,
                    const Mask& mask = {}, const AttendOptions& options = {});

class KVCache;

// Queries of the tokens that the cache's last append brought, against all that it keeps.
// q: [batch, num_heads, q_tokens, head_dim]; sequence b uses its first cache.appended()[b] rows.
// The mask speaks of positions: key j is the token at position j. A query that may look at a token
// which a ring has evicted is an error that names it.
AttendResult attend(const TensorView& q, const KVCache& cache, const Mask& mask = {},
                    const AttendOptions& options = {});

// The caller's memory for context and, unless it is empty, lse; any strides. A context of shape
// [batch, num_heads, q_tokens, v_dim] may be laid out as [batch, q_tokens, num_heads · v_dim], so
// that heads come out merged.
struct AttendOutput {
  MutableTensorView context;  // the shape of attend's; any floating type
  MutableTensorView lse = {};
};

// attend without allocating results; return_lse, return_weights and return_scores do not apply.
void attend_into(const AttendOutput& output, const TensorView& q, const TensorView& k,
                 const TensorView& v, const Mask& mask = {}, const AttendOptions& options = {});
void attend_into(const AttendOutput& output, const TensorView& q, const KVCache& cache,
                 const Mask& mask = {}, const AttendOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
