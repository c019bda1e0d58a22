#include "cephalo/model/gpt_options.h"

#include <cmath>

#include "cephalo/core/fail.h"
#include "cephalo/model/presets.h"

namespace cephalo {
namespace {

using Range = OptionField::Range;

// Each field by itself, whatever the others say.
struct FieldCheck {
  void operator()(const OptionField& field, dim_t value) const {
    if (field.range == Range::optional) {
      require(value >= 0, "{}: {} ({}) must be > 0, or 0 for {}", function, field.name, value,
              field.otherwise);
    } else {
      require(value > 0, "{}: {} ({}) must be > 0", function, field.name, value);
    }
  }
  void operator()(const OptionField& field, double value) const {
    if (field.range == Range::share) {
      require(value >= 0.0 && value < 1.0, "{}: {} ({}) must be in [0, 1)", function, field.name,
              value);
    } else {
      require(value > 0.0 && std::isfinite(value), "{}: {} ({}) must be > 0 and finite", function,
              field.name, value);
    }
  }
  void operator()(const OptionField&, DType dtype) const {
    require_type(dtype == DType::f32 || dtype == DType::f64,
                 "{}: parameters cannot be {}; float32 or float64 is needed", function,
                 name(dtype));
  }
  template <typename Other>
  void operator()(const OptionField&, const Other&) const {}  // any value is right

  const char* function;
};

}  // namespace

std::span<const char* const> words_of(PositionKind) {
  static constexpr const char* kWords[] = {"learned", "rotary"};
  return kWords;
}

std::span<const char* const> words_of(Activation) {
  static constexpr const char* kWords[] = {"gelu_tanh", "gelu_erf"};
  return kWords;
}

GptOptions checked_options(const GptOptions& options, const char* function) {
  GptOptions o = options;
  for_fields(options, FieldCheck{function});
  require(o.d_model % o.num_heads == 0, "{}: d_model ({}) must be a multiple of num_heads ({})",
          function, o.d_model, o.num_heads);
  if (o.num_kv_heads == 0) o.num_kv_heads = o.num_heads;
  require(o.num_heads % o.num_kv_heads == 0,
          "{}: num_heads ({}) must be a multiple of num_kv_heads ({})", function, o.num_heads,
          o.num_kv_heads);
  if (o.positions == PositionKind::rotary) {
    require(o.head_dim() % 2 == 0, "{}: rotary needs an even head_dim, got {}", function,
            o.head_dim());
    require(o.rotary.base > 0.0 && std::isfinite(o.rotary.base),
            "{}: the base of rotary ({}) must be > 0 and finite", function, o.rotary.base);
  }
  if (o.d_mlp == 0) o.d_mlp = checked_mul(4, o.d_model);
  return o;
}

const std::vector<std::string>& gpt_preset_names() {
  return preset_names();
}

GptOptions gpt_preset(const std::string& name) {
  const ModelSizes& sizes = find_model_sizes(name, "gpt_preset");
  GptOptions options;
  options.vocab_size = 50257;
  options.context_length = sizes.context_length;
  options.d_model = sizes.d_model;
  options.num_heads = sizes.num_heads;
  options.num_layers = sizes.num_layers;
  options.dropout = 0.1;
  return options;
}

}  // namespace cephalo
