#include "cephalo/attention/layer/layer_file.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/spellings.h"
#include "bindings/attention/multi_head.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

using Path = std::filesystem::path;

std::unique_ptr<Layer> load(const Path& path, std::optional<dim_t> num_heads,
                            std::optional<dim_t> num_kv_heads, std::optional<dim_t> context_length,
                            std::optional<bool> causal, std::optional<double> dropout,
                            std::optional<Rotary> rotary, const std::string& prefix, bool strict,
                            bool allow_extra) {
  LoadOptions options;
  options.settings = {num_heads, num_kv_heads, context_length, causal, dropout, rotary};
  options.prefix = prefix;
  options.strict = strict;
  options.allow_extra = allow_extra;
  std::vector<std::string> warnings;
  std::unique_ptr<Layer> loaded;
  {
    const WithoutGil released;
    loaded = std::make_unique<Layer>(
        std::make_shared<MultiHeadAttention>(load_layer(path.string(), options, &warnings)));
  }
  for (const std::string& warning : warnings) {
    if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) != 0) throw nb::python_error();
  }
  return loaded;
}

void save(const Layer& self, const Path& path, const std::optional<std::string>& form,
          bool with_mask, bool zero_bias, bool allow_rotary, bool replace) {
  SaveOptions options;
  if (form) options.form = form_of(*form, self.layer->rung());
  options.with_mask = with_mask;
  options.zero_bias = zero_bias;
  options.allow_rotary = allow_rotary;
  options.replace = replace;
  const WithoutGil released;
  const std::shared_lock turn(self.turn);
  save_layer(*self.layer, path.string(), options);
}

}  // namespace

void bind_layer_file(nb::module_& m) {
  m.def("load", &load, "path"_a, "num_heads"_a = nb::none(), nb::kw_only(),
        "num_kv_heads"_a = nb::none(), "context_length"_a = nb::none(), "causal"_a = nb::none(),
        "dropout"_a = nb::none(), "rotary"_a = nb::none(), "prefix"_a = "", "strict"_a = false,
        "allow_extra"_a = false,
        "The layer in a .safetensors file, in eval mode. prefix: of the layer's names in a larger\n"
        "file (\"h.0.\"), where the config.json next to it says what the numbers cannot show; for "
        "other files\n"
        "pass it here. strict: NaN is an error, not a warning. allow_extra: unknown tensors and "
        "keys are\n"
        "ignored.");
  nb::setattr(m.attr("MultiHeadAttention"), "save",
              nb::cpp_function(&save, nb::name("save"), nb::scope(m.attr("MultiHeadAttention")),
                               nb::is_method(), "path"_a, "form"_a = nb::none(), nb::kw_only(),
                               "with_mask"_a = false, "zero_bias"_a = false,
                               "allow_rotary"_a = false, "replace"_a = false,
                               "Writes a .safetensors file under the names of a form, or refuses "
                               "if something would be lost.\n"
                               "with_mask: adds the buffers that PyTorch's strict loading asks "
                               "for. allow_rotary: stores rotary\n"
                               "positions in the metadata if the classes of that form have none."));
}

}  // namespace cephalo::python
