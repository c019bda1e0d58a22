#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cephalo/attention/layer_file.h"
#include "cephalo/core/error.h"
#include "cephalo/io/npy.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string file, prefix;
  bool json = false;
};

// One tensor as a line of the table shows it.
struct Line {
  std::string name;
  Shape shape;
  DType dtype;
  dim_t not_finite;
  std::string role;  // "parameter", "buffer" or ""
};

struct Report {
  std::string what;  // "form separate", "array"
  std::vector<Line> lines;
  std::map<std::string, std::string> metadata;
  dim_t numbers = 0;  // parameters of a layer, otherwise all
  bool is_layer = false;
};

dim_t count_not_finite(const Tensor& t) {
  if (!is_floating(t.dtype())) return 0;
  const Tensor wide = Tensor::copy(t, DType::f64);
  const auto* values = wide.data_as<double>();
  return std::count_if(values, values + wide.numel(),
                       [](double value) { return !std::isfinite(value); });
}

Report inspect_array(const std::string& path) {
  const Tensor t = read_npy(path);
  return {"array", {{"", t.shape(), t.dtype(), count_not_finite(t), ""}}, {}, t.numel(), false};
}

Report inspect_tensors(const Flags& flags) {
  const SafetensorsFile file(flags.file);
  Report report{"no attention layer", {}, file.metadata(), 0, false};
  std::optional<LayerContents> contents;
  try {
    contents = inspect_layer(file, flags.prefix);
    report.what = fmt::format("form {}", name(contents->form));
    report.is_layer = true;
  } catch (const Error&) {
    if (!flags.prefix.empty()) throw;  // any other file of tensors is worth a look too
  }
  const auto is_in = [](const auto& list, const auto& entry) {
    return std::find(list.begin(), list.end(), &entry) != list.end();
  };
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (!entry.name.starts_with(flags.prefix)) continue;
    std::string role;
    if (contents && is_in(contents->parameters, entry)) role = "parameter";
    if (contents && is_in(contents->buffers, entry)) role = "buffer";
    if (role == "parameter" || !contents) report.numbers += numel(entry.shape);
    report.lines.push_back(
        {entry.name, entry.shape, entry.dtype, count_not_finite(file.read(entry)), role});
  }
  return report;
}

std::string as_text(const Report& report, const std::string& path) {
  std::size_t name_width = 4;
  std::size_t shape_width = 5;
  for (const Line& line : report.lines) {
    name_width = std::max(name_width, display_width(line.name));
    shape_width = std::max(shape_width, to_tuple_string(line.shape).size());
  }
  const std::size_t count = report.lines.size();
  std::string out = fmt::format("{}: {}, {} tensor{}, {} {}\n", printable(path), report.what, count,
                                count == 1 ? "" : "s", report.numbers,
                                report.is_layer ? "parameters" : "numbers");
  for (const Line& line : report.lines) {
    std::string text =
        fmt::format("  {}  {}  {:<8}  {}", fit(printable(line.name), name_width),
                    fit(to_tuple_string(line.shape), shape_width), name(line.dtype), line.role);
    if (line.not_finite > 0) text += fmt::format("  {} NaN or infinite", line.not_finite);
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  for (const auto& [key, value] : report.metadata) {
    out += fmt::format("  metadata {}: {}\n", printable(key), printable(value));
  }
  return out;
}

std::string as_json(const Report& report, const std::string& path) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const Line& line : report.lines) {
    tensors.push_back({{"name", line.name},
                       {"shape", std::vector<dim_t>(line.shape.begin(), line.shape.end())},
                       {"dtype", name(line.dtype)},
                       {"role", line.role},
                       {"not_finite", line.not_finite}});
  }
  const nlohmann::ordered_json json = {{"file", path},
                                       {"what", report.what},
                                       {"numbers", report.numbers},
                                       {"tensors", tensors},
                                       {"metadata", report.metadata}};
  // ASCII: names out of a file may hold what turns the direction of a terminal.
  return json.dump(1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

void inspect(const Flags& flags) {
  const bool is_array = flags.file.ends_with(".npy");
  const Report report = is_array ? inspect_array(flags.file) : inspect_tensors(flags);
  print(flags.json ? as_json(report, flags.file) : as_text(report, flags.file));
}

}  // namespace

Verb add_inspect(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = program.add_subcommand("inspect", "What is inside a file of tensors");
  verb->add_option("FILE", flags->file, "A .safetensors or .npy file")->required();
  verb->add_option("--prefix", flags->prefix, "Only names that begin so: h.0.")->type_name("TEXT");
  verb->add_flag("--json", flags->json, "The same as JSON");
  verb->footer("Example:\n  cephalo inspect layer.safetensors");
  return [flags] { inspect(*flags); };
}

}  // namespace cephalo::cli
