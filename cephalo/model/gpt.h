#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cephalo/attention/kv_cache.h"
#include "cephalo/attention/layer/multi_head.h"
#include "cephalo/attention/layer/saved_pass.h"
#include "cephalo/core/tensor.h"
#include "cephalo/model/gpt_memory.h"
#include "cephalo/model/gpt_options.h"
#include "cephalo/model/parameter_list.h"

#pragma GCC visibility push(default)
namespace cephalo {

// One learned tensor: parameter_list.h describes them. Matrices are as they are stored: dense,
// [out, in].
struct GptParameter {
  std::string name;
  ParameterKind kind;
  TensorView value;
};

class GptGradients;
class GptWorkspace;
struct GptLayers;           // what a model is made of
struct GptGradientTensors;  // the same for gradients
class PassMemory;

// Keys and values of every layer, for decoding: made by Gpt::new_cache.
struct GptCache {
  std::vector<KVCache> layers;
  dim_t tokens() const;  // that it holds of each sequence
  void clear();
};

// What one call may bring along.
struct GptCall {
  GptCache* cache = nullptr;  // ids continue its sequences, and are kept there
  bool last_only = false;     // logits of the last token of each sequence: [batch, 1, vocab_size]
  int threads = 0;
  // Takes what each attention layer worked with (q, k, v, lse), one pass for each layer; memory of
  // older passes there is used again. Not with a cache.
  std::vector<SavedPass>* saved = nullptr;
  // Sees what each attention layer is given, [batch, tokens, d_model], as the call proceeds; with
  // attention(layer) that is all it takes to look at weights.
  std::function<void(dim_t layer, const TensorView& x)> on_attention = {};
  Mask mask = {};      // joined by & with causal, in every layer
  Spread spread = {};  // ids and logits are of this process's tokens; no cache, no last_only
};

// One block of rows of the logits on its way: logits: [rows, vocab_size], of the tokens
// first_row .. first_row + rows of ids read row by row. It returns the block's share of the loss
// and, in train_pass, overwrites the logits by their gradient. cross_entropy_share in train/loss.h
// does both. Called in the order of rows, from the calling thread.
using LogitsLoss = std::function<double(dim_t first_row, const MutableTensorView& logits)>;

// Hears of gradients that are whole while the pass continues with others: those of the parameters
// first .. end, by their places in Gpt::parameters(). Each comes once, those of the last layer
// first, from the calling thread.
using GradientsDone = std::function<void(std::size_t first, std::size_t end)>;

// Options of one training pass.
struct PassOptions {
  std::uint64_t call = 0;             // number of this pass: dropout is a function of it and seed()
  GptWorkspace* workspace = nullptr;  // memory for the pass, kept for the next; null: this one only
  int threads = 0;
  Place::Axis batch = {};  // ids are these rows of a larger batch, and drop what they drop there
  GradientsDone on_gradients = {};
  Mask mask = {};  // joined by & with causal, in every layer
  // ids are this process's tokens, and so are the rows that the loss sees. The loss that is
  // returned and the gradients are sums over all processes, rank after rank, on every one of them;
  // dropout drops what it drops in one process.
  Spread spread = {};
};

// A GPT: token and position embeddings, pre-norm blocks, a last norm and the output head.
//   x += attention(norm(x));  x += mlp(norm(x))
// Const in use: any number of threads may call one model. Results do not depend on threads.
class Gpt {
 public:
  // Matrices and embeddings are drawn from N(0, 0.02), biases are 0, norms 1.
  explicit Gpt(const GptOptions& options);

  // Parameters from somewhere else, a file say: `fill` writes each one.
  using ParameterSource = std::function<void(const std::string& name, const MutableTensorView& to)>;
  Gpt(const GptOptions& options, const ParameterSource& fill);

  Gpt(Gpt&&) noexcept;
  Gpt& operator=(Gpt&&) noexcept;
  ~Gpt();

  // ids: [batch, tokens] or [tokens], int32 or int64 -> logits: [batch, tokens, vocab_size] or
  // [tokens, vocab_size]. Without dropout. An id outside the vocabulary is an error that names its
  // position.
  Tensor operator()(const TensorView& ids, const GptCall& call = {}) const;

  // Forward, loss and backward in one, so that the logits are never there as a whole.
  // ids: [batch, tokens], int32 or int64. Gradients are added to what `gradients` holds, so that
  // several passes make one sum. Returns the sum of what `loss` returned.
  double train_pass(const TensorView& ids, const LogitsLoss& loss, GptGradients& gradients,
                    const PassOptions& options = {}) const;

  // The forward half alone, without dropout: what `loss` leaves in the logits does not matter.
  double loss_pass(const TensorView& ids, const LogitsLoss& loss,
                   const PassOptions& options = {}) const;

  const GptOptions& options() const;  // with num_kv_heads and d_mlp filled in
  std::uint64_t seed() const;
  const MultiHeadAttention& attention(dim_t layer) const;
  GptCache new_cache(dim_t batch) const;

  // Lays the parameters out, for decoding or for several train_passes, once for all later calls; an
  // update drops that again. Not while other threads call the model.
  void prepare(Prepare what = Prepare::calls);
  std::uint64_t version() const;  // grows with every update

  dim_t parameter_count() const;
  std::vector<GptParameter> parameters() const;  // in the order of parameter_list
  TensorView parameter(const std::string& name) const;
  void update(const std::string& name, const TensorView& value);  // same shape

  // Each parameter, to be changed in place; `index` is its place in parameters(), and in
  // GptGradients. One new version.
  using ParameterChange =
      std::function<void(std::size_t index, const std::string& name, const MutableTensorView& p)>;
  void update_all(const ParameterChange& change);

 private:
  class SpreadGradients;
  friend class GptGradients;
  friend const GptLayers& layers_of(const Gpt& model);
  std::unique_ptr<GptLayers> layers_;
};

// One gradient for each parameter of a model, under its name, in its shape and order; float32, or
// float64 for a float64 model. Zero when new.
class GptGradients {
 public:
  explicit GptGradients(const Gpt& model);
  GptGradients(GptGradients&&) noexcept;
  GptGradients& operator=(GptGradients&&) noexcept;
  ~GptGradients();

  void zero();
  const std::vector<MutableTensorView>& tensors() const;  // in the order of Gpt::parameters()
  MutableTensorView find(const std::string& name) const;

 private:
  friend class Gpt;
  std::unique_ptr<GptGradientTensors> stored_;
};

// Memory of one training pass, kept between passes: allocated by the first, larger when a larger
// batch comes. One pass at a time; it belongs to no model.
class GptWorkspace {
 public:
  GptWorkspace();
  GptWorkspace(GptWorkspace&&) noexcept;
  GptWorkspace& operator=(GptWorkspace&&) noexcept;
  ~GptWorkspace();

  std::size_t bytes() const;
  void clear();  // gives the memory back

 private:
  friend class Gpt;
  std::unique_ptr<PassMemory> memory_;
};

}  // namespace cephalo
#pragma GCC visibility pop
