
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/error.h"
#include "cephalo/core/finite.h"
#include "cephalo/core/format.h"
#include "cephalo/io/json_value.h"
#include "cephalo/io/npy.h"
#include "cephalo/model/gpt_file.h"
#include "cephalo/model/gpt_options_json.h"
#include "cli/model_text.h"
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
  std::string what;  // "form separate", "array", "GPT of 4 layers x 8 heads …"
  std::vector<Line> lines;
  std::map<std::string, std::string> metadata;
  dim_t numbers = 0;            // parameters of a layer, otherwise all
  bool has_parameters = false;  // a layer or a model: numbers are what it learns
  std::optional<GptOptions> gpt = {};
};

// A whole model, as config.json beside it says; or why it cannot be one.
void describe_gpt(const std::string& path, Report& report) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  try {
    const GptOptions o = inspect_gpt(folder.empty() ? "." : folder.string()).options;
    report.what = format_text(
        "GPT of {}, d_model {}, context_length {}, vocab_size {}, {} positions",
        layers_and_heads(o), o.d_model, o.context_length, o.vocab_size, name(o.positions));
    report.numbers = parameter_count(o);
    report.has_parameters = true;
    report.gpt = o;
  } catch (const Error& error) {
    report.what = format_text("GPT that cannot be loaded ({})", error.what());
  }
}

Report inspect_array(const std::string& path) {
  const Tensor t = read_npy(path);
  return {"array", {{"", t.shape(), t.dtype(), count_not_finite(t), ""}}, {}, t.numel(), false};
}

Report inspect_tensors(const std::string& path, const std::string& prefix) {
  const SafetensorsFile file(path);
  Report report{"no attention layer", {}, file.metadata(), 0, false};
  std::optional<LayerContents> contents;
  try {
    contents = inspect_layer(file, prefix);
    report.what = format_text("form {}", name(contents->form));
    report.has_parameters = true;
  } catch (const Error&) {
    if (!prefix.empty()) throw;  // any other file of tensors is worth a look too
  }
  const auto is_in = [](const auto& list, const auto& entry) {
    return std::find(list.begin(), list.end(), &entry) != list.end();
  };
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (!entry.name.starts_with(prefix)) continue;
    std::string role;
    if (contents && is_in(contents->parameters, entry)) role = "parameter";
    if (contents && is_in(contents->buffers, entry)) role = "buffer";
    if (role == "parameter" || !contents) report.numbers += numel(entry.shape);
    report.lines.push_back(
        {entry.name, entry.shape, entry.dtype, count_not_finite(file.read(entry)), role});
  }
  if (!contents && is_gpt_file(file)) describe_gpt(path, report);
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
  std::string out = format_text("{}: {}, {} tensor{}, {} {}\n", printable(path),
                                printable(report.what), count, count == 1 ? "" : "s",
                                report.numbers, report.has_parameters ? "parameters" : "numbers");
  for (const Line& line : report.lines) {
    std::string text =
        format_text("  {}  {}  {:<8}  {}", fit(printable(line.name), name_width),
                    fit(to_tuple_string(line.shape), shape_width), name(line.dtype), line.role);
    if (line.not_finite > 0) text += format_text("  {} NaN or infinite", line.not_finite);
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  for (const auto& [key, value] : report.metadata) {
    out += format_text("  metadata {}: {}\n", printable(key), printable(value));
  }
  return out;
}

std::string as_json(const Report& report, const std::string& path) {
  Json tensors = Json::array();
  for (const Line& line : report.lines) {
    tensors.push_back({{"name", line.name},
                       {"shape", std::vector<dim_t>(line.shape.begin(), line.shape.end())},
                       {"dtype", name(line.dtype)},
                       {"role", line.role},
                       {"not_finite", line.not_finite}});
  }
  Json metadata = Json::object();
  for (const auto& [key, value] : report.metadata) metadata.add(key, value);
  Json json = {{"file", path},
               {"what", report.what},
               {"numbers", report.numbers},
               {"tensors", tensors},
               {"metadata", metadata}};
  if (report.gpt) {
    json["gpt"] = to_json(*report.gpt);
    for (const char* unsaid : {"seed", "dtype"}) json["gpt"].erase(unsaid);  // of no file
  }
  // ASCII: names out of a file may hold what turns the direction of a terminal.
  return json.dump({.indent = 1, .ascii = true, .replace = true}) + "\n";
}

// The folder of a model stands for the file of its parameters.
std::string file_of(const std::string& path) {
  std::error_code ignored;
  const bool is_model =
      std::filesystem::exists(std::filesystem::path(path) / "config.json", ignored);
  return is_model ? gpt_parameters_path(path) : path;
}

void inspect(const Flags& flags) {
  const std::string path = file_of(flags.file);
  const Report report =
      path.ends_with(".npy") ? inspect_array(path) : inspect_tensors(path, flags.prefix);
  print(flags.json ? as_json(report, path) : as_text(report, path));
}

}  // namespace

Verb add_inspect(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb =
      program.add_subcommand("inspect", "What is inside a file of tensors or a model's folder");
  verb.add_option("FILE", flags->file, "A .safetensors or .npy file, or the folder of a model")
      .required();
  verb.add_option("--prefix", flags->prefix, "Only names that begin with this, such as h.0.")
      .type_name("TEXT");
  verb.add_flag("--json", flags->json, "The same as JSON");
  verb.footer(
      "Examples:\n"
      "  cephalo inspect layer.safetensors\n"
      "  cephalo inspect alice-model");
  return [flags] { inspect(*flags); };
}

}  // namespace cephalo::cli
