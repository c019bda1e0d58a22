// train_pass and loss of a Gpt, by cross entropy: cephalo/model/gpt.h with cephalo/train/loss.h.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <mutex>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt_gradients.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/core/views.h"
#include "cephalo/train/loss.h"

namespace cephalo::python {
namespace {

// What a pass reads and what it is to predict.
class Batch {
 public:
  Batch(const char* function, const nb::object& ids, const nb::object& targets,
        std::int64_t ignore_index)
      : ids_(ids, function, "ids"), ignore_(ignore_index) {
    const IdsIn wanted(targets, function, "targets");
    require(wanted.view().shape() == ids_.view().shape(),
            "{}: targets {} must have the shape of ids {}", function, wanted.view().shape(),
            ids_.view().shape());
    targets_ = wanted.copy().reshaped({wanted.view().numel()});
    const auto* target = targets_.data_as<std::int64_t>();
    const auto ignored = std::count(target, target + targets_.numel(), ignore_);
    count_ = std::max<dim_t>(1, targets_.numel() - ignored);
  }

  // A single sequence is a batch of one.
  TensorView ids() const {
    const TensorView& given = ids_;
    if (given.rank() != 1) return given;
    return {given.data(), given.dtype(), {1, given.dim(0)}, {given.dim(0), given.strides()[0]}};
  }
  double share(dim_t first, const TensorView& logits, const MutableTensorView& dlogits) const {
    return cross_entropy_share(logits, targets_.slice(0, first, first + logits.dim(0)), count_,
                               dlogits, ignore_);
  }

 private:
  IdsIn ids_;
  Tensor targets_;
  dim_t count_ = 0;
  std::int64_t ignore_;
};

AnyArray train_pass(const Model& self, const nb::object& ids, const nb::object& targets,
                    nb::object gradients, std::int64_t ignore_index, std::uint64_t number,
                    std::optional<int> threads) {
  const Batch batch("Gpt.train_pass", ids, targets, ignore_index);
  if (gradients.is_none()) gradients = nb::cast(std::make_unique<ModelGradients>(self.gpt));
  auto& sums = nb::cast<ModelGradients&>(gradients);
  const double loss = reading(self, [&](const Gpt& gpt) {
    const std::unique_lock adding(sums.turn);
    return gpt.train_pass(
        batch.ids(),
        [&](dim_t first, const MutableTensorView& logits) {
          return batch.share(first, logits, logits);
        },
        sums.gradients,
        {.call = number, .workspace = &sums.workspace, .threads = threads.value_or(0)});
  });
  return nb::borrow<AnyArray>(ResultType("TrainPass")(loss, gradients));
}

double loss_of(const Model& self, const nb::object& ids, const nb::object& targets,
               std::int64_t ignore_index, std::optional<int> threads) {
  const Batch batch("Gpt.loss", ids, targets, ignore_index);
  return reading(self, [&](const Gpt& gpt) {
    return gpt.loss_pass(batch.ids(),
                         [&](dim_t first, const MutableTensorView& logits) {
                           return batch.share(first, logits, {});
                         },
                         {.threads = threads.value_or(0)});
  });
}

nb::list names_list(const ModelGradients& self) {
  nb::list all;
  for (const std::string& name : self.names) all.append(nb::str(name.c_str()));
  return all;
}

AnyArray gradient(nb::handle self, const std::string& name) {
  const auto& sums = nb::cast<const ModelGradients&>(self);
  const auto found = std::find(sums.names.begin(), sums.names.end(), name);
  if (found == sums.names.end()) throw nb::key_error(name.c_str());
  return borrowed_to_python(
      sums.gradients.tensors()[static_cast<std::size_t>(found - sums.names.begin())], self);
}

}  // namespace

ModelGradients::ModelGradients(const Gpt& model) : gradients(model) {
  for (const GptParameter& p : model.parameters()) names.push_back(p.name);
}

void bind_gpt_gradients(nb::module_& m) {
  nb::class_<ModelGradients>(
      m, "GptGradients", "One gradient for each parameter, by its name; train_pass adds to them.")
      .def("keys", &names_list, "The names, in the model's order.")
      .def("__iter__", [](const ModelGradients& g) { return nb::iter(names_list(g)); })
      .def("__len__", [](const ModelGradients& g) { return g.names.size(); })
      .def("__getitem__", &gradient, "name"_a,
           "An array in the parameter's shape, over the memory that train_pass adds to.")
      .def("zero", [](ModelGradients& g) {
        const WithoutGil released;
        const std::unique_lock turn(g.turn);
        g.gradients.zero();
      });
}

void bind_gpt_training(nb::class_<Model>& model) {
  model
      .def(
          "train_pass", &train_pass, "ids"_a, "targets"_a, "gradients"_a = nb::none(),
          nb::kw_only(), "ignore_index"_a = kIgnoreTarget, "call"_a = 0, "threads"_a = nb::none(),
          R"(Forward pass, cross entropy and backward pass in one; the logits are never stored as a whole.

ids, targets: [batch, tokens] or [tokens] -> (loss, gradients): the mean over the targets that are not
ignore_index; gradients are added to those given, or to new ones, which also keep the memory of the
pass for the next one. call: the number of this pass, which decides what dropout drops.)")
      .def("loss", &loss_of, "ids"_a, "targets"_a, nb::kw_only(), "ignore_index"_a = kIgnoreTarget,
           "threads"_a = nb::none(),
           "The forward half only, without dropout -> the mean cross entropy.")
      .def(
          "new_gradients",
          [](const Model& self) { return std::make_unique<ModelGradients>(self.gpt); },
          "Zeros, one for each parameter.");
}

}  // namespace cephalo::python
