#include "bindings/attention/gradients.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/attention/call.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

// A saved pass with what backward makes its results from.
struct Pass {
  SavedPass saved;
  Shape x_shape;
  std::optional<Shape> kv_shape;
  DType dtype;
};

struct Sums {
  explicit Sums(Gradients&& made) : gradients(std::move(made)) {}
  Gradients gradients;
  Turn turn{"Gradients"};  // backward adds to them, one pass at a time
};

nb::tuple forward_train(const Layer& self, const AnyArray& x, const std::optional<AnyArray>& kv,
                        const AnyArray& mask, const nb::object& generator,
                        std::optional<std::uint64_t> number, const std::string& engine,
                        const std::optional<std::string>& require, std::optional<int> threads,
                        bool drop) {
  LayerCall ready(self, x, kv, mask, generator, number);
  ready.use_engine(engine, require, threads);
  ready.use_dropout(drop);
  TrainResult result =
      ready.run([](const MultiHeadAttention& layer, const TensorView& input, const CallOptions& o) {
        return layer.forward_train(input, o);
      });
  auto pass = std::make_unique<Pass>(Pass{std::move(result.saved), ready.x().view().shape(),
                                          std::nullopt, self.layer->new_gradients().dtype()});
  if (ready.kv() != nullptr) pass->kv_shape = ready.kv()->view().shape();
  return nb::make_tuple(to_python(std::move(result.y), ready.x().kind()), std::move(pass));
}

// Arrays over the pass's own memory; the mask owns its tensors.
nb::object heads(nb::handle self) {
  const PassHeads h = nb::cast<const Pass&>(self).saved.heads();
  const auto array = [&](const TensorView& t) { return borrowed_to_python(t, self); };
  return ResultType("PassHeads")(array(h.q), array(h.k), array(h.v), array(h.lse),
                                 h.mask.empty() ? nb::none() : nb::cast(PyMask{h.mask, {}}));
}

std::unique_ptr<Sums> new_gradients(const Layer& self) {
  return std::make_unique<Sums>(self.layer->new_gradients());
}

nb::object backward(const Layer& self, const Pass& pass, const AnyArray& dy, nb::object gradients) {
  const ArrayIn back(dy, self.layer->rung(), "dy");
  if (gradients.is_none()) gradients = nb::cast(new_gradients(self));
  auto& sums = nb::cast<Sums&>(gradients);
  Tensor dx = Tensor::empty(pass.x_shape, pass.dtype);
  Tensor dkv = pass.kv_shape ? Tensor::empty(*pass.kv_shape, pass.dtype) : Tensor();
  {
    const WithoutGil released;
    const std::shared_lock layer(self.turn);
    const std::scoped_lock adding(sums.turn);
    self.layer->backward(pass.saved, back, dx, sums.gradients,
                         pass.kv_shape ? dkv.mutable_view() : MutableTensorView());
  }
  return ResultType("LayerGradients")(
      to_python(std::move(dx), back.kind()),
      to_python_or_none(std::move(dkv), back.kind(), pass.kv_shape.has_value()), gradients);
}

std::vector<std::string> names(const Sums& self) {
  std::vector<std::string> all;
  for (const NamedParameter& gradient : self.gradients.named()) all.push_back(gradient.name);
  return all;
}

nb::list names_list(const Sums& self) {
  nb::list all;
  for (const std::string& name : names(self)) all.append(nb::str(name.c_str()));
  return all;
}

AnyArray gradient(nb::handle self, const std::string& name) {
  const auto& sums = nb::cast<const Sums&>(self);
  for (const NamedParameter& found : sums.gradients.named()) {
    if (found.name == name) return borrowed_to_python(found.value, self);
  }
  throw nb::key_error(name.c_str());
}

void bind_sums(nb::handle scope) {
  nb::class_<Sums>(scope, "Gradients",
                   "One gradient for each parameter, by its name; backward adds to them.")
      .def("keys", &names_list, "The names, in the layer's order.")
      .def("__iter__", [](const Sums& s) { return nb::iter(names_list(s)); })
      .def("__len__", [](const Sums& s) { return s.gradients.named().size(); })
      .def("__getitem__", &gradient, "name"_a, "A read-only array in the parameter's shape.")
      .def("zero", [](Sums& s) {
        const WithoutGil released;
        const std::scoped_lock turn(s.turn);
        s.gradients.zero();
      });
}

}  // namespace

void bind_gradients(nb::module_& m) {
  bind_sums(m);
  nb::class_<Pass>(m, "SavedPass", "What forward_train leaves for backward.")
      .def_prop_ro("bytes", [](const Pass& p) { return p.saved.bytes(); })
      .def_prop_ro("heads", &heads,
                   "(q, k, v, lse, mask) as the heads used them, after rotary: read-only arrays "
                   "over the pass's\n"
                   "memory, linear in tokens. weights(q, k, lse, mask) computes what they looked "
                   "at, pooled_weights\n"
                   "and row_sums summarise it.");
}

void bind_training(nb::class_<Layer>& layer) {
  layer
      .def("forward_train", &forward_train, "x"_a, "kv"_a = nb::none(), "mask"_a = nb::none(),
           "generator"_a = nb::none(), "call"_a = nb::none(), nb::kw_only(), "engine"_a = "auto",
           "require"_a = nb::none(), "threads"_a = nb::none(), "drop"_a = true,
           "Calls the layer and keeps what the backward pass needs: (y, saved). drop=False: "
           "without dropout, as\n"
           "in eval mode, and not counted as a call.")
      .def("backward", &backward, "saved"_a, "dy"_a, "gradients"_a = nb::none(),
           "dy: y's shape -> (dx, dkv, gradients): dx in x's shape, dkv in kv's after cross\n"
           "attention, else None; gradients of the parameters are added to those given, or to new\n"
           "ones.")
      .def("new_gradients", &new_gradients, "Zeros, one for each parameter.");
}

}  // namespace cephalo::python
