#include "cephalo/attention/layer/multi_head.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/attention/layer/fused_layer.h"
#include "cephalo/attention/layer/heads.h"
#include "cephalo/attention/layer/row_rotation.h"
#include "cephalo/attention/reference/reference.h"
#include "cephalo/attention/reference/trace_recorder.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"
#include "cephalo/linear/project.h"

namespace cephalo {
namespace {

// "; 8 or 16 heads fit": the nearest numbers of heads that divide the width.
std::string heads_that_fit(dim_t width, dim_t num_heads) {
  constexpr dim_t kFarthest = 4096;  // a suggestion, not worth a long search
  dim_t below = 0;
  dim_t above = 0;
  for (dim_t step = 1; step <= kFarthest && (below == 0 || above == 0); ++step) {
    const dim_t fewer = std::min(num_heads, checked_add(width, 1)) - step;
    if (below == 0 && fewer > 0 && width % fewer == 0) below = fewer;
    if (above == 0 && num_heads <= width - step && width % (num_heads + step) == 0) {
      above = num_heads + step;
    }
  }
  if (below > 0 && above > 0) return format_text("; {} or {} heads fit", below, above);
  return below > 0 ? format_text("; {} heads fit", below) : "";
}

ParameterSizes sizes_of(const MultiHeadAttentionOptions& o, const char* rung, const char* width) {
  require(o.d_out > 0, "{}: {} ({}) must be > 0", rung, width, o.d_out);
  require(o.d_in > 0, "{}: d_in ({}) must be > 0", rung, o.d_in);
  require(o.num_heads > 0, "{}: num_heads ({}) must be > 0", rung, o.num_heads);
  if (o.d_out % o.num_heads != 0) {
    fail(Error::Kind::value, "{}: {} ({}) must be divisible by num_heads ({}){}", rung, width,
         o.d_out, o.num_heads, heads_that_fit(o.d_out, o.num_heads));
  }
  const dim_t head_dim = o.d_out / o.num_heads;
  const dim_t num_kv_heads = o.num_kv_heads == 0 ? o.num_heads : o.num_kv_heads;
  require(num_kv_heads > 0 && o.num_heads % num_kv_heads == 0,
          "{}: num_heads ({}) must be a multiple of num_kv_heads ({})", rung, o.num_heads,
          num_kv_heads);
  require(o.d_kv >= 0 && o.v_dim >= 0, "{}: d_kv ({}) and v_dim ({}) must be >= 0", rung, o.d_kv,
          o.v_dim);
  require(o.context_length >= 0, "{}: context_length ({}) must be >= 0; 0 means no limit", rung,
          o.context_length);
  require(o.dropout >= 0.0 && o.dropout < 1.0, "{}: dropout ({}) must be in [0, 1)", rung,
          o.dropout);
  if (o.rotary) {
    require(head_dim % 2 == 0, "{}: rotary needs an even head_dim, got {}", rung, head_dim);
    require(o.rotary->base > 0.0 && std::isfinite(o.rotary->base),
            "{}: the base of rotary ({}) must be > 0 and finite", rung, o.rotary->base);
  }
  require_type(is_floating(o.dtype), "{}: parameters cannot be {}", rung, name(o.dtype));
  return {.d_in = o.d_in,
          .d_kv = o.d_kv == 0 ? o.d_in : o.d_kv,
          .num_heads = o.num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .v_dim = o.v_dim == 0 ? head_dim : o.v_dim,
          .d_out = o.d_out,
          .qkv_bias = o.qkv_bias,
          .out_proj = o.out_proj,
          .out_bias = o.out_bias};
}

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

// x: [tokens, width] or [batch, tokens, width] -> [batch, tokens, width]
TensorView with_batch(const TensorView& x) {
  return x.rank() == 3 ? x : broadcast_to(x, {1, x.dim(0), x.dim(1)});
}

void show(StepSink* sink, const char* key, const TensorView& value) {
  if (sink != nullptr) sink->step(key, value);
}

void show(StepSink* sink, std::initializer_list<std::pair<const char*, const TensorView*>> steps) {
  for (const auto& [key, value] : steps) show(sink, key, *value);
}

void keep_options(const AttendOptions& options, const CallOptions& call, LayerPass& pass) {
  pass.options = options;
  pass.options.generator = nullptr;  // a copy of it is in the pass
  pass.options.threads = call.threads;
}

}  // namespace

dim_t parameter_count(const MultiHeadAttentionOptions& options) {
  return sizes_of(options, "parameter_count", "d_out").count();
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options)
    : MultiHeadAttention(options, Rung{}) {}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options, const Rung& rung)
    : rung_(rung),
      options_(options),
      parameters_(sizes_of(options, rung.name, rung.width), options.form, options.dtype,
                  rung.name) {
  require(!options.seed || options.generator == nullptr,
          "{}: give a seed or a generator to continue, not both", rung.name);
  options_.generator = nullptr;  // used here only: it need not outlive the layer
  if (options.generator != nullptr) {
    // Layers that continue one stream must not share their dropout.
    seed_ = mix_seed(options.generator->seed(), options.generator->draws());
    parameters_.initialise(*options.generator);
  } else {
    seed_ = options.seed ? *options.seed : random_seed();
    TorchGenerator generator(seed_);
    parameters_.initialise(generator);
  }
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options,
                                       const ParameterSource& fill)
    : options_(options),
      parameters_(sizes_of(options, rung_.name, rung_.width), options.form, options.dtype,
                  rung_.name),
      seed_(options.seed.value_or(0)),
      training_(false) {
  for (const NamedParameter& p : parameters_.named()) fill(p.name, parameters_.find(p.name));
}

Tensor MultiHeadAttention::operator()(const TensorView& x, const CallOptions& call) const {
  return forward(x, call, nullptr);
}

Trace MultiHeadAttention::trace(const TensorView& x, const CallOptions& call) const {
  const ParameterSizes& sizes = parameters_.sizes();
  const Mask mask = mask_for(call);
  TraceRecorder recorder(
      {.title = rung_.one_head
                    ? format_text("{}: {} -> {}", rung_.name, sizes.d_in, sizes.context_width())
                    : format_text("{}: {} heads x {} = {}", rung_.name, sizes.num_heads,
                                  sizes.v_dim, sizes.context_width()),
       .form = parameters_.form(),
       .qkv_bias = sizes.qkv_bias,
       .cross = call.kv != nullptr,
       .has_batch = x.rank() != 2,
       .one_head = rung_.one_head,
       .list_of_heads = rung_.list_of_heads,
       .head_dim = sizes.head_dim,
       .context_length = options_.context_length,
       .mask = mask.to_string(),
       .merely_causal = mask.is_only_causal(),
       .dropout = options_.dropout,
       .training = training_});
  forward(x, call, &recorder);
  return recorder.take();
}

void MultiHeadAttention::check_input(const TensorView& x, const TensorView& kv) const {
  const ParameterSizes& sizes = parameters_.sizes();
  const bool wide = parameters_.dtype() == DType::f64;
  for (const auto& [t, width, which, input] :
       {std::tuple{&x, sizes.d_in, "d_in", "x"}, std::tuple{&kv, sizes.d_kv, "d_kv", "kv"}}) {
    require(t->rank() == 2 || t->rank() == 3,
            "{}: {} {} must be [batch, tokens, {}] or [tokens, {}]", rung_.name, input, t->shape(),
            width, width);
    require(t->dim(-1) == width, "{}: the last dimension of {} {} must be {} ({})", rung_.name,
            input, t->shape(), which, width);
    require_type(is_floating(t->dtype()) && (t->dtype() == DType::f64) == wide,
                 "{}: {} is {}, the parameters are {}", rung_.name, input, name(t->dtype()),
                 name(parameters_.dtype()));
    require(options_.context_length == 0 || t->dim(-2) <= options_.context_length,
            "{}: tokens ({}) exceed context_length ({})", rung_.name, t->dim(-2),
            options_.context_length);
  }
  require(x.rank() == kv.rank() && (x.rank() == 2 || x.dim(0) == kv.dim(0)),
          "{}: x {} and kv {} must agree in rank and batch", rung_.name, x.shape(), kv.shape());
}

Mask MultiHeadAttention::mask_for(const CallOptions& call) const {
  return options_.causal ? causal() & call.mask : call.mask;
}

// What decides about the engine; it counts no call.
AttendOptions MultiHeadAttention::engine_options(const CallOptions& call) const {
  AttendOptions options;
  options.engine = call.engine;
  options.require = call.require;
  options.place = call.place;
  if (!drops(call)) return options;
  options.dropout = options_.dropout;
  options.dropout_stream = options_.dropout_stream;
  return options;
}

AttendOptions MultiHeadAttention::attend_options(const CallOptions& call) const {
  AttendOptions options = engine_options(call);
  if (!drops(call)) return options;
  options.generator = call.generator;
  options.heads_draw_in_turn = parameters_.form() == Form::heads;
  options.seed = mix_seed(seed_, call.call ? *call.call : calls_.next++);
  return options;
}

void MultiHeadAttention::prepare() {
  const bool cross = parameters_.sizes().d_kv != parameters_.sizes().d_in;
  packed_ = std::make_shared<const PackedParameters>(pack_parameters(parameters_, cross));
}

// A cache holds keys of x alone, at positions that go on from what it has.
void MultiHeadAttention::check_cache(const TensorView& x, const CallOptions& call) const {
  const ParameterSizes& sizes = parameters_.sizes();
  const KVCacheShape& shape = call.cache->shape();
  require(call.kv == nullptr, "{}: a cache holds keys of x; it does not go with kv", rung_.name);
  const dim_t batch = x.rank() == 3 ? x.dim(0) : 1;
  require(shape.batch == batch && shape.num_kv_heads == sizes.num_kv_heads &&
              shape.head_dim == sizes.head_dim && shape.v_dim == sizes.v_dim,
          "{}: the cache is for batch {}, {} kv heads of {} and {}; this call has batch {}, {} kv "
          "heads of {} and {}",
          rung_.name, shape.batch, shape.num_kv_heads, shape.head_dim, shape.v_dim, batch,
          sizes.num_kv_heads, sizes.head_dim, sizes.v_dim);
  const CacheTokens after = tokens_after(*call.cache, x.dim(-2), call.counts, rung_.name);
  for (std::size_t b = 0; b < after.lengths.size(); ++b) {
    const dim_t before = after.lengths[b] - after.appended[b];
    const bool fits = options_.context_length == 0 || after.lengths[b] <= options_.context_length;
    require(fits || before > 0, "{}: {} tokens exceed context_length ({})", rung_.name,
            after.appended[b], options_.context_length);
    require(fits,
            "{}: tokens ({} in the cache and {} new of sequence {}) exceed context_length ({})",
            rung_.name, before, after.appended[b], b, options_.context_length);
  }
}

// rows: [batch · tokens, width]
void MultiHeadAttention::forward_fused(const TensorView& x, const CallOptions& call,
                                       const AttendOptions& options, const MutableTensorView& rows,
                                       LayerPass* pass) const {
  const bool cross = call.kv != nullptr || parameters_.sizes().d_kv != parameters_.sizes().d_in;
  const bool fits =
      packed_ != nullptr && (cross ? packed_->q.has_value() : packed_->qkv.has_value());
  const auto packed =
      fits ? packed_
           : std::make_shared<const PackedParameters>(pack_parameters(parameters_, cross));
  const Mask mask = mask_for(call);
  LayerCall wanted{with_batch(x), {},         mask,        options_.rotary,
                   options,       call.cache, call.counts, rung_.name};
  if (cross) wanted.kv = with_batch(call.kv != nullptr ? *call.kv : x);
  run_fused_layer(parameters_, *packed, wanted, rows, pass);
}

Shape MultiHeadAttention::output_shape(const TensorView& x) const {
  const ParameterSizes& sizes = parameters_.sizes();
  Shape shape = x.shape();
  shape[-1] = sizes.out_proj ? sizes.d_out : sizes.context_width();
  return shape;
}

void MultiHeadAttention::forward_into(const TensorView& x, const MutableTensorView& y,
                                      const CallOptions& call) const {
  check_input(x, call.kv != nullptr ? *call.kv : x);
  write_into(x, y, call, nullptr);
}

void MultiHeadAttention::write_into(const TensorView& x, const MutableTensorView& y,
                                    const CallOptions& call, LayerPass* pass) const {
  require(y.shape() == output_shape(x), "{}: y is {}, the result {}", rung_.name, y.shape(),
          output_shape(x));
  if (!y.is_contiguous() || choose_engine(engine_options(call), rung_.name) != Engine::fused) {
    y.copy_from(forward(x, call, nullptr, pass));
    return;
  }
  check_call(x, call);
  const UseThreads limit(call.threads);
  const AttendOptions attending = attend_options(call);
  if (pass != nullptr) keep_options(attending, call, *pass);
  const dim_t width = y.dim(-1);
  forward_fused(x, call, attending,
                {y.mutable_data(), y.dtype(), {width == 0 ? 0 : y.numel() / width, width}}, pass);
}

void MultiHeadAttention::check_call(const TensorView& x, const CallOptions& call) const {
  if (call.cache != nullptr) check_cache(x, call);
  require(call.cache != nullptr || call.counts.empty(),
          "{}: counts belong to the sequences of a cache, and there is none", rung_.name);
}

Tensor MultiHeadAttention::forward(const TensorView& x, const CallOptions& call, StepSink* sink,
                                   LayerPass* pass) const {
  check_input(x, call.kv != nullptr ? *call.kv : x);
  check_call(x, call);
  const UseThreads limit(call.threads);
  const AttendOptions attending = attend_options(call);
  const Engine engine = sink != nullptr ? Engine::reference : choose_engine(attending, rung_.name);
  if (pass != nullptr) keep_options(attending, call, *pass);
  if (engine != Engine::fused) return forward_reference(x, call, attending, sink, pass);
  const Shape shape = output_shape(x);
  const dim_t width = shape[-1];
  Tensor y = Tensor::empty({width == 0 ? 0 : numel(shape) / width, width}, x.dtype());
  forward_fused(x, call, attending, y.mutable_view(), pass);
  return std::move(y).reshaped(shape);
}

Tensor MultiHeadAttention::forward_reference(const TensorView& x, const CallOptions& call,
                                             const AttendOptions& options, StepSink* sink,
                                             LayerPass* pass) const {
  require(call.cache == nullptr, "{}: the reference engine of the layer has no cache", rung_.name);
  const ParameterSizes& sizes = parameters_.sizes();
  const DType steps = parameters_.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Mask mask = mask_for(call);

  // 0  INPUT
  const TensorView x3 = with_batch(x);
  const TensorView kv3 = call.kv != nullptr ? with_batch(*call.kv) : x3;
  show(sink, "x", x3);

  // 1  PROJECT
  Tensor q = project(x3, parameters_.q_weight(), parameters_.q_bias(), steps);
  Tensor k = project(kv3, parameters_.k_weight(), parameters_.k_bias(), steps);
  Tensor v = project(kv3, parameters_.v_weight(), parameters_.v_bias(), steps);
  show(sink, {{"q", &q}, {"k", &k}, {"v", &v}});

  // 2  SPLIT
  const TensorView q_split = split_heads(q, sizes.num_heads);
  const TensorView k_split = split_heads(k, sizes.num_kv_heads);
  const TensorView v_split = split_heads(v, sizes.num_kv_heads);
  show(sink, {{"q_split", &q_split}, {"k_split", &k_split}, {"v_split", &v_split}});
  if (options_.rotary) {
    const MaskExtent extent{q.dim(0), sizes.num_heads, q.dim(1), k.dim(1)};
    const BoundMask bound(mask, extent, rung_.name, options.place);
    rotate({q.mutable_view().mutable_data(), steps, q_split.shape()}, *options_.rotary,
           query_shifts(bound));
    rotate({k.mutable_view().mutable_data(), steps, k_split.shape()}, *options_.rotary,
           key_shifts(bound));
    show(sink, {{"q_rotated", &q_split}, {"k_rotated", &k_split}});
  }

  // 3  TRANSPOSE
  const TensorView q_heads = heads_first(q_split);
  const TensorView k_heads = heads_first(k_split);
  const TensorView v_heads = heads_first(v_split);
  show(sink, {{"q_heads", &q_heads}, {"k_heads", &k_heads}, {"v_heads", &v_heads}});

  // 4  ATTEND
  AttendOptions attending = options;
  attending.return_lse = pass != nullptr;
  const AttendProblem problem =
      make_problem(q_heads, k_heads, v_heads, mask, attending, rung_.name);
  AttendResult attended = attend_reference(problem, sink);

  // 5  CONCAT
  Tensor context = merge_heads(std::move(attended.context));
  show(sink, "context", context);

  // 6  PROJECT
  Tensor output;
  if (sizes.out_proj) {
    output = project(context, parameters_.out_weight(), parameters_.out_bias(), x.dtype());
    show(sink, "output", output);
  } else if (x.dtype() == steps && pass == nullptr) {
    output = std::move(context);
  } else {
    output = Tensor::copy(context, x.dtype());
  }
  if (pass != nullptr) {
    pass->q = q_heads;
    pass->k = k_heads;
    pass->v = v_heads;
    pass->context = view(context, {q.dim(0) * q.dim(1), sizes.context_width()});
    pass->lse = std::move(attended.lse);
    pass->memory = {std::move(q), std::move(k), std::move(v), std::move(context)};
  }
  if (x.rank() == 3) return output;
  const Shape without_batch{output.dim(1), output.dim(2)};
  return std::move(output).reshaped(without_batch);
}

std::vector<NamedParameter> MultiHeadAttention::parameters_as(Form form) const {
  return parameters_.named_as(form, rung_.name);
}

TensorView MultiHeadAttention::parameter(const std::string& wanted) const {
  return parameters_.find(wanted);
}

void MultiHeadAttention::update(const std::string& wanted, const TensorView& value) {
  const MutableTensorView parameter = parameters_.find(wanted);
  require(parameter.shape() == value.shape(), "{}: {} has shape {}, not {}", rung_.name, wanted,
          parameter.shape(), value.shape());
  parameter.copy_from(value);
  packed_ = nullptr;
  ++version_;
}

void MultiHeadAttention::update_all(const ParameterChange& change) {
  packed_ = nullptr;  // first: a change that throws may have written already
  ++version_;
  for (const NamedParameter& p : parameters_.named()) change(p.name, parameters_.find(p.name));
}

}  // namespace cephalo
