#pragma once

#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

class TorchGenerator;

// The naming habits people have their parameters under.
enum class Form {
  separate,  // W_query.weight W_key.weight W_value.weight [.bias], out_proj.*
  raw,       // W_query W_key W_value, stored in × out
  heads,     // heads.N.W_query.weight …, out_proj.*
  linear,    // q_linear.* k_linear.* v_linear.* out_proj.*
  joined,    // qkv_proj.*, out_proj.*
  torch,     // in_proj_weight in_proj_bias out_proj.*
  gpt2       // attn.c_attn.* (in × 3·out), attn.c_proj.*
};
const char* name(Form form);

// The sizes of one layer's parameters.
struct ParameterSizes {
  dim_t d_in;
  dim_t d_kv;  // width that keys and values are projected from
  dim_t num_heads;
  dim_t num_kv_heads;
  dim_t head_dim;
  dim_t v_dim;
  dim_t d_out;  // width after the output projection
  bool qkv_bias;
  bool out_proj;
  bool out_bias;

  dim_t q_width() const { return checked_mul(num_heads, head_dim); }
  dim_t k_width() const { return checked_mul(num_kv_heads, head_dim); }
  dim_t v_width() const { return checked_mul(num_kv_heads, v_dim); }
  dim_t context_width() const { return checked_mul(num_heads, v_dim); }
  dim_t count() const;  // of all learned numbers; an error if it overflows
  bool operator==(const ParameterSizes&) const = default;
};

// A parameter under the name that it has in its form.
struct NamedParameter {
  std::string name;
  TensorView value;
};

// Parameters stored once: the rows of the query, key and value projections are stored one below the
// other, so that every form is a set of names for views of the same memory.
class Parameters {
 public:
  // Throws when the form cannot name such a layer; `layer` begins the message.
  Parameters(const ParameterSizes& sizes, Form form, DType dtype, const char* layer);

  // Draws what PyTorch's constructor would draw, in its order: float32, then rounded to dtype.
  void initialise(TorchGenerator& generator);

  // All are [width, d_in] or [width]; a null bias is a view of shape [0].
  TensorView q_weight() const { return q_weight_; }
  TensorView k_weight() const { return k_weight_; }
  TensorView v_weight() const { return v_weight_; }
  TensorView q_bias() const { return q_bias_; }
  TensorView k_bias() const { return k_bias_; }
  TensorView v_bias() const { return v_bias_; }
  // Those of k and v below each other.
  TensorView kv_weight() const { return kv_weight_; }
  TensorView kv_bias() const { return kv_bias_; }
  // All three; of shape [0] when keys come from an input of another width.
  TensorView qkv_weight() const { return qkv_weight_; }
  TensorView qkv_bias() const { return qkv_bias_; }
  TensorView out_weight() const { return out_weight_; }
  TensorView out_bias() const { return out_bias_; }

  Form form() const { return form_; }
  const ParameterSizes& sizes() const { return sizes_; }
  DType dtype() const { return dtype_; }
  dim_t count() const { return sizes_.count(); }

  // The form's names in the order of construction, each a view of the stored memory.
  std::vector<NamedParameter> named() const;
  // The same memory under the names of another form; an error where that form has no place for it.
  std::vector<NamedParameter> named_as(Form form, const char* layer) const;
  MutableTensorView find(const std::string& name) const;  // an error that lists the names

  // The views above, to write to.
  struct Blocks {
    MutableTensorView qkv_weight, q_weight, kv_weight;
    MutableTensorView qkv_bias, q_bias, kv_bias;
    MutableTensorView out_weight, out_bias;
  };
  Blocks blocks() {
    return {qkv_weight_, q_weight_, kv_weight_,  qkv_bias_,
            q_bias_,     kv_bias_,  out_weight_, out_bias_};
  }

 private:
  struct Slot {
    std::string name;
    MutableTensorView value;
  };

  std::vector<Slot> slots_of(Form form) const;
  void initialise_torch(TorchGenerator& generator);

  ParameterSizes sizes_;
  Form form_;
  DType dtype_;
  std::vector<Tensor> storage_;
  MutableTensorView q_weight_, k_weight_, v_weight_, kv_weight_, qkv_weight_;
  MutableTensorView q_bias_, k_bias_, v_bias_, kv_bias_, qkv_bias_;
  MutableTensorView out_weight_, out_bias_;
  std::vector<Slot> slots_;
};

}  // namespace cephalo
#pragma GCC visibility pop
