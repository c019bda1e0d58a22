#include "cephalo/view/head_picture.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/text.h"
#include "bindings/bindings.h"
#include "bindings/view/recording.h"
#include "cephalo/core/format.h"
#include "cephalo/io/file.h"

namespace cephalo::python {
namespace {

using Names = std::vector<std::string>;

PictureText text_of(const RecordedText& recording, std::string text, Names tokens) {
  require(static_cast<dim_t>(tokens.size()) == recording.recording->tokens(),
          "draw_heads: tokens has {} names, the recording has {} tokens", tokens.size(),
          recording.recording->tokens());
  return {std::move(text), recording.model.name, std::move(tokens)};
}

Picture all_heads(const RecordedText& recording, const std::vector<HeadReport>& reports,
                  std::string text, Names tokens) {
  const PictureText beside = text_of(recording, std::move(text), std::move(tokens));
  require(!reports.empty(), "draw_heads: there are no heads to draw");
  return asked(recording, [&](const Recording& r) { return draw_heads(r, reports, beside); });
}

Picture one_head(const RecordedText& recording, const HeadReport& report, std::string text,
                 Names tokens) {
  const PictureText beside = text_of(recording, std::move(text), std::move(tokens));
  return asked(recording, [&](const Recording& r) { return draw_head(r, report, beside); });
}

nb::bytes png(const Picture& self) {
  std::string bytes;
  {
    const WithoutGil released;
    bytes = self.png();
  }
  return to_bytes(bytes);
}

void save(const Picture& self, const std::filesystem::path& path, bool replace) {
  const bool as_svg = path.extension() == ".svg";
  require(as_svg || path.extension() == ".png",
          "Picture.save: '{}' does not end in .png or .svg, which are what can be written",
          path.string());
  const WithoutGil released;
  const std::string bytes = as_svg ? self.svg() : self.png();
  write_file(path.string(), bytes, replace);
}

}  // namespace

void bind_head_picture(nb::module_& m) {
  nb::class_<Picture>(m, "Picture", "Maps and texts, as pixels or as SVG; a notebook shows it.")
      .def_prop_ro("width", &Picture::width)
      .def_prop_ro("height", &Picture::height)
      .def("png", &png, "The bytes of a PNG file.")
      .def("_repr_png_", &png)
      .def("svg", &Picture::svg, nb::call_guard<WithoutGil>(),
           "The same as SVG, with text that can be selected.")
      .def("save", &save, "path"_a, "replace"_a = false, "Writes a .png or an .svg file.")
      .def("__repr__",
           [](const Picture& p) { return format_text("Picture({} x {})", p.width(), p.height()); });
  m.def(
      "cividis",
      [](double weight) {
        const Colour c = cividis(weight);
        return std::tuple<int, int, int>(c.red, c.green, c.blue);
      },
      "weight"_a, "The colour of a weight from 0 to 1: (red, green, blue), each from 0 to 255");
  m.def(
      "draw_heads", &all_heads, "recording"_a, "reports"_a, "text"_a, "tokens"_a,
      "The heads of neighbouring layers, a row for each layer, labels below the maps -> Picture.\n"
      "reports: of report_heads. tokens: a name for each token");
  m.def("draw_head", &one_head, "recording"_a, "report"_a, "text"_a, "tokens"_a,
        "One head with its tokens on both sides -> Picture");
}

}  // namespace cephalo::python
