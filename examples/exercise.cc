// A guided exercise: write multi-head attention yourself, six steps, on one small fixed layer.
//
// Every `{}` marked GAP is to be replaced. Build and run after each one: the program prints the
// shapes that you have so far, says right or what is wrong, and what to do next. The functions you
// need are linear, view, transpose, matmul, triu, masked_fill, multiply, softmax and Tensor::copy.
// Stuck: cephalo exercise split --hint, and then --hint --hint or --solution --cpp.
#include <cephalo/cephalo.h>

#include <cmath>
#include <iostream>
#include <limits>

using namespace cephalo;

namespace {

bool all_right = true;  // so far

// Prints the answer's shape and what the checker says; true when the next step may begin.
bool passed(const char* step, const TensorView& answer) {
  const Verdict verdict = check(step, answer);
  const bool empty = answer.numel() == 0;
  if (!empty) std::cout << "your " << step << " has shape " << answer.shape() << "\n";
  std::cout << verdict.text << "\n\n";
  all_right = all_right && (verdict.right || empty);
  return verdict.right;
}

void solve(const Exercise& e) {
  std::cout << "x        [batch, tokens, d_in] " << e.x.shape() << "\n"
            << "W_query  [d_out, d_in]         " << e.W_query.shape() << "\n"
            << e.num_heads << " heads of " << e.head_dim << "\n\n";

  // 1  PROJECT: linear(input, weight) is input times weight transposed.
  const Tensor q = {};  // GAP
  const Tensor k = {};  // GAP
  const Tensor v = {};  // GAP
  if (!passed("project", q)) return;

  // 2  SPLIT: look at the same memory as [batch, tokens, num_heads, head_dim].
  const TensorView q_split = {};  // GAP
  const TensorView k_split = {};  // GAP
  const TensorView v_split = {};  // GAP
  if (!passed("split", q_split)) return;
  std::cout << "k_split " << k_split.shape() << ", v_split " << v_split.shape() << "\n";

  // 3  TRANSPOSE: [batch, num_heads, tokens, head_dim]; no number moves.
  const TensorView q_heads = {};  // GAP
  const TensorView k_heads = {};  // GAP
  const TensorView v_heads = {};  // GAP
  if (!passed("transpose", q_heads)) return;
  std::cout << "k_heads " << k_heads.shape() << ", v_heads " << v_heads.shape() << "\n"
            << "strides before " << q_split.strides() << ", after " << q_heads.strides() << "\n";

  // 4  ATTEND: every query with every key of its head ...
  const Tensor scores = {};  // GAP
  if (!passed("scores", scores)) return;

  // ... but none that comes later: -std::numeric_limits<double>::infinity() there ...
  const Tensor future = triu(Tensor::full({e.tokens, e.tokens}, 1.0), 1);
  std::cout << "future " << future << "\n";
  const Tensor masked = {};  // GAP
  if (!passed("mask", masked)) return;

  // ... scaled, and made into weights whose rows sum to 1 ...
  const Tensor weights = {};  // GAP
  if (!passed("softmax", weights)) return;
  std::cout << "head 0 of sequence 0 " << weights[0][0] << "\n";

  // ... which mix the values.
  const Tensor context_heads = {};  // GAP
  if (!passed("values", context_heads)) return;

  // 5  CONCAT: heads back beside each other; a transposed tensor has to be copied before view.
  const Tensor swapped = {};      // GAP
  const TensorView context = {};  // GAP
  if (!passed("concat", context)) return;

  // 6  PROJECT
  const Tensor output = {};  // GAP
  passed("output", output);
}

}  // namespace

int main() {
  solve(exercise());
  return all_right ? 0 : 1;
}
