#include "cephalo/attention/layer/multi_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cephalo/attention/engine/engine.h"
#include "cephalo/attention/layer/fused_layer.h"
#include "cephalo/attention/layer/reference_layer.h"
#include "cephalo/attention/reference/engine.h"
#include "cephalo/attention/reference/trace_recorder.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/core/seed.h"

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

void keep_options(const AttendOptions& options, const CallOptions& call, LayerPass& pass) {
  pass.options = options;
  pass.options.generator = nullptr;  // a copy of it is in the pass
  pass.options.threads = call.threads;
  pass.spread = call.spread;
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
  require(call.spread.world == nullptr, "{}: trace shows whole sequences, not spread ones",
          rung_.name);
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

AttendOptions MultiHeadAttention::attend_options(const CallOptions& call) const {
  AttendOptions options;
  options.engine = call.engine;
  options.require = call.require;
  options.place = call.place;
  if (!drops(call)) return options;
  options.dropout = options_.dropout;
  options.dropout_stream = options_.dropout_stream;
  options.generator = call.generator;
  options.heads_draw_in_turn = parameters_.form() == Form::heads;
  options.seed = mix_seed(seed_, call.call ? *call.call : calls_.next++);
  return options;
}

void MultiHeadAttention::prepare(Prepare what) {
  const bool cross = parameters_.sizes().d_kv != parameters_.sizes().d_in;
  PackedParameters packed = pack_parameters(parameters_, cross);
  if (what == Prepare::training && !cross) pack_for_backward(parameters_, packed);
  packed_ = std::make_shared<const PackedParameters>(std::move(packed));
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
  if (y.is_contiguous()) {
    run(x, call, nullptr, pass, &y);
  } else {
    y.copy_from(run(x, call, nullptr, pass, nullptr));
  }
}

// Rows are those of one input, with all their keys on some process.
void MultiHeadAttention::check_spread(const CallOptions& call) const {
  require(call.kv == nullptr && call.cache == nullptr,
          "{}: tokens that are spread over processes go with neither kv nor a cache", rung_.name);
  require(parameters_.sizes().d_kv == parameters_.sizes().d_in,
          "{}: a layer for cross attention takes no spread tokens", rung_.name);
  require(options_.context_length == 0 || call.spread.tokens <= options_.context_length,
          "{}: tokens ({}) exceed context_length ({})", rung_.name, call.spread.tokens,
          options_.context_length);
}

void MultiHeadAttention::check_call(const TensorView& x, const CallOptions& call) const {
  if (call.cache != nullptr) check_cache(x, call);
  if (call.spread.world != nullptr) check_spread(call);
  require(call.cache != nullptr || call.counts.empty(),
          "{}: counts belong to the sequences of a cache, and there is none", rung_.name);
}

Tensor MultiHeadAttention::forward(const TensorView& x, const CallOptions& call, StepSink* sink,
                                   LayerPass* pass) const {
  check_input(x, call.kv != nullptr ? *call.kv : x);
  return run(x, call, sink, pass, nullptr);
}

// Into y, dense, or a tensor of its own.
Tensor MultiHeadAttention::run(const TensorView& x, const CallOptions& call, StepSink* sink,
                               LayerPass* pass, const MutableTensorView* y) const {
  check_call(x, call);
  const UseThreads limit(call.threads);
  const Mask mask = mask_for(call);
  LayerCall layer{with_leading_ones(x, 3), {},         mask,        options_.rotary,
                  attend_options(call),    call.cache, call.counts, rung_.name};
  if (call.kv != nullptr) layer.kv = with_leading_ones(*call.kv, 3);
  if (pass != nullptr) keep_options(layer.options, call, *pass);
  const DType steps = compute_type(parameters_.dtype());
  const Shape shape = output_shape(x);
  if (call.spread.world != nullptr) {
    layer.spread = call.spread;
    layer.placed = places_ahead(parameters_.sizes(), layer, steps);
    if (pass != nullptr) {
      pass->textbook = false;
      pass->placed = layer.placed;
    }
    return run_rows(nullptr, layer, std::nullopt, pass, shape, y);
  }
  AttendProblem problem = problem_ahead(parameters_.sizes(), layer, steps);
  const EngineEntry& engine = sink != nullptr ? reference_engine  // the one that has steps to show
                              : pass != nullptr
                                  ? choose_engine(problem, {Job::attend, Job::backward}, rung_.name)
                                  : choose_engine(problem, {forward_job(problem)}, rung_.name);
  if (pass != nullptr) pass->textbook = engine.textbook_layer;
  if (engine.textbook_layer) {
    Tensor result =
        run_reference_layer(parameters_, layer, std::move(problem), sink, pass).reshaped(shape);
    if (y == nullptr) return result;
    y->copy_from(result);
    return {};
  }
  return run_rows(&engine, layer, std::move(problem), pass, shape, y);
}

// The steps on rows [batch · tokens, width] of y, or of a tensor of its own, which is returned.
Tensor MultiHeadAttention::run_rows(const EngineEntry* engine, LayerCall& layer,
                                    std::optional<AttendProblem> problem, LayerPass* pass,
                                    const Shape& shape, const MutableTensorView* y) const {
  const dim_t width = shape[-1];
  const Shape rows{width == 0 ? 0 : numel(shape) / width, width};
  Tensor result = y == nullptr ? Tensor::empty(rows, layer.x.dtype()) : Tensor();
  const MutableTensorView to =
      y == nullptr ? result.mutable_view() : MutableTensorView(y->mutable_data(), y->dtype(), rows);
  const bool cross = layer.kv.has_value() || parameters_.sizes().d_kv != parameters_.sizes().d_in;
  if (cross && !layer.kv) layer.kv = layer.x;
  const bool fits =
      packed_ != nullptr && (cross ? packed_->q.has_value() : packed_->qkv.has_value());
  const auto packed =
      fits ? packed_
           : std::make_shared<const PackedParameters>(pack_parameters(parameters_, cross));
  run_fused_layer({parameters_, *packed, layer, engine}, std::move(problem), to, pass);
  return y == nullptr ? std::move(result).reshaped(shape) : Tensor();
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
