#include "cephalo/effects/run.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/callback.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/core/views.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Gpt.run";

// What run returns: arrays under the names that they were asked for by.
struct ModelRun {
  struct Row {
    std::string name;
    std::string shape;
  };
  AnyArray logits;
  nb::dict kept;
  std::vector<Row> rows;  // logits first
};

void check_array(const std::string& name, const TensorView& array, const Shape& shape) {
  const int more = shape.rank() - array.rank();
  bool fits = more >= 0;
  for (int axis = 0; fits && axis < array.rank(); ++axis) {
    fits = array.dim(axis) == 1 || array.dim(axis) == shape[axis + more];
  }
  require(fits, "{}: \"{}\" is {}, what replaces it {}", kName, shown(name), shape, array.shape());
}

// What stands in `replace`: a function of the caller's, or an array.
class Replacing {
 public:
  Replacing(std::string name, const nb::object& by, Kind kind)
      : name_(std::move(name)),
        argument_("replace[\"" + name_ + "\"]"),
        kind_(kind),
        function_(PyCallable_Check(by.ptr()) != 0 ? by : nb::none(), kName, argument_.c_str()) {
    if (!function_.given()) array_ = ArrayIn(by, kName, argument_.c_str());
  }

  // Without the GIL.
  void operator()(const MutableTensorView& value) const {
    if (!function_.given()) return take(array_, value);
    const WithGil held;
    check_signals();
    // A copy, which the caller may keep: the memory of a pass is written again.
    const AnyArray own = to_python(Tensor::copy(value), kind_);
    function_.call(
        [&](const nb::object& made) {
          take(ArrayIn(made.is_none() ? own : made, kName, argument_.c_str()), value);
        },
        own);
  }

  const std::string& name() const { return name_; }

 private:
  void take(const TensorView& from, const MutableTensorView& value) const {
    check_array(name_, from, value.shape());
    value.copy_from(broadcast_to(from, value.shape()));
  }

  std::string name_;
  std::string argument_;
  Kind kind_;
  Callback function_;
  ArrayIn array_;
};

// In the axis order of the name: by a view, where the kind of array has such.
AnyArray kept_array(KeptActivation&& it, Kind kind) {
  if (!tokens_first(it.site)) return to_python(std::move(it.value), kind);
  if (kind == Kind::plain) return to_python(Tensor::copy(it.view()), kind);
  return nb::borrow<AnyArray>(to_python(std::move(it.value), kind).attr("swapaxes")(1, 2));
}

ModelRun as_python(RunResult&& result, Kind kind) {
  ModelRun run;
  run.rows.push_back({"logits", to_string(result.logits.shape())});
  run.logits = to_python(std::move(result.logits), kind);
  for (KeptActivation& it : result.kept) {
    run.rows.push_back({it.name, to_string(it.view().shape())});
    const std::string name = it.name;
    run.kept[name.c_str()] = kept_array(std::move(it), kind);
  }
  return run;
}

// A text's ids, or the caller's.
struct RunIds {
  RunIds(const Model& model, const nb::object& text, std::optional<bool> begin) {
    if (is_text(text)) {
      own = model.ids_of(text, begin, kName, "text");
      kind = kind_without_caller(DType::f32);
    } else {
      given = std::make_unique<IdsIn>(text, kName, "text");
      kind = given->kind();
    }
  }
  TensorView view() const {
    return given ? given->view() : TensorView(own.data(), {static_cast<dim_t>(own.size())});
  }

  std::vector<std::int64_t> own;
  std::unique_ptr<IdsIn> given;
  Kind kind;
};

ModelRun run_python(const Model& self, const nb::object& text, const std::vector<std::string>& keep,
                    const nb::dict& replace, std::optional<bool> begin,
                    std::optional<int> threads) {
  const RunIds ids(self, text, begin);
  std::vector<Replacing> by;
  by.reserve(replace.size());
  for (const auto [name, value] : replace) {
    by.emplace_back(nb::cast<std::string>(name), nb::borrow(value), ids.kind);
  }
  ModelRunOptions options{.keep = keep, .replace = {}, .threads = threads.value_or(0)};
  for (const Replacing& it : by) {
    options.replace.push_back({it.name(), [&it](const MutableTensorView& value) { it(value); }});
  }
  return as_python(
      reading(self, [&](const Gpt& gpt) { return run_model(gpt, ids.view(), options); }), ids.kind);
}

nb::object at(const ModelRun& self, const std::string& name) {
  if (self.kept.contains(name.c_str())) return self.kept[name.c_str()];
  if (name == "logits") return self.logits;
  throw nb::key_error(format_text("\"{}\" was not kept", shown(name)).c_str());
}

std::string text_of(const ModelRun& self) {
  std::size_t widest = 0;
  for (const ModelRun::Row& row : self.rows) widest = std::max(widest, row.name.size());
  std::string text = "ModelRun";
  for (const ModelRun::Row& row : self.rows) {
    text += "\n  " + row.name + std::string(widest - row.name.size() + 2, ' ') + row.shape;
  }
  return text;
}

// Names and shapes have nothing to escape.
std::string html_of(const ModelRun& self) {
  std::string rows;
  for (const ModelRun::Row& row : self.rows) {
    rows += format_text("<tr><td><code>{}</code></td><td>{}</td></tr>", row.name, row.shape);
  }
  return "<table><thead><tr><th>name</th><th>shape</th></tr></thead><tbody>" + rows +
         "</tbody></table>";
}

}  // namespace

void bind_run(nb::module_& m) {
  nb::class_<ModelRun>(m, "ModelRun",
                       "What gpt.run returns: run.logits, and run[name] for what was kept.")
      .def_ro("logits", &ModelRun::logits, "[batch, tokens, vocab_size]")
      .def("__getitem__", &at, "name"_a, nb::sig("def __getitem__(self, name: str) -> typing.Any"))
      .def("keys", [](const ModelRun& self) { return self.kept.keys(); })
      .def("__iter__", [](const ModelRun& self) { return nb::iter(self.kept); })
      .def("__len__", [](const ModelRun& self) { return self.kept.size(); })
      .def("__contains__",
           [](const ModelRun& self, const nb::object& name) { return self.kept.contains(name); })
      .def("__repr__", &text_of)
      .def("_repr_html_", &html_of);
  const nb::object model = m.attr("Gpt");
  nb::setattr(
      model, "run",
      nb::cpp_function(&run_python, nb::name("run"), nb::scope(model), nb::is_method(), "text"_a,
                       "keep"_a = std::vector<std::string>(), "replace"_a = nb::dict(),
                       nb::kw_only(), "begin"_a = true, "threads"_a = nb::none(),
                       R"(A pass that keeps and replaces activations by name -> ModelRun

text: a str, or ids: [batch, tokens] or [tokens]; values always have an axis for the batch.
keep: names such as "layer.3.weights", or TransformerLens's "blocks.3.attn.hook_pattern", which give its
order of axes; docs/activations.md lists them. replace: name -> a function that changes the value
it is given in place or returns another one, or an array (which may broadcast); in this order, before
anything is kept. begin: prepend the token that begins a text; None: as config.json says.
Without replacements the logits are those of gpt(ids), bit for bit.)"));
}

}  // namespace cephalo::python
