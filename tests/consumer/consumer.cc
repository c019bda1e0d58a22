#include <cephalo/cephalo.h>

#include <iostream>

int main() {
  cephalo::MultiHeadAttention layer({.d_in = 8, .d_out = 8, .num_heads = 2, .seed = 123});
  const cephalo::Tensor y = layer(cephalo::TorchGenerator(1).randn({1, 4, 8}));
  std::cout << CEPHALO_VERSION << " " << y.shape() << "\n";
}
