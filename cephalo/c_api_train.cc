// The C interface of backward passes and second derivatives.
#include <utility>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/attend_second.h"
#include "cephalo/c_api_support.h"
#include "cephalo/core/fail.h"

using namespace cephalo;
using namespace cephalo::c_api;

struct cephalo_gradients {
  Gradients gradients;
};

struct cephalo_pass {
  SavedPass saved;
  Shape x_shape;
  DType dtype;
};

namespace {

// uq, uk and uv of either struct; NULL stands still.
template <typename Arguments>
AttendDirection direction_of(const Arguments& a, const char* function) {
  return {view_or_empty(a.uq, function, "uq"), view_or_empty(a.uk, function, "uk"),
          view_or_empty(a.uv, function, "uv")};
}

}  // namespace

cephalo_status cephalo_attend_backward(const cephalo_tensor* q, const cephalo_tensor* k,
                                       const cephalo_tensor* v, const cephalo_mask* mask,
                                       const cephalo_attend_options* options,
                                       const cephalo_attend_gradients* gradients) {
  constexpr const char* kFunction = "cephalo_attend_backward";
  return guarded([&] {
    const cephalo_attend_gradients& g = not_null(gradients, kFunction, "gradients");
    const Device device = device_of(options, kFunction);
    const TensorView q_view = view_of(q, kFunction, "q", device);
    const TensorView k_view = view_of(k, kFunction, "k", device);
    const TensorView v_view = view_of(v, kFunction, "v", device);
    const AttendPass pass{view_of(g.context, kFunction, "context", device),
                          view_of(g.lse, kFunction, "lse", device),
                          view_of(g.dcontext, kFunction, "dcontext", device),
                          view_or_empty(g.dlse, kFunction, "dlse", device)};
    const AttendGradientViews out{view_of(g.dq_out, kFunction, "dq_out", device),
                                  view_of(g.dk_out, kFunction, "dk_out", device),
                                  view_of(g.dv_out, kFunction, "dv_out", device)};
    check_output(out.dq, q_view.shape(), q_view.dtype(), kFunction, "dq_out");
    check_output(out.dk, k_view.shape(), k_view.dtype(), kFunction, "dk_out");
    check_output(out.dv, v_view.shape(), v_view.dtype(), kFunction, "dv_out");
    attend_backward_into(out, pass, q_view, k_view, v_view, MaskOn(mask, device).mask(),
                         options_of(options, kFunction));
  });
}

cephalo_status cephalo_attend_tangent(const cephalo_tensor* q, const cephalo_tensor* k,
                                      const cephalo_tensor* v, const cephalo_mask* mask,
                                      const cephalo_attend_options* options,
                                      const cephalo_attend_tangents* tangents) {
  constexpr const char* kFunction = "cephalo_attend_tangent";
  return guarded([&] {
    const cephalo_attend_tangents& t = not_null(tangents, kFunction, "tangents");
    const TensorView q_view = view_of(q, kFunction, "q");
    const TensorView k_view = view_of(k, kFunction, "k");
    const TensorView v_view = view_of(v, kFunction, "v");
    const AttendPass pass{
        view_of(t.context, kFunction, "context"), view_of(t.lse, kFunction, "lse"), {}, {}};
    const AttendTangentViews out{view_of(t.tcontext_out, kFunction, "tcontext_out"),
                                 view_of(t.tlse_out, kFunction, "tlse_out")};
    check_output(out.tcontext, pass.context.shape(), q_view.dtype(), kFunction, "tcontext_out");
    check_output(out.tlse, pass.lse.shape(), compute_type(q_view.dtype()), kFunction, "tlse_out");
    attend_tangent_into(out, pass, q_view, k_view, v_view, direction_of(t, kFunction),
                        mask_or_none(mask), options_of(options, kFunction));
  });
}

cephalo_status cephalo_attend_second(const cephalo_tensor* q, const cephalo_tensor* k,
                                     const cephalo_tensor* v, const cephalo_mask* mask,
                                     const cephalo_attend_options* options,
                                     const cephalo_attend_seconds* seconds) {
  constexpr const char* kFunction = "cephalo_attend_second";
  return guarded([&] {
    const cephalo_attend_seconds& s = not_null(seconds, kFunction, "seconds");
    const TensorView q_view = view_of(q, kFunction, "q");
    const TensorView k_view = view_of(k, kFunction, "k");
    const TensorView v_view = view_of(v, kFunction, "v");
    const AttendPass pass{
        view_of(s.context, kFunction, "context"), view_of(s.lse, kFunction, "lse"),
        view_of(s.dcontext, kFunction, "dcontext"), view_or_empty(s.dlse, kFunction, "dlse")};
    const AttendSecondViews out{view_of(s.hq_out, kFunction, "hq_out"),
                                view_of(s.hk_out, kFunction, "hk_out"),
                                view_of(s.hv_out, kFunction, "hv_out"),
                                view_of(s.hdcontext_out, kFunction, "hdcontext_out"),
                                view_of(s.hdlse_out, kFunction, "hdlse_out")};
    check_output(out.hq, q_view.shape(), q_view.dtype(), kFunction, "hq_out");
    check_output(out.hk, k_view.shape(), k_view.dtype(), kFunction, "hk_out");
    check_output(out.hv, v_view.shape(), v_view.dtype(), kFunction, "hv_out");
    check_output(out.hdcontext, pass.context.shape(), q_view.dtype(), kFunction, "hdcontext_out");
    check_output(out.hdlse, pass.lse.shape(), compute_type(q_view.dtype()), kFunction, "hdlse_out");
    attend_second_into(out, pass, q_view, k_view, v_view, direction_of(s, kFunction),
                       mask_or_none(mask), options_of(options, kFunction));
  });
}

cephalo_status cephalo_gradients_create(const cephalo_layer* layer, cephalo_gradients** gradients) {
  constexpr const char* kFunction = "cephalo_gradients_create";
  return guarded([&] {
    const MultiHeadAttention& of = not_null(layer, kFunction, "layer").layer;
    cephalo_gradients*& created = not_null(gradients, kFunction, "gradients");
    created = new cephalo_gradients{of.new_gradients()};
  });
}

void cephalo_gradients_destroy(cephalo_gradients* gradients) {
  delete gradients;
}

cephalo_status cephalo_gradients_zero(cephalo_gradients* gradients) {
  return guarded(
      [&] { not_null(gradients, "cephalo_gradients_zero", "gradients").gradients.zero(); });
}

cephalo_status cephalo_gradients_get(const cephalo_gradients* gradients, const char* name,
                                     const cephalo_tensor* value_out) {
  constexpr const char* kFunction = "cephalo_gradients_get";
  return guarded([&] {
    const Gradients& all = not_null(gradients, kFunction, "gradients").gradients;
    const TensorView found = all.find(&not_null(name, kFunction, "name"));
    const MutableTensorView to = view_of(value_out, kFunction, "value_out");
    check_output(to, found.shape(), found.dtype(), kFunction, "value_out");
    to.copy_from(found);
  });
}

cephalo_status cephalo_layer_forward_train(const cephalo_layer* layer, const cephalo_tensor* x,
                                           const cephalo_tensor* y_out, int32_t threads,
                                           cephalo_pass** pass) {
  constexpr const char* kFunction = "cephalo_layer_forward_train";
  return guarded([&] {
    const MultiHeadAttention& called = not_null(layer, kFunction, "layer").layer;
    const TensorView input = view_of(x, kFunction, "x");
    const MutableTensorView output = view_of(y_out, kFunction, "y_out");
    cephalo_pass*& created = not_null(pass, kFunction, "pass");
    if (input.rank() > 0) {  // the layer itself refuses other ranks than 2 and 3
      check_output(output, with_width(input, output_width(called)), input.dtype(), kFunction,
                   "y_out");
    }
    CallOptions call;
    call.threads = threads;
    TrainResult result = called.forward_train(input, call, KeepInput::borrow);
    output.copy_from(result.y);
    created = new cephalo_pass{std::move(result.saved), input.shape(), input.dtype()};
  });
}

void cephalo_pass_destroy(cephalo_pass* pass) {
  delete pass;
}

cephalo_status cephalo_layer_backward(const cephalo_layer* layer, const cephalo_pass* pass,
                                      const cephalo_tensor* dy, const cephalo_tensor* dx_out,
                                      cephalo_gradients* gradients) {
  constexpr const char* kFunction = "cephalo_layer_backward";
  return guarded([&] {
    const MultiHeadAttention& called = not_null(layer, kFunction, "layer").layer;
    const cephalo_pass& before = not_null(pass, kFunction, "pass");
    const TensorView dy_view = view_of(dy, kFunction, "dy");
    const MutableTensorView dx = view_or_empty(dx_out, kFunction, "dx_out");
    if (dx_out != nullptr) check_output(dx, before.x_shape, before.dtype, kFunction, "dx_out");
    called.backward(before.saved, dy_view, dx,
                    not_null(gradients, kFunction, "gradients").gradients);
  });
}
