// Multi-head attention (rung 5) written out with the functions a learner would use, and compared
// with the layer: not one bit differs.
#include <cephalo/cephalo.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>

using namespace cephalo;

namespace {

// x: [batch, tokens, d_in] -> [batch, tokens, d_out]
Tensor by_hand(const TensorView& x, const MultiHeadAttention& layer) {
  const dim_t batch = x.dim(0);
  const dim_t tokens = x.dim(1);
  const dim_t num_heads = layer.options().num_heads;
  const dim_t head_dim = layer.head_dim();

  // 1  PROJECT
  const Tensor q = linear(x, layer.parameter("W_query.weight"));
  const Tensor k = linear(x, layer.parameter("W_key.weight"));
  const Tensor v = linear(x, layer.parameter("W_value.weight"));

  // 2  SPLIT: [batch, tokens, num_heads, head_dim]
  const Shape split{batch, tokens, num_heads, head_dim};

  // 3  TRANSPOSE: [batch, num_heads, tokens, head_dim]
  const TensorView q_heads = transpose(view(q, split), 1, 2);
  const TensorView k_heads = transpose(view(k, split), 1, 2);
  const TensorView v_heads = transpose(view(v, split), 1, 2);

  // 4  ATTEND: [batch, num_heads, tokens, tokens], then [batch, num_heads, tokens, head_dim]
  const Tensor scores = matmul(q_heads, transpose(k_heads, 2, 3));
  const Tensor future = triu(Tensor::full({tokens, tokens}, 1.0), 1);
  const Tensor masked = masked_fill(scores, future, -std::numeric_limits<double>::infinity());
  const Tensor weights = softmax(multiply(masked, 1.0 / std::sqrt(static_cast<double>(head_dim))));
  const Tensor context = matmul(weights, v_heads);

  // 5  CONCAT: transposed memory has to be copied before it can be seen as rows
  const auto dense = contiguous(transpose(context, 1, 2));
  const TensorView rows = view(dense, {batch, tokens, num_heads * head_dim});

  // 6  PROJECT
  return linear(rows, layer.parameter("out_proj.weight"), layer.parameter("out_proj.bias"));
}

}  // namespace

int main() {
  MultiHeadAttention layer(
      {.d_in = 768, .d_out = 768, .context_length = 1024, .num_heads = 12, .seed = 123});
  layer.eval();
  const Tensor x = TorchGenerator(1).randn({2, 50, 768});

  const Tensor ours = by_hand(x, layer);
  const Tensor theirs = layer(x, {.engine = Engine::reference});
  const bool equal = std::memcmp(ours.data(), theirs.data(), ours.bytes()) == 0;
  std::cout << "by hand  " << ours.shape() << "  " << ours.at({1, 49, 767}) << "\n"
            << "layer    " << theirs.shape() << "  " << theirs.at({1, 49, 767}) << "\n"
            << (equal ? "every bit is equal\n" : "they differ\n");
  return equal ? 0 : 1;
}
