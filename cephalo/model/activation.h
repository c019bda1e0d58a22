#pragma once

#pragma GCC visibility push(default)
namespace cephalo {

// What comes between the two matrices of an MLP.
//   gelu_tanh: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), as in GPT-2
//   gelu_erf:  ½ x (1 + erf(x / √2)), what the former is near to
enum class Activation { gelu_tanh, gelu_erf };

}  // namespace cephalo
#pragma GCC visibility pop
