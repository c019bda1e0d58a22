#ifndef CEPHALO_C_API_H
#define CEPHALO_C_API_H

// The C interface, for other languages: C99, plain structs, no exception crosses it.
//
// Every function that can fail returns a status; cephalo_last_error() then says what was wrong, by
// name and number. A failed call leaves objects as they were. Inputs are never written; outputs
// must not overlap them. Any number of threads may use an object while none changes it.

#include <stdint.h>

// Shown by a shared library, which hides the rest.
#ifdef __GNUC__
#define CEPHALO_API __attribute__((visibility("default")))
#else
#define CEPHALO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Enumerations travel as int32_t: every language agrees on its size, and a wrong number is an
// error instead of undefined behaviour.
typedef int32_t cephalo_status;
enum {
  CEPHALO_OK = 0,
  CEPHALO_ERROR_VALUE = 1,   // a number or shape breaks a rule, or a pointer is NULL
  CEPHALO_ERROR_TYPE = 2,    // an element type that the function does not take
  CEPHALO_ERROR_IO = 3,      // a file that cannot be opened, read or written
  CEPHALO_ERROR_MEMORY = 4,  // this machine cannot hold it
  CEPHALO_ERROR_INTERNAL = 5
};

CEPHALO_API const char* cephalo_version(void);  // "0.1.0"
// The message of this thread's last failed call, "" before one; valid until the next failure.
CEPHALO_API const char* cephalo_last_error(void);
// Threads used by each call; 0: one per core. Results never depend on it.
CEPHALO_API cephalo_status cephalo_set_threads(int count);

enum {
  CEPHALO_FLOAT32 = 0,
  CEPHALO_FLOAT64 = 1,
  CEPHALO_BFLOAT16 = 2,
  CEPHALO_FLOAT16 = 3,
  CEPHALO_INT64 = 4,
  CEPHALO_INT32 = 5,
  CEPHALO_INT16 = 6,
  CEPHALO_INT8 = 7,
  CEPHALO_UINT8 = 8,
  CEPHALO_BOOL = 9  // one byte, 0 or 1
};

// Memory that the caller owns.
typedef struct cephalo_tensor {
  void* data;
  int32_t dtype;       // CEPHALO_FLOAT32 …
  int32_t rank;        // 0 to 4; shape and strides are read that far
  int64_t shape[4];    // outermost first
  int64_t strides[4];  // in elements, not bytes; inputs may have 0 (repeat) and negative ones
} cephalo_tensor;

// Which keys a query may look at. A new mask hides nothing; each function adds a part: what hides
// intersects, what biases adds. Query i is at p(i) = i + offset, plus kv_tokens − q_tokens
// when aligned bottom right, the default: then the last query sees the last key.
typedef struct cephalo_mask cephalo_mask;
CEPHALO_API cephalo_status cephalo_mask_create(cephalo_mask** mask);
CEPHALO_API void cephalo_mask_destroy(cephalo_mask* mask);  // NULL is fine

enum { CEPHALO_ALIGN_BOTTOM_RIGHT = 0, CEPHALO_ALIGN_TOP_LEFT = 1 };
// p(i) = i + offset, plus kv_tokens − q_tokens with bottom_right
CEPHALO_API cephalo_status cephalo_mask_positions(cephalo_mask* mask, int32_t align,
                                                  int64_t offset);
// j <= p(i), or j < prefix
CEPHALO_API cephalo_status cephalo_mask_causal(cephalo_mask* mask, int64_t prefix);
#define CEPHALO_UNLIMITED INT64_MAX
// p(i) − left <= j <= p(i) + right
CEPHALO_API cephalo_status cephalo_mask_window(cephalo_mask* mask, int64_t left, int64_t right);
// j < kv[b] and, unless q is NULL, i < q[b]; copied
CEPHALO_API cephalo_status cephalo_mask_lengths(cephalo_mask* mask, const int64_t* kv,
                                                const int64_t* q, int64_t batch);
// Equal ids >= 0 see each other; int32 or int64 [tokens] or [batch, tokens], copied. kv_ids NULL:
// keys are the same tokens as queries.
CEPHALO_API cephalo_status cephalo_mask_documents(cephalo_mask* mask, const cephalo_tensor* q_ids,
                                                  const cephalo_tensor* kv_ids);
// t: [q, k], [heads|1, q|1, k|1] or [batch|1, heads|1, q|1, k|1], read in place: its memory must
// outlive the mask. May look where t is nonzero (keep) or zero (drop): bool or integers.
CEPHALO_API cephalo_status cephalo_mask_keep(cephalo_mask* mask, const cephalo_tensor* t);
CEPHALO_API cephalo_status cephalo_mask_drop(cephalo_mask* mask, const cephalo_tensor* t);
// t: the same, but float32 or q's type: added to the scores; −inf hides
CEPHALO_API cephalo_status cephalo_mask_bias(cephalo_mask* mask, const cephalo_tensor* t);
// Adds −slopes[h] · |p(i) − j|; copied. slopes NULL: those of the paper
CEPHALO_API cephalo_status cephalo_mask_alibi(cephalo_mask* mask, const float* slopes,
                                              int64_t num_heads);

enum {
  CEPHALO_ENGINE_AUTO = 0,
  CEPHALO_ENGINE_REFERENCE = 1,
  CEPHALO_ENGINE_FUSED = 2,
  CEPHALO_ENGINE_CUDA = 3,
  CEPHALO_ENGINE_CUDA_SIMPLE = 4
};
// The GPU of number n is CEPHALO_CUDA + n.
enum { CEPHALO_HOST = 0, CEPHALO_CUDA = 1 };
// As float32 is multiplied elsewhere; or in 16 bits of a number's 24, about twice as fast.
enum { CEPHALO_EXACT = 0, CEPHALO_BF16X3 = 1 };
// How to attend; start from the defaults and change what you need.
typedef struct cephalo_attend_options {
  double scale;     // NAN: 1 / sqrt(head_dim)
  double softcap;   // c > 0: scores become c · tanh(scores / c); 0: off
  double dropout;   // probability that a weight is dropped, in [0, 1)
  uint64_t seed;    // of dropout
  int32_t engine;   // CEPHALO_ENGINE_AUTO …
  int32_t threads;  // 0: as set by cephalo_set_threads
  int32_t device;   // CEPHALO_HOST …: where all tensors of the call lie, the mask's too
  // On a GPU: 1: gradients may differ in their last bits from call to call
  int32_t any_order;
  void* stream;        // on a GPU: the cudaStream_t that the call goes into, without waiting for it
  int32_t arithmetic;  // of float32 on a GPU: CEPHALO_EXACT …
  // On a GPU, instead of seed: where in its memory the seed is when kernels run; NULL: seed
  const uint64_t* device_seed;
} cephalo_attend_options;
CEPHALO_API cephalo_attend_options cephalo_attend_options_default(void);

// q: [batch, num_heads, q_tokens, head_dim]
// k: [batch, num_kv_heads, kv_tokens, head_dim]
// v: [batch, num_kv_heads, kv_tokens, v_dim]
// context_out: [batch, num_heads, q_tokens, v_dim], q's type
// lse_out: [batch, num_heads, q_tokens], float32 (float64 for float64); may be NULL
// or all without batch, or without batch and heads; any strides. mask NULL: nothing is hidden;
// options NULL: the defaults. A query that may look at nothing gives context 0 and lse −inf.
CEPHALO_API cephalo_status cephalo_attend(const cephalo_tensor* q, const cephalo_tensor* k,
                                          const cephalo_tensor* v, const cephalo_mask* mask,
                                          const cephalo_attend_options* options,
                                          const cephalo_tensor* context_out,
                                          const cephalo_tensor* lse_out);

// What a forward pass left behind, the gradient that comes back to it, and where gradients go.
typedef struct cephalo_attend_gradients {
  const cephalo_tensor* context;   // what cephalo_attend wrote to context_out
  const cephalo_tensor* lse;       // and to lse_out
  const cephalo_tensor* dcontext;  // the shape of context
  const cephalo_tensor* dlse;      // the shape of lse; NULL: lse was not used
  const cephalo_tensor* dq_out;    // the shapes of q, k and v; overwritten
  const cephalo_tensor* dk_out;
  const cephalo_tensor* dv_out;
} cephalo_attend_gradients;

// q, k, v, mask and options: as cephalo_attend had them, q, k and v of one type. dlse has the type
// of lse, the others that of q; those of 16 bits are rounded once. What is hidden has gradient 0.
CEPHALO_API cephalo_status cephalo_attend_backward(const cephalo_tensor* q, const cephalo_tensor* k,
                                                   const cephalo_tensor* v,
                                                   const cephalo_mask* mask,
                                                   const cephalo_attend_options* options,
                                                   const cephalo_attend_gradients* gradients);

// A direction in which q, k and v move (biases stand still), and where it is written how the
// results of cephalo_attend move along it.
typedef struct cephalo_attend_tangents {
  const cephalo_tensor* context;  // what cephalo_attend wrote to context_out
  const cephalo_tensor* lse;      // and to lse_out
  const cephalo_tensor* uq;       // the shapes of q, k and v; NULL: it stands still
  const cephalo_tensor* uk;
  const cephalo_tensor* uv;
  const cephalo_tensor* tcontext_out;  // the shapes of context and lse; overwritten
  const cephalo_tensor* tlse_out;
} cephalo_attend_tangents;

// Forward mode. q, k, v, mask and options: as cephalo_attend_backward has them; so are types.
CEPHALO_API cephalo_status cephalo_attend_tangent(const cephalo_tensor* q, const cephalo_tensor* k,
                                                  const cephalo_tensor* v, const cephalo_mask* mask,
                                                  const cephalo_attend_options* options,
                                                  const cephalo_attend_tangents* tangents);

// The same with the gradient that comes back, and where it is written how gradients move.
typedef struct cephalo_attend_seconds {
  const cephalo_tensor* context;
  const cephalo_tensor* lse;
  const cephalo_tensor* dcontext;  // the shape of context
  const cephalo_tensor* dlse;      // the shape of lse; NULL: lse was not used
  const cephalo_tensor* uq;        // as above
  const cephalo_tensor* uk;
  const cephalo_tensor* uv;
  const cephalo_tensor* hq_out;  // the shapes of q, k, v, context and lse; overwritten
  const cephalo_tensor* hk_out;
  const cephalo_tensor* hv_out;
  const cephalo_tensor* hdcontext_out;  // what cephalo_attend_tangent gives
  const cephalo_tensor* hdlse_out;
} cephalo_attend_seconds;

// Second derivatives: how dq, dk and dv of cephalo_attend_backward move along the direction, which
// is also the gradient of <uq, dq> + <uk, dk> + <uv, dv>.
CEPHALO_API cephalo_status cephalo_attend_second(const cephalo_tensor* q, const cephalo_tensor* k,
                                                 const cephalo_tensor* v, const cephalo_mask* mask,
                                                 const cephalo_attend_options* options,
                                                 const cephalo_attend_seconds* seconds);

// What a layer is like; d_in and d_out have to be given.
typedef struct cephalo_layer_options {
  int64_t d_in;
  int64_t d_out;
  int64_t num_heads;
  int64_t num_kv_heads;    // 0: num_heads
  int64_t v_dim;           // 0: d_out / num_heads
  int64_t context_length;  // longest input; 0: no limit
  double dropout;          // in training mode only
  uint64_t seed;           // of the parameters, drawn as PyTorch draws them, and of dropout
  int32_t dtype;           // of the parameters
  int32_t causal;          // this and what follows: 0 or 1
  int32_t qkv_bias;
  int32_t out_proj;
  int32_t out_bias;
} cephalo_layer_options;
CEPHALO_API cephalo_layer_options cephalo_layer_options_default(void);  // d_in, d_out, seed: 0

// Project, split into heads, attend, merge, project. A new layer is in training mode, as in
// PyTorch; its parameters are W_query.weight W_key.weight W_value.weight [.bias], out_proj.*.
typedef struct cephalo_layer cephalo_layer;
CEPHALO_API cephalo_status cephalo_layer_create(const cephalo_layer_options* options,
                                                cephalo_layer** layer);
// From a safetensors file, in eval mode, under the file's names; num_heads 0: the file says it
CEPHALO_API cephalo_status cephalo_layer_load(const char* path, int64_t num_heads,
                                              cephalo_layer** layer);
CEPHALO_API void cephalo_layer_destroy(cephalo_layer* layer);  // NULL is fine
CEPHALO_API cephalo_status cephalo_layer_set_parameter(cephalo_layer* layer, const char* name,
                                                       const cephalo_tensor* value);
CEPHALO_API cephalo_status cephalo_layer_train(cephalo_layer* layer);
CEPHALO_API cephalo_status cephalo_layer_eval(cephalo_layer* layer);
// Lays the parameters out for all later calls; setting a parameter drops that.
CEPHALO_API cephalo_status cephalo_layer_prepare(cephalo_layer* layer);
// x: [batch, tokens, d_in] or [tokens, d_in]; y_out: the same with d_out (without out_proj:
// num_heads · v_dim), x's type; threads 0: as set by cephalo_set_threads
CEPHALO_API cephalo_status cephalo_layer_forward(const cephalo_layer* layer,
                                                 const cephalo_tensor* x,
                                                 const cephalo_tensor* y_out, int32_t threads);

// One gradient for each parameter of a layer, under its name; 0 at first. cephalo_layer_backward
// adds to them.
typedef struct cephalo_gradients cephalo_gradients;
CEPHALO_API cephalo_status cephalo_gradients_create(const cephalo_layer* layer,
                                                    cephalo_gradients** gradients);
CEPHALO_API void cephalo_gradients_destroy(cephalo_gradients* gradients);  // NULL is fine
CEPHALO_API cephalo_status cephalo_gradients_zero(cephalo_gradients* gradients);
// value_out: the shape of the parameter; float32, or float64 for a float64 layer
CEPHALO_API cephalo_status cephalo_gradients_get(const cephalo_gradients* gradients,
                                                 const char* name, const cephalo_tensor* value_out);

// cephalo_layer_forward that remembers what its backward pass needs. x is read in place: its
// memory must outlive the pass, unchanged.
typedef struct cephalo_pass cephalo_pass;
CEPHALO_API cephalo_status cephalo_layer_forward_train(const cephalo_layer* layer,
                                                       const cephalo_tensor* x,
                                                       const cephalo_tensor* y_out, int32_t threads,
                                                       cephalo_pass** pass);
CEPHALO_API void cephalo_pass_destroy(cephalo_pass* pass);  // NULL is fine
// dy: the shape of y; dx_out: the shape of x, overwritten, NULL: not wanted. The layer's parameters
// must be those of the forward pass, whose number of threads holds here too.
CEPHALO_API cephalo_status cephalo_layer_backward(const cephalo_layer* layer,
                                                  const cephalo_pass* pass,
                                                  const cephalo_tensor* dy,
                                                  const cephalo_tensor* dx_out,
                                                  cephalo_gradients* gradients);

#ifdef __cplusplus
}
#endif

#endif  // CEPHALO_C_API_H
