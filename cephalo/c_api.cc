#include "cephalo/c_api.h"

#include <limits>
#include <vector>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/c_api_support.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/version.h"

namespace cephalo::c_api {
namespace {

void check_attend_outputs(const TensorView& q, const TensorView& v,
                          const MutableTensorView& context_out, const MutableTensorView* lse_out) {
  if (q.rank() < 2 || v.rank() != q.rank()) return;  // attend itself says what is wrong
  check_output(context_out, with_width(q, v.dim(-1)), q.dtype(), "cephalo_attend", "context_out");
  if (lse_out == nullptr) return;
  const DType dtype = compute_type(q.dtype());
  check_output(*lse_out, without_width(q), dtype, "cephalo_attend", "lse_out");
}

MultiHeadAttentionOptions options_of(const cephalo_layer_options& o) {
  return {.d_in = o.d_in,
          .d_out = o.d_out,
          .context_length = o.context_length,
          .dropout = o.dropout,
          .num_heads = o.num_heads,
          .qkv_bias = o.qkv_bias != 0,
          .num_kv_heads = o.num_kv_heads,
          .v_dim = o.v_dim,
          .out_proj = o.out_proj != 0,
          .out_bias = o.out_bias != 0,
          .causal = o.causal != 0,
          .seed = o.seed,
          .dtype = dtype_of(o.dtype, "cephalo_layer_create", "options")};
}

// Joins what `part` returns to a mask; a part that is refused leaves the mask as it was.
template <typename Part>
cephalo_status join(cephalo_mask* mask, const char* function, Part&& part) {
  return guarded([&] {
    Mask& whole = not_null(mask, function, "mask").mask;
    whole = whole & part();
  });
}

std::vector<dim_t> numbers_of(const int64_t* numbers, int64_t count) {
  return {numbers, numbers + count};
}

}  // namespace
}  // namespace cephalo::c_api

using namespace cephalo;
using namespace cephalo::c_api;

const char* cephalo_version(void) {
  return CEPHALO_VERSION;
}

const char* cephalo_last_error(void) {
  return last_error();
}

cephalo_status cephalo_set_threads(int count) {
  return guarded([&] { set_threads(count); });
}

cephalo_status cephalo_mask_create(cephalo_mask** mask) {
  return guarded([&] {
    cephalo_mask*& created = not_null(mask, "cephalo_mask_create", "mask");
    created = new cephalo_mask;
  });
}

void cephalo_mask_destroy(cephalo_mask* mask) {
  delete mask;
}

cephalo_status cephalo_mask_positions(cephalo_mask* mask, int32_t align, int64_t offset) {
  constexpr const char* kFunction = "cephalo_mask_positions";
  return join(mask, kFunction, [&] {
    require(align == CEPHALO_ALIGN_BOTTOM_RIGHT || align == CEPHALO_ALIGN_TOP_LEFT,
            "{}: there is no alignment {}", kFunction, align);
    return positions(align == CEPHALO_ALIGN_TOP_LEFT ? Align::top_left : Align::bottom_right,
                     offset);
  });
}

cephalo_status cephalo_mask_causal(cephalo_mask* mask, int64_t prefix) {
  return join(mask, "cephalo_mask_causal", [&] { return causal(prefix); });
}

cephalo_status cephalo_mask_window(cephalo_mask* mask, int64_t left, int64_t right) {
  return join(mask, "cephalo_mask_window", [&] { return window(left, right); });
}

cephalo_status cephalo_mask_lengths(cephalo_mask* mask, const int64_t* kv, const int64_t* q,
                                    int64_t batch) {
  constexpr const char* kFunction = "cephalo_mask_lengths";
  return join(mask, kFunction, [&] {
    require(batch >= 0, "{}: batch ({}) must be >= 0", kFunction, batch);
    not_null(kv, kFunction, "kv");
    return q == nullptr ? lengths(numbers_of(kv, batch))
                        : lengths(numbers_of(kv, batch), numbers_of(q, batch));
  });
}

cephalo_status cephalo_mask_documents(cephalo_mask* mask, const cephalo_tensor* q_ids,
                                      const cephalo_tensor* kv_ids) {
  constexpr const char* kFunction = "cephalo_mask_documents";
  return join(mask, kFunction, [&] {
    const TensorView of_q = view_of(q_ids, kFunction, "q_ids");
    return kv_ids == nullptr ? documents(of_q)
                             : documents(of_q, view_of(kv_ids, kFunction, "kv_ids"));
  });
}

cephalo_status cephalo_mask_keep(cephalo_mask* mask, const cephalo_tensor* t) {
  return join(mask, "cephalo_mask_keep",
              [&] { return keep(view_of(t, "cephalo_mask_keep", "t")); });
}

cephalo_status cephalo_mask_drop(cephalo_mask* mask, const cephalo_tensor* t) {
  return join(mask, "cephalo_mask_drop",
              [&] { return drop(view_of(t, "cephalo_mask_drop", "t")); });
}

cephalo_status cephalo_mask_bias(cephalo_mask* mask, const cephalo_tensor* t) {
  return join(mask, "cephalo_mask_bias",
              [&] { return bias(view_of(t, "cephalo_mask_bias", "t")); });
}

cephalo_status cephalo_mask_alibi(cephalo_mask* mask, const float* slopes, int64_t num_heads) {
  return join(mask, "cephalo_mask_alibi", [&] {
    require(num_heads > 0, "cephalo_mask_alibi: num_heads ({}) must be > 0", num_heads);
    return alibi(slopes == nullptr ? alibi_slopes(num_heads)
                                   : std::vector<float>(slopes, slopes + num_heads));
  });
}

cephalo_attend_options cephalo_attend_options_default(void) {
  cephalo_attend_options options{};
  options.scale = std::numeric_limits<double>::quiet_NaN();
  return options;
}

cephalo_status cephalo_attend(const cephalo_tensor* q, const cephalo_tensor* k,
                              const cephalo_tensor* v, const cephalo_mask* mask,
                              const cephalo_attend_options* options,
                              const cephalo_tensor* context_out, const cephalo_tensor* lse_out) {
  constexpr const char* kFunction = "cephalo_attend";
  return guarded([&] {
    const Device device = device_of(options, kFunction);
    const TensorView q_view = view_of(q, kFunction, "q", device);
    const TensorView k_view = view_of(k, kFunction, "k", device);
    const TensorView v_view = view_of(v, kFunction, "v", device);
    const MutableTensorView context = view_of(context_out, kFunction, "context_out", device);
    const MutableTensorView lse = view_or_empty(lse_out, kFunction, "lse_out", device);
    check_attend_outputs(q_view, v_view, context, lse_out == nullptr ? nullptr : &lse);
    attend_into({context, lse}, q_view, k_view, v_view, MaskOn(mask, device).mask(),
                options_of(options, kFunction));
  });
}

cephalo_layer_options cephalo_layer_options_default(void) {
  cephalo_layer_options options{};
  options.num_heads = 1;
  options.causal = 1;
  options.out_proj = 1;
  options.out_bias = 1;
  return options;
}

cephalo_status cephalo_layer_create(const cephalo_layer_options* options, cephalo_layer** layer) {
  constexpr const char* kFunction = "cephalo_layer_create";
  return guarded([&] {
    const cephalo_layer_options& wanted = not_null(options, kFunction, "options");
    cephalo_layer*& created = not_null(layer, kFunction, "layer");
    created = new cephalo_layer{MultiHeadAttention(options_of(wanted))};
  });
}

cephalo_status cephalo_layer_load(const char* path, int64_t num_heads, cephalo_layer** layer) {
  constexpr const char* kFunction = "cephalo_layer_load";
  return guarded([&] {
    not_null(path, kFunction, "path");
    LoadOptions options;
    if (num_heads != 0) options.settings.num_heads = num_heads;
    cephalo_layer*& loaded = not_null(layer, kFunction, "layer");
    loaded = new cephalo_layer{load_layer(path, options)};
  });
}

void cephalo_layer_destroy(cephalo_layer* layer) {
  delete layer;
}

cephalo_status cephalo_layer_set_parameter(cephalo_layer* layer, const char* name,
                                           const cephalo_tensor* value) {
  constexpr const char* kFunction = "cephalo_layer_set_parameter";
  return guarded([&] {
    MultiHeadAttention& changed = not_null(layer, kFunction, "layer").layer;
    changed.update(&not_null(name, kFunction, "name"), view_of(value, kFunction, "value"));
  });
}

cephalo_status cephalo_layer_train(cephalo_layer* layer) {
  return guarded([&] { not_null(layer, "cephalo_layer_train", "layer").layer.train(); });
}

cephalo_status cephalo_layer_eval(cephalo_layer* layer) {
  return guarded([&] { not_null(layer, "cephalo_layer_eval", "layer").layer.eval(); });
}

cephalo_status cephalo_layer_prepare(cephalo_layer* layer) {
  return guarded([&] { not_null(layer, "cephalo_layer_prepare", "layer").layer.prepare(); });
}

cephalo_status cephalo_layer_forward(const cephalo_layer* layer, const cephalo_tensor* x,
                                     const cephalo_tensor* y_out, int32_t threads) {
  constexpr const char* kFunction = "cephalo_layer_forward";
  return guarded([&] {
    const MultiHeadAttention& called = not_null(layer, kFunction, "layer").layer;
    const TensorView input = view_of(x, kFunction, "x");
    const MutableTensorView output = view_of(y_out, kFunction, "y_out");
    if (input.rank() > 0) {  // the layer itself refuses other ranks than 2 and 3
      check_output(output, with_width(input, output_width(called)), input.dtype(), kFunction,
                   "y_out");
    }
    CallOptions call;
    call.threads = threads;
    called.forward_into(input, output, call);
  });
}
