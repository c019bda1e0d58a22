#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/layer/gradients.h"
#include "cephalo/attention/layer/parameters.h"
#include "cephalo/attention/layer/rotary.h"
#include "cephalo/attention/layer/saved_pass.h"
#include "cephalo/attention/reference/trace.h"
#include "cephalo/attention/ring/spread.h"

#pragma GCC visibility push(default)
namespace cephalo {

class KVCache;
class StepSink;
struct AttendProblem;
struct EngineEntry;
struct LayerCall;
struct PackedParameters;

// What a layer is like; d_in and d_out have to be given.
struct MultiHeadAttentionOptions {
  dim_t d_in = 0;
  dim_t d_out = 0;           // split into num_heads heads of d_out / num_heads
  dim_t context_length = 0;  // longest input; 0: no limit
  double dropout = 0.0;      // on the weights, in training mode only
  dim_t num_heads = 1;
  bool qkv_bias = false;

  dim_t num_kv_heads = 0;  // 0: as many as num_heads; fewer are shared by neighbouring heads
  dim_t d_kv = 0;          // width of a second input (cross attention); 0: d_in
  dim_t v_dim = 0;         // width of one head's values; 0: head_dim
  bool out_proj = true;
  bool out_bias = true;
  bool causal = true;
  std::optional<Rotary> rotary = {};
  std::optional<std::uint64_t> seed = {};  // none: random, and seed() says which
  TorchGenerator* generator = nullptr;     // instead of seed: continues this stream
  Form form = Form::separate;
  DropoutStream dropout_stream = DropoutStream::counter;
  DType dtype = DType::f32;  // of the parameters; arithmetic is float32, or float64 for float64
};

// How many numbers such a layer learns, without making it.
dim_t parameter_count(const MultiHeadAttentionOptions& options);

// What one call may bring along.
struct CallOptions {
  const TensorView* kv = nullptr;       // keys and values come from this: [batch, kv_tokens, d_kv]
  Mask mask = {};                       // joined by & with the layer's own
  TorchGenerator* generator = nullptr;  // for the torch dropout streams
  std::optional<std::uint64_t> call = {};  // number of this call; none: the layer counts
  // x continues the sequences of a cache: its keys and values are appended, then all are attended
  // to. `counts`: how many of x's tokens belong to each sequence; empty: all. Rows past a count
  // come out as the output projection of 0.
  KVCache* cache = nullptr;
  std::vector<dim_t> counts = {};
  Engine engine = Engine::automatic;
  Engine require = Engine::automatic;
  int threads = 0;
  bool drop = true;  // false: as in eval mode, whatever the mode
  // x is a part of a larger batch, or these are some heads of a larger layer; its tokens are those
  // of queries, kv's (or its own) those of keys.
  Place place = {};
  // x holds this process's rows of sequences whose tokens are spread over a world; so do y and the
  // gradients of rows. Gradients of parameters are this process's share of sums over all. keep,
  // drop and bias of the mask have these query rows and all keys. No kv, no cache, no trace.
  Spread spread = {};
};

// What parameters are laid out for: calls alone, or their backward passes as well.
enum class Prepare { calls, training };

// The attention layer: project, split, transpose, attend, concat, project. One implementation
// behind rungs 2 to 7 (ladder.h). Const in use: any number of threads may call one layer.
class MultiHeadAttention {
 public:
  explicit MultiHeadAttention(const MultiHeadAttentionOptions& options);

  // Parameters from somewhere else, a file say: `fill` writes each one. In eval mode.
  using ParameterSource = std::function<void(const std::string& name, const MutableTensorView& to)>;
  MultiHeadAttention(const MultiHeadAttentionOptions& options, const ParameterSource& fill);

  // x: [batch, tokens, d_in] or [tokens, d_in] -> the same rank and element type, d_out wide
  // (without out_proj: num_heads · v_dim).
  Tensor operator()(const TensorView& x, const CallOptions& call = {}) const;

  // The same into the caller's memory: y has the shape of the result and any floating type.
  void forward_into(const TensorView& x, const MutableTensorView& y,
                    const CallOptions& call = {}) const;

  // operator(), and what backward needs of it; dropout acts as the mode says. No cache.
  TrainResult forward_train(const TensorView& x, const CallOptions& call = {},
                            KeepInput keep = KeepInput::copy) const;

  // The same into the caller's memory: y as in forward_into, `saved` takes the place of an older
  // pass and uses its memory again.
  void forward_train_into(const TensorView& x, const MutableTensorView& y, SavedPass& saved,
                          const CallOptions& call = {}, KeepInput keep = KeepInput::copy) const;

  // dy: the shape of y -> dx and, after cross attention, dkv: the shapes of x and kv, overwritten
  // (a default one: not wanted). Gradients of the parameters are added to what `gradients` holds.
  // On the engine and the threads of the forward pass; the parameters must still be the same.
  void backward(const SavedPass& saved, const TensorView& dy, const MutableTensorView& dx,
                Gradients& gradients, const MutableTensorView& dkv = {}) const;
  Gradients new_gradients() const;  // zeros, one for each of parameters()

  // The same computation with every step kept.
  Trace trace(const TensorView& x, const CallOptions& call = {}) const;

  void train() { training_ = true; }  // a new layer is in training mode, as in PyTorch
  void eval() { training_ = false; }
  bool training() const { return training_; }

  const MultiHeadAttentionOptions& options() const { return options_; }
  dim_t head_dim() const { return parameters_.sizes().head_dim; }
  std::uint64_t seed() const { return seed_; }  // after a generator: a number made from its place
  const char* rung() const { return rung_.name; }

  // Lays the parameters out for the GEMM, once for all later calls; an update drops that again.
  // Without it each call of the fused engine does it again. Not while other threads call the layer.
  void prepare(Prepare what = Prepare::calls);
  bool prepared() const { return packed_ != nullptr; }
  std::uint64_t version() const { return version_; }  // grows with every update

  dim_t parameter_count() const { return parameters_.count(); }
  std::vector<NamedParameter> parameters() const { return parameters_.named(); }
  std::vector<NamedParameter> parameters_as(Form form) const;  // or an error: it has no place
  TensorView parameter(const std::string& name) const;
  void update(const std::string& name, const TensorView& value);  // same shape; rounds to dtype
  // Each parameter, to be changed in place, in the order of parameters(); one new version.
  using ParameterChange = std::function<void(const std::string& name, const MutableTensorView& p)>;
  void update_all(const ParameterChange& change);

 protected:
  // What the rungs of the ladder change about messages and traces.
  struct Rung {
    const char* name = "MultiHeadAttention";
    bool one_head = false;        // traces have no head axis
    bool list_of_heads = false;   // traces have no split: each head projects by itself
    const char* width = "d_out";  // what the option is called
  };
  MultiHeadAttention(const MultiHeadAttentionOptions& options, const Rung& rung);

 private:
  // Copied on a move, so that a layer can be returned from a function.
  struct CallCounter {
    CallCounter() = default;
    CallCounter(CallCounter&& other) noexcept : next(other.next.load()) {}
    CallCounter& operator=(CallCounter&& other) noexcept {
      next = other.next.load();
      return *this;
    }
    std::atomic<std::uint64_t> next{0};
  };

  // A layer's number, for as long as the process runs; it moves with the layer.
  static std::uint64_t next_id();

  Tensor forward(const TensorView& x, const CallOptions& call, StepSink* sink,
                 LayerPass* pass = nullptr) const;
  void write_into(const TensorView& x, const MutableTensorView& y, const CallOptions& call,
                  LayerPass* pass) const;
  Tensor run(const TensorView& x, const CallOptions& call, StepSink* sink, LayerPass* pass,
             const MutableTensorView* y) const;
  Tensor run_rows(const EngineEntry* engine, LayerCall& layer, std::optional<AttendProblem> problem,
                  LayerPass* pass, const Shape& shape, const MutableTensorView* y) const;
  bool drops(const CallOptions& call) const {
    return training_ && call.drop && options_.dropout > 0.0;
  }
  void begin_pass(const TensorView& x, const CallOptions& call, KeepInput keep,
                  LayerPass& pass) const;
  void check_backward(const SavedPass& saved, const TensorView& dy, const MutableTensorView& dx,
                      const Gradients& gradients, const MutableTensorView& dkv) const;
  Shape output_shape(const TensorView& x) const;
  void check_input(const TensorView& x, const TensorView& kv) const;
  void check_cache(const TensorView& x, const CallOptions& call) const;
  void check_spread(const CallOptions& call) const;
  Mask mask_for(const CallOptions& call) const;
  void check_call(const TensorView& x, const CallOptions& call) const;
  AttendOptions attend_options(const CallOptions& call) const;

  Rung rung_;
  MultiHeadAttentionOptions options_;
  Parameters parameters_;
  std::uint64_t seed_ = 0;
  std::uint64_t id_ = next_id();
  std::uint64_t version_ = 0;
  std::shared_ptr<const PackedParameters> packed_;
  bool training_ = true;
  mutable CallCounter calls_;
};

}  // namespace cephalo
#pragma GCC visibility pop
