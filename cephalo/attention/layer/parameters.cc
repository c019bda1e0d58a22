#include "cephalo/attention/layer/parameters.h"

#include <cmath>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

MutableTensorView transposed(const MutableTensorView& t) {
  return {t.mutable_data(), t.dtype(), {t.dim(1), t.dim(0)}, {t.strides()[1], t.strides()[0]}};
}

bool present(const TensorView& t) {
  return t.numel() > 0;
}

// Draws into float32 and rounds, when the parameters are stored in another type.
template <typename Draw>
void draw_into(const MutableTensorView& to, Draw&& draw) {
  if (to.dtype() == DType::f32) {
    draw(to);
    return;
  }
  Tensor drawn = Tensor::empty(to.shape());
  draw(drawn.mutable_view());
  to.copy_from(drawn);
}

// Can this form name such a layer?
void check_form(const ParameterSizes& sizes, Form form, const char* layer) {
  const bool one_block = form == Form::joined || form == Form::torch || form == Form::gpt2;
  require(!one_block || sizes.d_kv == sizes.d_in,
          "{}: form {} stores one projection for q, k and v, so d_kv ({}) must equal d_in ({})",
          layer, name(form), sizes.d_kv, sizes.d_in);
  require(!one_block || sizes.v_dim == sizes.head_dim,
          "{}: form {} stores q, k and v alike, so v_dim ({}) must equal head_dim ({})", layer,
          name(form), sizes.v_dim, sizes.head_dim);
  const bool one_for_each =
      form == Form::heads || form == Form::torch || form == Form::gpt2 || form == Form::raw;
  require(!one_for_each || sizes.num_kv_heads == sizes.num_heads,
          "{}: form {} needs num_kv_heads ({}) equal to num_heads ({})", layer, name(form),
          sizes.num_kv_heads, sizes.num_heads);
  require(form != Form::raw || (!sizes.qkv_bias && !sizes.out_proj), "{}: form raw cannot hold {}",
          layer, sizes.out_proj ? "an output projection" : "biases");
  require((form != Form::torch && form != Form::gpt2) || sizes.out_proj,
          "{}: form {} always has an output projection, this layer has none", layer, name(form));
}

}  // namespace

const char* name(Form form) {
  static constexpr const char* kNames[] = {"separate", "raw",   "heads", "linear",
                                           "joined",   "torch", "gpt2"};
  return kNames[static_cast<int>(form)];
}

dim_t ParameterSizes::count() const {
  const dim_t kv_width = checked_add(k_width(), v_width());
  dim_t total = checked_add(checked_mul(q_width(), d_in), checked_mul(kv_width, d_kv));
  if (qkv_bias) total = checked_add(total, checked_add(q_width(), kv_width));
  if (out_proj) total = checked_add(total, checked_mul(d_out, context_width()));
  if (out_proj && out_bias) total = checked_add(total, d_out);
  return total;
}

Parameters::Parameters(const ParameterSizes& sizes, Form form, DType dtype, const char* layer)
    : sizes_(sizes), form_(form), dtype_(dtype) {
  check_form(sizes, form, layer);
  const bool one_input = sizes.d_kv == sizes.d_in;
  const dim_t q = sizes.q_width();
  const dim_t k = sizes.k_width();
  const dim_t v = sizes.v_width();
  const auto own = [&](const Shape& shape) -> MutableTensorView {
    storage_.push_back(Tensor::empty(shape, dtype));
    return storage_.back().mutable_view();
  };
  storage_.reserve(5);
  if (one_input) {
    qkv_weight_ = own({q + k + v, sizes.d_in});
    q_weight_ = qkv_weight_.slice(0, 0, q);
    kv_weight_ = qkv_weight_.slice(0, q, q + k + v);
  } else {
    q_weight_ = own({q, sizes.d_in});
    kv_weight_ = own({k + v, sizes.d_kv});
  }
  k_weight_ = kv_weight_.slice(0, 0, k);
  v_weight_ = kv_weight_.slice(0, k, k + v);
  if (sizes.qkv_bias) {
    qkv_bias_ = own({q + k + v});
    q_bias_ = qkv_bias_.slice(0, 0, q);
    kv_bias_ = qkv_bias_.slice(0, q, q + k + v);
    k_bias_ = kv_bias_.slice(0, 0, k);
    v_bias_ = kv_bias_.slice(0, k, k + v);
  }
  if (sizes.out_proj) {
    out_weight_ = own({sizes.d_out, sizes.context_width()});
    if (sizes.out_bias) out_bias_ = own({sizes.d_out});
  }
  slots_ = slots_of(form);
}

// The names in the order in which PyTorch's constructor makes them.
std::vector<Parameters::Slot> Parameters::slots_of(Form form) const {
  std::vector<Slot> slots;
  const auto add_linear = [&](const std::string& prefix, const MutableTensorView& weight,
                              const MutableTensorView& bias) {
    slots.push_back({prefix + ".weight", weight});
    if (present(bias)) slots.push_back({prefix + ".bias", bias});
  };
  switch (form) {
    case Form::separate:
    case Form::linear: {
      const bool book = form == Form::separate;
      add_linear(book ? "W_query" : "q_linear", q_weight_, q_bias_);
      add_linear(book ? "W_key" : "k_linear", k_weight_, k_bias_);
      add_linear(book ? "W_value" : "v_linear", v_weight_, v_bias_);
      break;
    }
    case Form::raw:
      slots.push_back({"W_query", transposed(q_weight_)});
      slots.push_back({"W_key", transposed(k_weight_)});
      slots.push_back({"W_value", transposed(v_weight_)});
      break;
    case Form::heads:
      for (dim_t h = 0; h < sizes_.num_heads; ++h) {
        const auto part = [&](const MutableTensorView& t, dim_t width) {
          return present(t) ? t.slice(0, h * width, (h + 1) * width) : MutableTensorView();
        };
        const std::string head = format_text("heads.{}.", h);
        const dim_t d = sizes_.head_dim;
        add_linear(head + "W_query", part(q_weight_, d), part(q_bias_, d));
        add_linear(head + "W_key", part(k_weight_, d), part(k_bias_, d));
        add_linear(head + "W_value", part(v_weight_, sizes_.v_dim), part(v_bias_, sizes_.v_dim));
      }
      break;
    case Form::joined:
      add_linear("qkv_proj", qkv_weight_, qkv_bias_);
      break;
    case Form::torch:
      slots.push_back({"in_proj_weight", qkv_weight_});
      if (sizes_.qkv_bias) slots.push_back({"in_proj_bias", qkv_bias_});
      break;
    case Form::gpt2:
      add_linear("attn.c_attn", transposed(qkv_weight_), qkv_bias_);
      add_linear("attn.c_proj", transposed(out_weight_), out_bias_);
      return slots;
  }
  if (sizes_.out_proj) add_linear("out_proj", out_weight_, out_bias_);
  return slots;
}

std::vector<NamedParameter> Parameters::named_as(Form form, const char* layer) const {
  check_form(sizes_, form, layer);
  std::vector<NamedParameter> list;
  for (const Slot& slot : slots_of(form)) list.push_back({slot.name, slot.value});
  return list;
}

void Parameters::initialise(TorchGenerator& generator) {
  if (form_ == Form::torch) {
    initialise_torch(generator);
    return;
  }
  dim_t fan_in = 0;  // a bias comes after its weight and is drawn with the same bound
  for (const Slot& slot : slots_) {
    if (slot.value.rank() == 2) fan_in = slot.value.dim(1);
    draw_into(slot.value, [&](const MutableTensorView& t) {
      if (form_ == Form::raw) {  // torch.rand(d_in, d_out)
        generator.uniform(t, 0.0, 1.0);
      } else if (form_ == Form::gpt2) {  // N(0, 0.02), biases 0
        if (t.rank() == 1) return t.fill(0.0);
        Tensor drawn = generator.randn(t.shape());
        for (float *x = drawn.mutable_data_as<float>(), *end = x + drawn.numel(); x < end; ++x) {
          *x *= 0.02F;
        }
        t.copy_from(drawn);
      } else {  // nn.Linear
        const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
        generator.uniform(t, -bound, bound);
      }
    });
  }
}

// nn.MultiheadAttention makes its output projection first and sets all biases to 0 afterwards.
void Parameters::initialise_torch(TorchGenerator& generator) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(sizes_.context_width()));
  const auto uniform = [&](const MutableTensorView& to, double limit) {
    draw_into(to, [&](const MutableTensorView& t) { generator.uniform(t, -limit, limit); });
  };
  uniform(out_weight_, bound);
  if (present(out_bias_)) uniform(out_bias_, bound);
  const auto fan_sum = static_cast<double>(qkv_weight_.dim(0) + qkv_weight_.dim(1));
  uniform(qkv_weight_, std::sqrt(3.0) * std::sqrt(2.0 / fan_sum));
  if (present(out_bias_)) out_bias_.fill(0.0);
  if (present(qkv_bias_)) qkv_bias_.fill(0.0);
}

std::vector<NamedParameter> Parameters::named() const {
  std::vector<NamedParameter> list;
  for (const Slot& slot : slots_) list.push_back({slot.name, slot.value});
  return list;
}

MutableTensorView Parameters::find(const std::string& wanted) const {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (slot.name == wanted) return slot.value;
    names.push_back(slot.name);
  }
  fail(Error::Kind::value, "parameters: there is no {}; this layer has {}", wanted,
       joined(names, ", "));
}

}  // namespace cephalo
