#include "cephalo/effects/circuits.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/gpt_layers.h"

namespace cephalo {
namespace {

using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowsView = Eigen::Map<const Rows>;
using MutableRows = Eigen::Map<Rows>;

RowsView matrix(const Tensor& t) {
  return {t.data_as<double>(), t.dim(0), t.dim(1)};
}

MutableRows mutable_matrix(Tensor& t) {
  return {t.mutable_data_as<double>(), t.dim(0), t.dim(1)};
}

// Rows of mean 0: what a norm takes of a residual, and what a residual's own mean adds to nobody.
Tensor centred(Tensor rows) {
  MutableRows m = mutable_matrix(rows);
  m.colwise() -= m.rowwise().mean().eval();
  return rows;
}

// weight: [width, d_model], gain: [d_model] -> the same, of what the norm before it leaves
Tensor folded(const TensorView& weight, const TensorView& gain) {
  Tensor rows = Tensor::copy(weight, DType::f64);
  const Tensor wide = Tensor::copy(gain, DType::f64);
  const Eigen::Map<const Eigen::RowVectorXd> gains(wide.data_as<double>(), wide.dim(0));
  mutable_matrix(rows).array().rowwise() *= gains.array();
  return centred(std::move(rows));
}

// The matrices of a layer, head by head: [heads · head_dim, d_model], float64. `out` is W_O, the
// others are W_Qᵀ, W_Kᵀ and W_Vᵀ.
struct LayerMatrices {
  dim_t head_dim;
  dim_t num_heads;
  Tensor q, k, v, out;

  // [head_dim, d_model]; neighbouring heads may share keys and values.
  auto head(const Tensor& t, dim_t h) const {
    const dim_t sharing = num_heads * head_dim / t.dim(0);
    return matrix(t).middleRows(h / sharing * head_dim, head_dim);
  }
};

LayerMatrices layer_matrices(const GptLayers& model, dim_t layer) {
  const GptOptions& o = model.options;
  const Block& block = model.blocks[static_cast<std::size_t>(layer)];
  const TensorView qkv = block.attention.parameter("qkv_proj.weight");
  const TensorView out = block.attention.parameter("out_proj.weight");
  const auto read = [&](dim_t begin, dim_t width) {
    return folded(qkv.slice(0, begin, begin + width), block.norm_1.weight);
  };
  return {o.head_dim(),
          o.num_heads,
          read(0, o.d_model),
          read(o.d_model, o.kv_width()),
          read(o.d_model + o.kv_width(), o.kv_width()),
          centred(Tensor::copy(transpose(out, 0, 1), DType::f64))};
}

LayerMatrices random_matrices(const GptOptions& o, TorchGenerator& generator) {
  const auto draw = [&] { return centred(generator.randn({o.d_model, o.d_model}, DType::f64)); };
  Tensor q = draw();
  Tensor k = draw();
  Tensor v = draw();
  return {o.head_dim(), o.num_heads, std::move(q), std::move(k), std::move(v), draw()};
}

// One side of a product of two heads. A = W_V W_O has rank head_dim, and W_V = (orthogonal) T, so
// that ‖A B‖ = ‖T W_O B‖: of A only T W_O is needed, and of B likewise.
struct Side {
  Tensor rows;                // [num_heads · head_dim, d_model]: T · inner
  std::vector<double> norms;  // of each head: ‖A‖
};

Side side(const LayerMatrices& layer, const Tensor& outer, const Tensor& inner) {
  Side s{Tensor::empty({layer.num_heads * layer.head_dim, inner.dim(1)}, DType::f64), {}};
  for (dim_t h = 0; h < layer.num_heads; ++h) {
    const Eigen::MatrixXd columns = layer.head(outer, h).transpose();
    const Eigen::MatrixXd triangle =
        columns.householderQr().matrixQR().topRows(layer.head_dim).triangularView<Eigen::Upper>();
    auto rows = mutable_matrix(s.rows).middleRows(h * layer.head_dim, layer.head_dim);
    rows.noalias() = triangle * layer.head(inner, h);
    s.norms.push_back(rows.norm());
  }
  return s;
}

Side writer(const LayerMatrices& layer) {
  return side(layer, layer.v, layer.out);
}

Side reader(const LayerMatrices& layer, Composition kind) {
  if (kind == Composition::query) return side(layer, layer.k, layer.q);
  if (kind == Composition::key) return side(layer, layer.q, layer.k);
  return side(layer, layer.out, layer.v);
}

// Every head of one layer with every head of a later one: calls set(earlier, later, score).
template <typename Set>
void score_pairs(const Side& earlier, const Side& later, const PackedLinear& packed, Set set) {
  const dim_t width = earlier.rows.dim(0);
  Tensor products = Tensor::empty({width, width}, DType::f64);  // head_dim x head_dim for each pair
  ops::linear(packed, earlier.rows, products);
  const auto num_heads = std::ssize(earlier.norms);
  const dim_t head_dim = width / num_heads;
  for (dim_t e = 0; e < num_heads; ++e) {
    for (dim_t l = 0; l < num_heads; ++l) {
      const double norm =
          matrix(products).block(e * head_dim, l * head_dim, head_dim, head_dim).norm();
      const double norms =
          earlier.norms[static_cast<std::size_t>(e)] * later.norms[static_cast<std::size_t>(l)];
      set(e, l, norms > 0 ? norm / norms : std::numeric_limits<double>::quiet_NaN());
    }
  }
}

PackedLinear pack(const TensorView& rows) {
  return PackedLinear(rows, {}, DType::f64);
}

// The mean over all pairs of two random layers.
double random_score(const GptOptions& o, Composition kind, std::uint64_t seed) {
  TorchGenerator generator(seed);
  const Side earlier = writer(random_matrices(o, generator));
  const Side later = reader(random_matrices(o, generator), kind);
  double sum = 0.0;
  score_pairs(earlier, later, pack(later.rows), [&](dim_t, dim_t, double score) { sum += score; });
  return sum / static_cast<double>(o.num_heads * o.num_heads);
}

// -> [d_model, d_model] = γ W_U W_E, γ of the last norm: what a logit's direction has of a token's
// embedding, summed over the vocabulary, some tokens at a time.
Tensor unembed_embed(const GptLayers& model) {
  constexpr dim_t kTokens = 2048;
  const GptOptions& o = model.options;
  Tensor sum = Tensor::zeros({o.d_model, o.d_model}, DType::f64);
  for (dim_t begin = 0; begin < o.vocab_size; begin += kTokens) {
    const dim_t end = std::min(begin + kTokens, o.vocab_size);
    const TensorView embed = model.token.slice(0, begin, end);
    const Tensor unembed = Tensor::copy(model.head_weight().slice(0, begin, end), DType::f64);
    ops::linear(pack(transpose(embed, 0, 1)), transpose(unembed, 0, 1), sum, Epilogue::add());
  }
  const Tensor gain = Tensor::copy(model.norm.weight, DType::f64);
  const Eigen::Map<const Eigen::VectorXd> gains(gain.data_as<double>(), o.d_model);
  mutable_matrix(sum).array().colwise() *= gains.array();
  return sum;
}

// Σλ / Σ|λ|; form: [head_dim, head_dim]
double copying_of(const Eigen::MatrixXd& form) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (!form.allFinite()) return kNone;  // of which the solver would make arbitrary numbers
  const Eigen::EigenSolver<Eigen::MatrixXd> solver(form, false);
  if (solver.info() != Eigen::Success) return kNone;
  const double size = solver.eigenvalues().cwiseAbs().sum();
  return size > 0 ? solver.eigenvalues().real().sum() / size : kNone;
}

}  // namespace

CompositionScores composition(const Gpt& model, Composition kind, std::uint64_t seed) {
  const GptOptions& o = model.options();
  CompositionScores found{Tensor::full({o.num_layers, o.num_heads, o.num_layers, o.num_heads},
                                       std::numeric_limits<double>::quiet_NaN(), DType::f64),
                          random_score(o, kind, seed)};
  std::vector<Side> below;
  for (dim_t layer = 0; layer < o.num_layers; ++layer) {
    const LayerMatrices matrices = layer_matrices(layers_of(model), layer);
    const Side later = reader(matrices, kind);
    const PackedLinear packed = pack(later.rows);
    for (dim_t e = 0; e < layer; ++e) {
      score_pairs(below[static_cast<std::size_t>(e)], later, packed,
                  [&](dim_t h, dim_t later_head, double score) {
                    found.scores.set({e, h, layer, later_head}, score);
                  });
    }
    below.push_back(writer(matrices));
  }
  return found;
}

Tensor copying(const Gpt& model) {
  const GptOptions& o = model.options();
  // λ of (W_E W_V)(W_O W_U), [vocab_size, vocab_size], are those of (W_O W_U)(W_E W_V) and zeros.
  const PackedLinear packed = pack(unembed_embed(layers_of(model)));
  Tensor found = Tensor::empty({o.num_layers, o.num_heads}, DType::f64);
  for (dim_t layer = 0; layer < o.num_layers; ++layer) {
    LayerMatrices m = layer_matrices(layers_of(model), layer);
    Tensor read = Tensor::empty(m.v.shape(), DType::f64);
    ops::linear(packed, m.v, read);
    m.v = std::move(read);
    for (dim_t h = 0; h < o.num_heads; ++h) {
      found.set({layer, h}, copying_of(m.head(m.out, h) * m.head(m.v, h).transpose()));
    }
  }
  return found;
}

}  // namespace cephalo
