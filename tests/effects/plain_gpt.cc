#include "tests/effects/plain_gpt.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

#include "cephalo/attention/layer/rotary.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/random.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

// What another run has, where a change takes it from.
struct PlainKept {
  std::vector<Tensor> resid_pre;  // [tokens, d_model]
  std::vector<Tensor> context;    // [tokens, d_model]
};

class PlainGpt {
 public:
  PlainGpt(const Gpt& model, const Changes& changes, const PlainKept* from, const Tensor* reference)
      : model_(model), o_(model.options()), changes_(changes), from_(from), reference_(reference) {}

  Tensor run(const std::vector<std::int64_t>& ids, PlainKept* kept) const {
    Tensor x = embed(ids);
    for (dim_t l = 0; l < o_.num_layers; ++l) {
      patch_stream(l, x);
      if (kept != nullptr) kept->resid_pre.push_back(Tensor::copy(x));
      Tensor context = attend(
          l, linear(norm(x, block(l) + "ln_1"), weight(l, "attn.c_attn"), bias(l, "attn.c_attn")));
      change_contexts(l, context);
      if (kept != nullptr) kept->context.push_back(Tensor::copy(context));
      if (!removed(l, ModelSection::attention)) {
        x = add(x, linear(context, weight(l, "attn.c_proj"), bias(l, "attn.c_proj")));
      }
      if (removed(l, ModelSection::mlp)) continue;
      Tensor hidden =
          linear(norm(x, block(l) + "ln_2"), weight(l, "mlp.c_fc"), bias(l, "mlp.c_fc"));
      for (dim_t n = 0; n < hidden.numel(); ++n)
        hidden.mutable_data_as<double>()[n] = gelu(hidden, n);
      x = add(x, linear(hidden, weight(l, "mlp.c_proj"), bias(l, "mlp.c_proj")));
    }
    return linear(norm(x, "transformer.ln_f"), wide("transformer.wte.weight"));
  }

 private:
  static std::string block(dim_t l) { return "transformer.h." + std::to_string(l) + "."; }
  Tensor wide(const std::string& name) const {
    return Tensor::copy(model_.parameter(name), DType::f64);
  }
  Tensor weight(dim_t l, const std::string& name) const {
    return wide(block(l) + name + ".weight");
  }
  Tensor bias(dim_t l, const std::string& name) const { return wide(block(l) + name + ".bias"); }

  static double gelu(const Tensor& t, dim_t n) {
    const double x = t.data_as<double>()[n];
    return 0.5 * x *
           (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }

  Tensor embed(const std::vector<std::int64_t>& ids) const {
    const Tensor token = wide("transformer.wte.weight");
    Tensor x = Tensor::empty({std::ssize(ids), o_.d_model}, DType::f64);
    for (dim_t i = 0; i < x.dim(0); ++i) {
      x.mutable_view()[i].copy_from(token[ids[static_cast<std::size_t>(i)]]);
    }
    if (o_.positions == PositionKind::rotary) return x;
    return add(x, wide("transformer.wpe.weight").slice(0, 0, x.dim(0)));
  }

  Tensor norm(const TensorView& x, const std::string& name) const {
    const Tensor gain = wide(name + ".weight");
    const Tensor shift = wide(name + ".bias");
    const auto width = static_cast<double>(o_.d_model);
    Tensor y = Tensor::copy(x);
    for (dim_t i = 0; i < x.dim(0); ++i) {
      double* row = y.mutable_data_as<double>() + i * o_.d_model;
      double mean = 0.0;
      double variance = 0.0;
      for (dim_t d = 0; d < o_.d_model; ++d) mean += row[d] / width;
      for (dim_t d = 0; d < o_.d_model; ++d) variance += std::pow(row[d] - mean, 2.0) / width;
      for (dim_t d = 0; d < o_.d_model; ++d) {
        row[d] =
            (row[d] - mean) / std::sqrt(variance + o_.norm_epsilon) * gain.data_as<double>()[d] +
            shift.data_as<double>()[d];
      }
    }
    return y;
  }

  void patch_stream(dim_t l, Tensor& x) const {
    for (const Change& c : changes_) {
      if (c.layer != l || c.section != ModelSection::stream) continue;
      for (dim_t i = 0; i < x.dim(0); ++i) {
        if (c.position < 0 || c.position == i) {
          x.mutable_view()[i].copy_from(from_->resid_pre[static_cast<std::size_t>(l)][i]);
        }
      }
    }
  }

  bool removed(dim_t l, ModelSection section) const {
    for (const Change& c : changes_) {
      if (c.layer == l && (c.section == section || c.section == ModelSection::layer)) return true;
    }
    return false;
  }

  void rotate_heads(Tensor& qkv, dim_t begin, dim_t heads) const {
    if (o_.positions != PositionKind::rotary) return;
    const MutableTensorView columns =
        qkv.mutable_view().slice(1, begin, begin + heads * o_.head_dim());
    rotate({columns.mutable_data(),
            DType::f64,
            {1, qkv.dim(0), heads, o_.head_dim()},
            {0, qkv.dim(1), o_.head_dim(), 1}},
           o_.rotary, {0});
  }

  // qkv: [tokens, …] -> context: [tokens, d_model]
  Tensor attend(dim_t l, Tensor qkv) const {
    rotate_heads(qkv, 0, o_.num_heads);
    rotate_heads(qkv, o_.d_model, o_.num_kv_heads);
    Tensor context = Tensor::zeros({qkv.dim(0), o_.d_model}, DType::f64);
    for (dim_t h = 0; h < o_.num_heads; ++h) {
      const dim_t kv = o_.d_model + h / (o_.num_heads / o_.num_kv_heads) * o_.head_dim();
      for (dim_t i = 0; i < qkv.dim(0); ++i) attend_row(l, h, i, kv, qkv, context);
    }
    return context;
  }

  void attend_row(dim_t l, dim_t h, dim_t i, dim_t kv, const Tensor& qkv, Tensor& context) const {
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    const dim_t dim = o_.head_dim();
    const auto row = [&](dim_t token) { return qkv.data_as<double>() + token * qkv.dim(1); };
    std::vector<double> scores(static_cast<std::size_t>(i + 1), 0.0);
    for (dim_t j = 0; j <= i; ++j) {
      double& score = scores[static_cast<std::size_t>(j)];
      for (dim_t d = 0; d < dim; ++d) score += row(i)[h * dim + d] * row(j)[kv + d];
      score /= std::sqrt(static_cast<double>(dim));
    }
    for (const Change& c : changes_) {
      if (c.layer != l || c.head != h) continue;
      if (c.kind == ChangeKind::uniform) scores.assign(scores.size(), 0.0);
      if (c.kind == ChangeKind::no_first && i > 0) scores[0] = kHidden;
      if (c.kind == ChangeKind::hide && c.query == i) {
        scores[static_cast<std::size_t>(c.key)] = kHidden;
      }
    }
    std::vector<double> weights(scores.size());
    softmax_row(scores.data(), i + 1, weights.data());
    for (const Change& c : changes_) {
      if (c.layer == l && c.head == h && c.kind == ChangeKind::cut && c.query == i) {
        weights[static_cast<std::size_t>(c.key)] = 0.0;
      }
    }
    for (dim_t d = 0; d < dim; ++d) {
      double sum = 0.0;
      for (dim_t j = 0; j <= i; ++j) {
        sum += weights[static_cast<std::size_t>(j)] * row(j)[kv + o_.kv_width() + d];
      }
      context.set({i, h * dim + d}, sum);
    }
  }

  void change_contexts(dim_t l, Tensor& context) const {
    for (const Change& c : changes_) {
      if (c.layer != l || c.section != ModelSection::head) continue;
      for (dim_t d = c.head * o_.head_dim(); d < (c.head + 1) * o_.head_dim(); ++d) {
        double mean = 0.0;
        for (dim_t i = 0; i < context.dim(0); ++i) {
          mean += context.at({i, d}) / static_cast<double>(context.dim(0));
        }
        for (dim_t i = 0; i < context.dim(0); ++i) {
          context.set({i, d}, changed(c, context.at({i, d}), mean, {i, d}));
        }
      }
    }
  }

  double changed(const Change& c, double z, double mean, std::pair<dim_t, dim_t> at) const {
    if (c.kind == ChangeKind::zero) return 0.0;
    if (c.kind == ChangeKind::mean) return mean;
    if (c.kind == ChangeKind::scale) return z * c.factor;
    if (c.kind == ChangeKind::reference_mean) return reference_->at({c.layer, at.second});
    if (c.kind != ChangeKind::patch) return z;
    return from_->context[static_cast<std::size_t>(c.layer)].at({at.first, at.second});
  }

  const Gpt& model_;
  const GptOptions& o_;
  const Changes& changes_;
  const PlainKept* from_;
  const Tensor* reference_;
};

}  // namespace

GptOptions lively_options(PositionKind positions, DType dtype) {
  return {.vocab_size = 23,
          .context_length = 80,
          .d_model = 32,
          .num_heads = 4,
          .num_kv_heads = positions == PositionKind::rotary ? 2 : 4,
          .num_layers = 3,
          .d_mlp = 48,
          .positions = positions,
          .seed = 3,
          .dtype = dtype};
}

Gpt lively_model(const GptOptions& options) {
  std::uint64_t seed = 40;
  return Gpt(options, [&](const std::string&, const MutableTensorView& to) {
    const Tensor numbers = normal(to.shape(), ++seed, DType::f64);
    to.copy_from(multiply(numbers, 0.4));
  });
}

std::vector<std::int64_t> some_ids(dim_t count, dim_t vocab_size, std::uint64_t seed) {
  TorchGenerator generator(seed);
  std::vector<std::int64_t> ids;
  for (dim_t i = 0; i < count; ++i) ids.push_back(generator.randint(0, vocab_size));
  return ids;
}

Tensor plain_logits(const Gpt& model, const std::vector<std::int64_t>& ids, const Changes& changes,
                    const PlainGiven& given) {
  PlainKept from;
  if (!given.patch_from.empty()) PlainGpt(model, {}, nullptr, nullptr).run(given.patch_from, &from);
  return PlainGpt(model, changes, &from, given.reference).run(ids, nullptr);
}

}  // namespace cephalo::testing
