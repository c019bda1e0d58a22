// Picture::svg: shapes as elements, every text as <text>.

#include <cmath>
#include <map>
#include <string>

#include "cephalo/core/format.h"
#include "cephalo/view/font.h"
#include "cephalo/view/hatch.h"
#include "cephalo/view/picture.h"

namespace cephalo {
namespace {

constexpr int kShades = 64;   // of a map: more cannot be told apart, and each is a path
constexpr long kHidden = -1;  // what a map leaves out, among the shades

std::string hex(Colour c) {
  return format_text("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue);
}

// Lines from the lower left to the upper right, as the pixels have them.
std::string hatch_pattern() {
  return format_text(
      "<pattern id=\"hidden\" width=\"{0}\" height=\"{0}\" patternUnits=\"userSpaceOnUse\">"
      "<path d=\"M0 {0}L{0} 0\" stroke=\"{1}\"/></pattern>",
      kHatchStep, hex(kHatchColour));
}

class SvgWriter {
 public:
  void operator()(const Picture::Box& box) {
    out_ +=
        format_text("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", box.x,
                    box.y, box.width, box.height, box.hatched ? "url(#hidden)" : hex(box.colour));
  }

  void operator()(const Picture::Map& map) {
    out_ += "<g shape-rendering=\"crispEdges\">";
    for (const auto& [shade, path] : paths_by_shade(map)) {
      const std::string fill =
          shade == kHidden ? "url(#hidden)" : hex(cividis(static_cast<double>(shade) / kShades));
      out_ += format_text("<path fill=\"{}\" d=\"{}\"/>", fill, path);
    }
    out_ += format_text("</g><path fill=\"url(#hidden)\" d=\"{}\"/>\n", hidden_part(map));
  }

  void operator()(const Picture::Words& words) {
    const TextStyle& style = words.style;
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    out_ += format_text("<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"{:.2f}\"", words.x,
                        words.y, hex(style.colour), em_size(style.size));
    if (style.anchor != Anchor::begin) {
      out_ += format_text(" text-anchor=\"{}\"", kAnchors[static_cast<int>(style.anchor)]);
    }
    if (style.direction == Direction::upwards) {
      out_ += format_text(" transform=\"rotate(-90 {} {})\"", words.x, words.y);
    }
    out_ += format_text(">{}</text>\n", as_xml(words.text));
  }

  const std::string& text() const { return out_; }

 private:
  // Neighbours of the same shade in a row are one rectangle.
  static std::map<long, std::string> paths_by_shade(const Picture::Map& map) {
    std::map<long, std::string> paths;
    const Tensor wide = Tensor::copy(map.weights, DType::f64);
    const auto* row = wide.data_as<double>();
    const auto shade_at = [&](dim_t j) {
      return std::isnan(row[j]) ? kHidden : std::lround(row[j] * kShades);
    };
    for (dim_t i = 0; i < wide.dim(0); ++i, row += wide.dim(1)) {
      for (dim_t begin = 0, end = 0; begin <= i; begin = end) {
        while (end <= i && shade_at(end) == shade_at(begin)) ++end;
        paths[shade_at(begin)] +=
            format_text("M{} {}h{}v{}h-{}z", map.x + begin * map.cell, map.y + i * map.cell,
                        (end - begin) * map.cell, map.cell, (end - begin) * map.cell);
      }
    }
    return paths;
  }

  // The steps above the diagonal as one shape.
  static std::string hidden_part(const Picture::Map& map) {
    std::string path = format_text("M{} {}", map.x + map.cell, map.y);
    for (dim_t i = 1; i < map.weights.dim(0); ++i) path += format_text("v{0}h{0}", map.cell);
    return path + format_text("V{}z", map.y);
  }

  std::string out_;
};

}  // namespace

std::string Picture::svg() const {
  SvgWriter writer;
  for (const Shape& shape : shapes_) std::visit(writer, shape);
  return format_text(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"'DejaVu Sans Mono', monospace\" style=\"white-space:pre\">\n<defs>{2}</defs>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"{3}\"/>\n{4}</svg>\n",
      width_, height_, hatch_pattern(), hex(background_), writer.text());
}

}  // namespace cephalo
