#pragma once

#include <string>
#include <vector>

#include "cephalo/attention/layer/parameters.h"

#pragma GCC visibility push(default)
namespace cephalo {

// One gradient for each parameter of a layer, in the layer's own order and under its names, stored
// as the parameters are. Made by MultiHeadAttention::new_gradients, all zero; backward adds to it,
// so that several passes make one sum. float32, or float64 for a float64 layer.
class Gradients {
 public:
  Gradients(const ParameterSizes& sizes, Form form, DType dtype, const char* layer);

  void zero();
  std::vector<NamedParameter> named() const { return stored_.named(); }
  MutableTensorView find(const std::string& name) { return stored_.find(name); }
  TensorView find(const std::string& name) const { return stored_.find(name); }

  const ParameterSizes& sizes() const { return stored_.sizes(); }
  DType dtype() const { return stored_.dtype(); }
  Parameters::Blocks blocks() { return stored_.blocks(); }

 private:
  Parameters stored_;
};

}  // namespace cephalo
#pragma GCC visibility pop
