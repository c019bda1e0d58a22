#include "cephalo/view/value_norms.h"

#include "cephalo/linear/ops.h"

namespace cephalo {

Tensor value_norms(const TensorView& v, const TensorView& out_weight,
                   const std::vector<dim_t>& heads) {
  const dim_t tokens = v.dim(1);
  const dim_t v_dim = v.dim(2);
  const dim_t num_heads = out_weight.dim(1) / v_dim;
  const dim_t sharing = num_heads / v.dim(0);  // query heads of one kv head
  Tensor norms = Tensor::empty({std::ssize(heads), tokens}, DType::f64);
  Tensor moved = Tensor::empty({tokens, out_weight.dim(0)}, out_weight.dtype());
  for (std::size_t n = 0; n < heads.size(); ++n) {
    const dim_t head = heads[n];
    const PackedLinear w_out(out_weight.slice(1, head * v_dim, (head + 1) * v_dim), {},
                             out_weight.dtype());
    ops::linear(w_out, v[head / sharing], moved);
    ops::row_norms(moved, norms.mutable_view()[static_cast<dim_t>(n)]);
  }
  return norms;
}

}  // namespace cephalo
